"""The memory that an address lies in."""

from __future__ import annotations

from kernelpath.simt.layout import LANES, Space
from kernelpath.simt.native import native
from kernelpath.simt.run.records import BufferRecord, CtaRecord, LaunchRecord, WarpRecord

__all__ = ["find", "local_of", "space_of"]


@native
def space_of(launch: LaunchRecord, cta: CtaRecord, address: int) -> int:
    """Which space a generic address lies in."""
    if cta.shared <= address and address < cta.shared + launch.shared_bytes:
        return Space.SHARED
    if cta.local <= address and address < cta.local + launch.local_total:
        return Space.LOCAL
    return Space.GLOBAL


@native
def local_of(launch: LaunchRecord, cta: CtaRecord, warp: WarpRecord, lane: int) -> int:
    """Where the local memory of one thread begins."""
    return cta.local + (warp.index * LANES + lane) * launch.local_bytes


@native
def find(launch: LaunchRecord, guess: int, address: int) -> int:
    """The last buffer that begins at or before an address; ``guess`` is tried first."""
    span = BufferRecord(guess)
    if span.start <= address and address < span.start + span.bytes:
        return guess
    low, high = 0, launch.buffer_count
    while high - low > 1:
        middle = low + high >> 1
        span = BufferRecord(launch.buffers + middle * BufferRecord.size)
        if span.start <= address:
            low = middle
        else:
            high = middle
    return launch.buffers + low * BufferRecord.size
