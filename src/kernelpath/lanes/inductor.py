"""What torch.compile makes of a function for a GPU, without one: graphs by Dynamo, Triton code by Inductor.

The code is written and not compiled, so it takes a second and no C++ compiler. Inductor asks its device for nothing but
numbers, which are those of an H200 here. The graphs themselves run on the CPU, operator by operator. The passes of
torch.compile that look for known patterns, such as attention, are left out.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any
from unittest import mock

import torch
import torch._dynamo
import torch.utils._triton
from torch._dynamo.device_interface import CudaInterface
from torch._functorch import aot_autograd
from torch._inductor import config
from torch._inductor.debug import DebugContext
from torch._inductor.decomposition import select_decomp_table
from torch._inductor.graph import GraphLowering
from torch._inductor.virtualized import V
from torch._subclasses.fake_tensor import FakeTensor

HOPPER = SimpleNamespace(
    name="NVIDIA H200",
    major=9,
    minor=0,
    multi_processor_count=132,
    regs_per_multiprocessor=65_536,
    max_threads_per_multi_processor=2048,
    max_threads_per_block=1024,
    warp_size=32,
    total_memory=150_754_820_096,
    shared_memory_per_block=49_152,
    shared_memory_per_block_optin=232_448,
    L2_cache_size=62_914_560,
    gcnArchName="",
)
"""The properties of the GPU that code is written for."""


_LINE = re.compile(r'File ".*", line (\d+), in ')


@dataclass(frozen=True)
class Written:
    """codes: a module for each graph, in the order in which they ran. result: what the graphs computed."""

    codes: Sequence[str]
    result: Any


class GraphBreak(Exception):
    """A function is more than one graph. The message says why, and where."""


def written(function: Callable[..., Any], *inputs: torch.Tensor, whole: bool = False) -> Written:
    """The code for a function of tensors on the CPU. Raises what the function or the compiler raises.

    whole: it has to be one graph; raises GraphBreak.
    """
    graphs: list[tuple[torch.fx.GraphModule, list[torch.Tensor]]] = []

    def captured(graph: torch.fx.GraphModule, inputs: list[torch.Tensor]) -> Callable[..., Any]:
        graphs.append((graph, list(inputs)))
        return graph.forward

    torch._dynamo.reset()
    try:
        with torch.no_grad():
            result = torch.compile(function, backend=captured, dynamic=False, fullgraph=whole)(*inputs)
    except torch._dynamo.exc.Unsupported as error:
        lines = _LINE.findall(str(error))
        raise GraphBreak(f"{'line ' + lines[-1] + ': ' if lines else ''}{str(error).partition(chr(10))[0]}") from error
    with torch.no_grad(), _gpu():
        return Written([code for graph, given in graphs for code in _lowered(graph, given)], result)


def _lowered(graph: torch.fx.GraphModule, inputs: Sequence[torch.Tensor]) -> list[str]:
    """The modules that Inductor writes for a graph of Dynamo's: one, and none where nothing is computed."""
    codes: list[str] = []

    def compiler(module: torch.fx.GraphModule, fakes: Sequence[Any]) -> Any:
        fake_mode = torch._guards.detect_fake_mode(fakes)
        on_gpu = [_on_gpu(one) for one in fakes]
        for node in module.graph.nodes:
            node.meta = {key: torch.utils._pytree.tree_map(_on_gpu, value) for key, value in node.meta.items()}
            if "device" in node.kwargs:
                node.kwargs = {**node.kwargs, "device": torch.device("cuda", 0)}
        lowering = GraphLowering(module, example_inputs=on_gpu)
        with DebugContext(), V.set_graph_handler(lowering), V.set_fake_mode(fake_mode):
            lowering.run(*on_gpu)
            code: Any = lowering.codegen()[0]
        codes.append(getattr(code, "value", code))
        return aot_autograd.make_boxed_func(module.forward)  # type: ignore[attr-defined]

    with config.patch(fx_graph_cache=False, compile_threads=1):
        aot_autograd.aot_module_simplified(
            graph,
            list(inputs),
            fw_compiler=compiler,  # type: ignore[arg-type]
            decompositions=select_decomp_table(),
            keep_inference_input_mutations=True,
        )
    return codes


def _on_gpu(value: Any) -> Any:
    """A fake tensor with the same layout on a GPU; anything else as it is."""
    if not isinstance(value, FakeTensor) or value.device.type != "cpu":
        return value
    with value.fake_mode:
        return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device="cuda:0")


@contextlib.contextmanager
def _gpu() -> Iterator[None]:
    """Let Inductor find a GPU with the properties of HOPPER, whatever this machine has."""
    answers = {
        "get_device_properties": HOPPER,
        "get_compute_capability": HOPPER.major * 10 + HOPPER.minor,
        "is_available": True,
        "is_triton_capable": True,
        "raise_if_triton_unavailable": None,
        "current_device": 0,
    }
    with contextlib.ExitStack() as stack:
        for name, answer in answers.items():
            for owner in (CudaInterface, CudaInterface.Worker):
                if hasattr(owner, name):
                    stack.enter_context(mock.patch.object(owner, name, staticmethod(_gives(answer))))
        stack.enter_context(mock.patch.object(torch.cuda, "get_device_properties", _gives(HOPPER)))
        stack.enter_context(mock.patch.object(torch.cuda, "get_device_capability", _gives((9, 0))))
        stack.enter_context(mock.patch.object(torch.cuda, "current_device", _gives(0)))
        stack.enter_context(mock.patch.object(torch.utils._triton, "triton_hash_with_backend", _gives("none")))
        for known in (torch.utils._triton.has_triton,):  # for good, once asked
            known.cache_clear()
            stack.callback(known.cache_clear)
        yield


def _gives(value: Any) -> Callable[..., Any]:
    return lambda *_, **__: value
