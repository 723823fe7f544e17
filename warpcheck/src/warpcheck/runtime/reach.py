"""How far into their buffers the blocks of a sample get, before the launch is cut at its limit."""

from __future__ import annotations

from warpcheck.native import apart, load64, lowest_bit
from warpcheck.runtime.records import BufferRecord, LaunchRecord
from warpcheck.runtime.spaces import find

__all__ = ["reach"]


@apart
def reach(launch: LaunchRecord, addresses: int, mask: int, size: int) -> None:
    """Note how far into their buffers lanes access ``size`` bytes."""
    buffer = launch.buffers
    while mask:
        lane = lowest_bit(mask)
        mask &= mask - 1
        buffer = find(launch, buffer, load64(addresses + 8 * lane))
        span = BufferRecord(buffer)
        offset = load64(addresses + 8 * lane) - span.start
        if offset < span.bytes:
            span.reached = max(span.reached, offset + size)
