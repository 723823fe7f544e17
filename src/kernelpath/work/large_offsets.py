"""A call whose tensors are longer than memory, in the submission's own process: see device/far.py."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from kernelpath import simt
from kernelpath.device.far import without_memory
from kernelpath.work.dispatch_monitor import FACTORIES, FILL_OPERATORS, FILLED_FACTORIES, DispatchMonitor

ADDRESS_SPACE_BYTES = 1 << 40
"""Bytes of addresses that the call may take, besides memory."""


class LargeOffsetMonitor(DispatchMonitor):
    """Hands out address spans for tensors of simt.FAR bytes and more, and fills none of them."""

    def dispatch(self, func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        name = func.overloadpacket.__name__
        if name in FACTORIES + FILLED_FACTORIES:
            wanted = func(*args, **{**kwargs, "device": "meta"})
            if _nbytes(wanted) >= simt.FAR:
                span = without_memory(_nbytes(wanted)).view(wanted.dtype)
                self._met(span)
                return span.as_strided(wanted.size(), wanted.stride())
        if name in FILL_OPERATORS and _nbytes(args[0]) >= simt.FAR:
            return args[0]
        return super().dispatch(func, args, kwargs)


def _nbytes(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage().nbytes()
