"""A function of the submission's, compiled in its own process."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from kernelpath.work import messages
from kernelpath.work.call import plain_outputs
from kernelpath.work.tensors import dtype_name, from_bytes, to_bytes
from warpcheck.frontends import inductor


def written(function: Callable[..., Any], asked: messages.Fuse) -> messages.Fused:
    """What torch.compile makes of it. Raises what the function raises, and WrongType for what is no tensor."""
    cpu = torch.device("cpu")
    given = [from_bytes(one.dtype, one.shape, one.content, cpu) for one in asked.tensors]
    try:
        found = inductor.written(function, *given, whole=True)
    except inductor.GraphBreak as broken:
        return messages.Fused(secret="", codes=(), broken=str(broken), outputs=(), tampered="")
    outputs = plain_outputs(found.result, asked.function, cpu, lambda output: False)
    told = [messages.Output(dtype_name(one.dtype), list(one.shape), to_bytes(one)) for one in outputs]
    return messages.Fused(secret="", codes=found.codes, broken="", outputs=told, tampered="")
