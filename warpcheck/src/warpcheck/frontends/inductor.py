"""Generate torch.compile's Triton code for a function without a GPU: graphs by Dynamo, code by Inductor.

The code is generated and not compiled, which takes a second and needs no C++ compiler. Inductor reads only numeric
properties of its device; here they are those of an H200. The graphs run on the CPU, operator by operator. The passes of
torch.compile that match known patterns, such as attention, are omitted.
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

from warpcheck.hooks import inductor as hooks

# The properties of the GPU that code is written for.
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


_LINE = re.compile(r'File ".*", line (\d+), in ')


@dataclass(frozen=True)
class Written:
    """The generated code of a function.

    Attributes:
        codes: A module for each graph, in the order in which the graphs ran.
        result: The function's result, which the graphs computed on the CPU.
    """

    codes: Sequence[str]
    result: Any


class GraphBreak(Exception):
    """A function does not compile to a single graph; the message gives the reason and the line."""


def written(function: Callable[..., Any], *inputs: torch.Tensor, whole: bool = False) -> Written:
    """Return the code that Inductor generates for a function of tensors on the CPU.

    Args:
        function: A function that torch.compile accepts.
        *inputs: Its arguments.
        whole: Require a single graph.

    Raises:
        GraphBreak: `whole` is set, and the function compiles to several graphs.
        hooks.Changed: This version of PyTorch lacks an internal function that code generation needs.
    """
    graphs: list[tuple[torch.fx.GraphModule, list[torch.Tensor]]] = []

    def captured(graph: torch.fx.GraphModule, inputs: list[torch.Tensor]) -> Callable[..., Any]:
        graphs.append((graph, list(inputs)))
        return graph.forward

    # Dynamo would reuse what it has compiled of the function, and not give the graph again.
    hooks.DYNAMO.get()()
    try:
        with torch.no_grad():
            result = torch.compile(function, backend=captured, dynamic=False, fullgraph=whole)(*inputs)
    except hooks.BROKEN.get() as error:
        lines = _LINE.findall(str(error))
        raise GraphBreak(f"{'line ' + lines[-1] + ': ' if lines else ''}{str(error).partition(chr(10))[0]}") from error
    with torch.no_grad(), _gpu():
        return Written([code for graph, graph_inputs in graphs for code in _lowered(graph, graph_inputs)], result)


def _lowered(graph: torch.fx.GraphModule, inputs: Sequence[torch.Tensor]) -> list[str]:
    """Return the modules that Inductor generates for a graph of Dynamo: one, or none if nothing is computed."""
    codes: list[str] = []

    def compiler(module: torch.fx.GraphModule, fakes: Sequence[Any]) -> Any:
        fake_mode = hooks.DETECTED.get()(fakes)
        on_gpu = [_on_gpu(fake) for fake in fakes]
        # Inductor chooses its code by the devices of the tensors: those in the graph are moved to the GPU, too.
        for node in module.graph.nodes:
            node.meta = {key: torch.utils._pytree.tree_map(_on_gpu, value) for key, value in node.meta.items()}
            if "device" in node.kwargs:
                node.kwargs = {**node.kwargs, "device": torch.device("cuda", 0)}
        lowering = hooks.LOWERING.get()(module, example_inputs=on_gpu)
        with hooks.DEBUG.get()(), hooks.HANDLER.get()(lowering), hooks.FAKE_MODE.get()(fake_mode):
            hooks.RUN.get()(lowering, *on_gpu)
            code = hooks.CODE.get()(lowering)[0]
        # Text in older versions of PyTorch, a record of text and line map in later ones.
        codes.append(getattr(code, "value", code))
        # The graph itself runs on the CPU: its result is the function's.
        return hooks.BOXED.get()(module.forward)

    with hooks.SETTINGS.get()(fx_graph_cache=False, compile_threads=1):
        hooks.TRACE.get()(
            graph,
            list(inputs),
            fw_compiler=compiler,
            decompositions=hooks.DECOMPOSED.get()(),
            keep_inference_input_mutations=True,
        )
    return codes


def _on_gpu(value: Any) -> Any:
    """Return a fake tensor with the same layout on a GPU, and any other value unchanged."""
    if not isinstance(value, hooks.FAKE.get()) or value.device.type != "cpu":
        return value
    # A fake tensor has no memory, so the GPU need not exist.
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
            for owner in (hooks.WORKER.owner(), hooks.WORKER.get()):
                if hasattr(owner, name):
                    stack.enter_context(mock.patch.object(owner, name, staticmethod(_gives(answer))))
        stack.enter_context(mock.patch.object(torch.cuda, "get_device_properties", _gives(HOPPER)))
        stack.enter_context(mock.patch.object(torch.cuda, "get_device_capability", _gives((9, 0))))
        stack.enter_context(mock.patch.object(torch.cuda, "current_device", _gives(0)))
        hooks.HASH.get()
        stack.enter_context(mock.patch.object(hooks.HASH.owner(), "triton_hash_with_backend", _gives("none")))
        # PyTorch caches whether Triton is available; the answer changes at the start and at the end of the body.
        clear_cache = hooks.CLEAR_HAS_TRITON.get()
        clear_cache()
        stack.callback(clear_cache)
        yield


def _gives(value: Any) -> Callable[..., Any]:
    return lambda *_, **__: value
