"""A function of the submission's, compiled in its own process."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from kernelpath.lanes import inductor
from kernelpath.work import messages
from kernelpath.work.call import check_outputs
from kernelpath.work.tensors import dtype_name, from_bytes, to_bytes


def compile_and_run(function: Callable[..., Any], asked: messages.Fuse) -> messages.FusedGraphs:
    """What torch.compile makes of it. Raises what the function raises, and WrongType for what is no tensor."""
    cpu = torch.device("cpu")
    given = [from_bytes(one.dtype, one.shape, one.content, cpu) for one in asked.tensors]
    try:
        found = inductor.written(function, *given, whole=True)
    except inductor.GraphBreak as error:
        return messages.FusedGraphs(secret="", codes=(), graph_break=str(error), outputs=(), tampered="")
    outputs = check_outputs(found.result, asked.function, cpu, lambda output: False)
    told = [messages.TensorData(dtype_name(one.dtype), list(one.shape), to_bytes(one)) for one in outputs]
    return messages.FusedGraphs(secret="", codes=found.codes, graph_break="", outputs=told, tampered="")
