"""Record how far into their buffers the blocks of a sample get before the launch is cut at its limit."""

from __future__ import annotations

from warpcheck.native import load64, lowest_bit, noinline
from warpcheck.runtime.address_spaces import find_buffer
from warpcheck.runtime.records import BufferRecord, LaunchRecord

__all__ = ["record_reach"]


@noinline
def record_reach(launch: LaunchRecord, addresses: int, mask: int, size: int) -> None:
    """Record how far into their buffers lanes access ``size`` bytes."""
    buffer = launch.buffers
    while mask:
        lane = lowest_bit(mask)
        mask &= mask - 1
        buffer = find_buffer(launch, buffer, load64(addresses + 8 * lane))
        record = BufferRecord(buffer)
        offset = load64(addresses + 8 * lane) - record.start
        if offset < record.bytes:
            record.reached = max(record.reached, offset + size)
