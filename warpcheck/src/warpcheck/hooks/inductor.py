"""Declare the hooks inside PyTorch that let Inductor generate code for a GPU that this machine lacks."""

from __future__ import annotations

from warpcheck.hooks import Hook

_WRITE = "Inductor cannot be asked for its code"
_GPU = "Inductor cannot be told of a GPU that is not here"

DYNAMO = Hook("torch._dynamo", "reset", "what was compiled before cannot be forgotten")
BROKEN = Hook("torch._dynamo.exc", "Unsupported", "a graph break cannot be told")
WORKER = Hook("torch._dynamo.device_interface", "CudaInterface.Worker", _GPU)
PROPERTIES = Hook("torch._dynamo.device_interface", "CudaInterface.get_compute_capability", _GPU)
AVAILABLE = Hook("torch._dynamo.device_interface", "CudaInterface.is_triton_capable", _GPU)
HASH = Hook("torch.utils._triton", "triton_hash_with_backend", _GPU)
CLEAR_HAS_TRITON = Hook("torch.utils._triton", "has_triton.cache_clear", _GPU)

TRACE = Hook(
    "torch._functorch.aot_autograd",
    "aot_module_simplified",
    _WRITE,
    takes=("fw_compiler", "decompositions", "keep_inference_input_mutations"),
)
BOXED = Hook("torch._functorch.aot_autograd", "make_boxed_func", _WRITE)
DECOMPOSED = Hook("torch._inductor.decomposition", "select_decomp_table", _WRITE)
SETTINGS = Hook("torch._inductor.config", "patch", _WRITE)
DEBUG = Hook("torch._inductor.debug", "DebugContext", _WRITE)
LOWERING = Hook("torch._inductor.graph", "GraphLowering", _WRITE, takes=("example_inputs",))
RUN = Hook("torch._inductor.graph", "GraphLowering.run", _WRITE)
CODE = Hook("torch._inductor.graph", "GraphLowering.codegen", _WRITE)
HANDLER = Hook("torch._inductor.virtualized", "V.set_graph_handler", _WRITE)
FAKE_MODE = Hook("torch._inductor.virtualized", "V.set_fake_mode", _WRITE)
DETECTED = Hook("torch._guards", "detect_fake_mode", _WRITE)
FAKE = Hook("torch._subclasses.fake_tensor", "FakeTensor", _WRITE)
