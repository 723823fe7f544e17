"""Barriers of a thread block: warps arrive, and go on when enough have. PTX ISA manual, "bar, barrier".

A barrier with a count opens as soon as so many threads have arrived, a warp counting for 32. One without is for the
whole block; where some of its threads have left the kernel, the host looks whether they may.
"""

from __future__ import annotations

from warpcheck.layout import LANES, Status
from warpcheck.native import count_bits, load64, lowest_bit, native, store64
from warpcheck.runtime.happens_before import PLANE, ROW, WARPS, raise_to
from warpcheck.runtime.records import BARRIER, BarrierRecord, CtaRecord, LaunchRecord, WarpRecord, field_offset

__all__ = ["BARRIERS", "REDUCTIONS", "all_wait_together", "arrive_at", "meet", "open_barrier", "wait_at"]

BARRIERS = 16  # of a block
REDUCTIONS = ("", "popc", "and", "or")
POPC, AND = REDUCTIONS.index("popc"), REDUCTIONS.index("and")
TIMES = field_offset(BARRIER, "times")


@native
def arrive_at(launch: LaunchRecord, cta: CtaRecord, warp: WarpRecord) -> None:
    """A warp arrives at a barrier and goes on."""
    barrier = BarrierRecord(cta.barriers + (warp.barrier & BARRIERS - 1) * BarrierRecord.size)
    launch.time += 1
    barrier.arrived |= 1 << warp.index
    barrier.arrivals += 1
    store64(barrier.address + TIMES + 8 * warp.index, launch.time)
    store64(cta.released + (ROW + 8) * warp.index, launch.time)
    warp.status = Status.READY
    open_if_complete(launch, cta, warp)


@native
def wait_at(launch: LaunchRecord, cta: CtaRecord, warp: WarpRecord) -> None:
    """A warp has come to a barrier to wait there."""
    if warp.barrier_threads:
        open_if_complete(launch, cta, warp)


@native
def open_if_complete(launch: LaunchRecord, cta: CtaRecord, warp: WarpRecord) -> None:
    """Open the barrier of a warp if it has a count, and so many threads have come."""
    barrier = BarrierRecord(cta.barriers + (warp.barrier & BARRIERS - 1) * BarrierRecord.size)
    here = waiting_at(cta, warp.barrier)
    if here and LANES * (count_bits(here) + barrier.arrivals) >= warp.barrier_threads and warp.barrier_threads:
        open_barrier(launch, cta, here)


@native
def waiting_at(cta: CtaRecord, number: int) -> int:
    """The warps that wait at a barrier, as bits."""
    here = 0
    for index in range(cta.warp_count):
        warp = WarpRecord(cta.warps + index * cta.warp_stride)
        if warp.status == Status.BARRIER and warp.barrier == number:
            here |= 1 << index
    return here


@native
def all_wait_together(cta: CtaRecord) -> int:
    """Whether every thread of the block waits at the same place, at a barrier for all of them."""
    first = WarpRecord(cta.warps)
    for number in range(cta.warp_count):
        warp = WarpRecord(cta.warps + number * cta.warp_stride)
        if warp.status != Status.BARRIER or warp.live != warp.threads or warp.barrier_threads:
            return 0
        if warp.barrier_block != first.barrier_block or warp.barrier != first.barrier:
            return 0
    return 1


@native
def meet(launch: LaunchRecord, cta: CtaRecord) -> None:
    """Open a barrier that all have reached: every warp knows what every other did."""
    first = WarpRecord(cta.warps)
    if first.barrier_reduces or launch.cluster_size > 1:
        open_barrier(launch, cta, waiting_at(cta, first.barrier))
        return
    launch.time += 1
    cta.met = launch.time
    for number in range(cta.warp_count):
        warp = WarpRecord(cta.warps + number * cta.warp_stride)
        warp.status = Status.READY
        for other in range(cta.warp_count):
            store64(cta.known + 8 * (WARPS * number + other), launch.time)


@native
def open_barrier(launch: LaunchRecord, cta: CtaRecord, here: int) -> None:
    """The warps ``here``, as bits, go on: they know what all that have arrived did before, and what those knew.

    A barrier for the whole block does not open before a warp has come or left, so leaving is arriving.
    """
    first = WarpRecord(cta.warps + lowest_bit(here) * cta.warp_stride)
    barrier = BarrierRecord(cta.barriers + (first.barrier & BARRIERS - 1) * BarrierRecord.size)
    launch.time += 1
    if count_bits(here) == cta.warp_count:
        cta.met = launch.time
    value = reduced(cta, here, first.barrier_reduces)
    arrived = here | left(cta, first.barrier_threads)
    everyone = arrived | barrier.arrived
    for plane in range(launch.cluster_size):
        for other in range(cta.warp_count):
            time = 0
            for number in range(cta.warp_count):
                if everyone >> number & 1:
                    time = max(time, load64(cta.known + PLANE * plane + ROW * number + 8 * other))
            if plane == 0 and barrier.arrived >> other & 1:
                time = max(time, load64(barrier.address + TIMES + 8 * other))
            if plane == 0 and arrived >> other & 1:
                time = launch.time
            for number in range(cta.warp_count):
                if here >> number & 1:
                    raise_to(cta.known + PLANE * plane + ROW * number + 8 * other, time)
    for number in range(cta.warp_count):
        if here >> number & 1:
            warp = WarpRecord(cta.warps + number * cta.warp_stride)
            warp.status = Status.READY
            warp.barrier_value = value
    barrier.arrived = 0
    barrier.arrivals = 0


@native
def left(cta: CtaRecord, count: int) -> int:
    """The warps that have left the kernel, as bits. None counts where a barrier waits for so many threads."""
    gone = 0
    for index in range(cta.warp_count):
        warp = WarpRecord(cta.warps + index * cta.warp_stride)
        if warp.live == 0 and count == 0:
            gone |= 1 << index
    return gone


@native
def reduced(cta: CtaRecord, here: int, operation: int) -> int:
    """What ``bar.red`` gives: the predicate over all threads."""
    total, some, every = 0, 0, 1
    for number in range(cta.warp_count):
        if here >> number & 1:
            warp = WarpRecord(cta.warps + number * cta.warp_stride)
            total += count_bits(warp.barrier_value)
            some |= warp.barrier_value != 0
            every &= warp.barrier_value == warp.live
    if operation == POPC:
        return total
    return every if operation == AND else some
