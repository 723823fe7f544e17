"""Compile a function of the submission in its own process."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from kernelpath.work import messages
from kernelpath.work.call import check_outputs
from kernelpath.work.tensors import dtype_name, from_bytes, to_bytes
from warpcheck.frontends import inductor


def compile_and_run(function: Callable[..., Any], request: messages.Fuse) -> messages.FusedGraphs:
    """Return the code that torch.compile generates for the function, and its outputs.

    Raises:
        WrongType: The function returned something other than tensors.
        Exception: Whatever the function raises.
    """
    cpu = torch.device("cpu")
    inputs = [from_bytes(tensor.dtype, tensor.shape, tensor.content, cpu) for tensor in request.tensors]
    try:
        compiled = inductor.written(function, *inputs, whole=True)
    except inductor.GraphBreak as error:
        return messages.FusedGraphs(secret="", codes=(), graph_break=str(error), outputs=(), tampered="")
    outputs = check_outputs(compiled.result, request.function, cpu, lambda output: False)
    tensor_data = [
        messages.TensorData(dtype_name(output.dtype), list(output.shape), to_bytes(output)) for output in outputs
    ]
    return messages.FusedGraphs(secret="", codes=compiled.codes, graph_break="", outputs=tensor_data, tampered="")
