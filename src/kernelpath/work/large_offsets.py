"""Run a call whose tensors are larger than memory, in the submission's own process: see device/large_offsets.py."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from kernelpath.device.large_offsets import reserve_readonly
from kernelpath.work.dispatch_monitor import FACTORIES, FILL_OPERATORS, FILLED_FACTORIES, DispatchMonitor
from warpcheck import simt

ADDRESS_SPACE_BYTES = 1 << 40
"""Bytes of addresses that the call may use, besides memory."""


class LargeOffsetMonitor(DispatchMonitor):
    """Gives tensors of simt.FAR bytes and more an address span without memory, and fills none of them."""

    def dispatch(self, func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        name = func.overloadpacket.__name__
        if name in FACTORIES + FILLED_FACTORIES:
            # The operator itself computes sizes and strides; on the meta device it allocates nothing.
            shape = func(*args, **{**kwargs, "device": "meta"})
            if _nbytes(shape) >= simt.FAR:
                span = reserve_readonly(_nbytes(shape)).view(shape.dtype)
                self._on_result(span)
                return span.as_strided(shape.size(), shape.stride())
        if name in FILL_OPERATORS and _nbytes(args[0]) >= simt.FAR:
            return args[0]
        return super().dispatch(func, args, kwargs)


def _nbytes(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage().nbytes()
