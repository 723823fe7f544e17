"""Named barriers of a thread block (bar.sync, bar.arrive, bar.red). PTX ISA manual, "bar, barrier".

A barrier with a thread count opens as soon as that many threads have arrived; a warp counts for 32. A barrier without a
count is for the whole block. If some of its threads have left the kernel, the host decides whether that is allowed.
"""

from __future__ import annotations

from warpcheck.layout import LANES, Status
from warpcheck.native import count_bits, load64, lowest_bit, native, store64
from warpcheck.runtime.happens_before import PLANE_BYTES, ROW_BYTES, WARPS, raise_to
from warpcheck.runtime.records import BARRIER, BarrierRecord, CtaRecord, LaunchRecord, WarpRecord, field_offset

__all__ = [
    "BARRIERS",
    "REDUCTIONS",
    "all_wait_together",
    "arrive_at",
    "has_one_thread_count",
    "open_barrier",
    "open_for_all",
    "wait_at",
]

BARRIERS = 16  # of a block
REDUCTIONS = ("", "popc", "and", "or")
POPC = REDUCTIONS.index("popc")
AND = REDUCTIONS.index("and")
ARRIVAL_TIMES = field_offset(BARRIER, "arrival_times")


@native
def has_one_thread_count(cta: CtaRecord, warp: WarpRecord) -> int:
    """Return whether a barrier's phase that a warp comes to has the thread count that the warp states.

    Another count is for another phase. The warp has to know, by the order of events, that the last phase for another
    count is over: one of the warps that waited for it has to have done so before. An H200 ends a kernel that breaks
    this rule with an illegal instruction, if the phase is still open.
    """
    barrier = BarrierRecord(cta.barriers + (warp.barrier & BARRIERS - 1) * BarrierRecord.size)
    threads = warp.barrier_threads
    if threads == 0:
        threads = LANES * cta.warp_count
    if barrier.threads != 0 and barrier.threads != threads:
        barrier.other_threads = barrier.threads
        barrier.other_opened_at = barrier.opened_at
        barrier.other_opened_by = barrier.opened_by
        if barrier.arrivals or warps_waiting_at(cta, warp.barrier) & ~(1 << warp.index):
            return 0
    barrier.threads = threads
    if barrier.other_threads == 0:
        return 1
    for other_warp in range(cta.warp_count):
        known = load64(cta.vector_clock + ROW_BYTES * warp.index + 8 * other_warp)
        if barrier.other_opened_by >> other_warp & 1 and known >= barrier.other_opened_at:
            return 1
    return 0


@native
def arrive_at(launch: LaunchRecord, cta: CtaRecord, warp: WarpRecord) -> None:
    """Arrive at a barrier without waiting."""
    barrier = BarrierRecord(cta.barriers + (warp.barrier & BARRIERS - 1) * BarrierRecord.size)
    # The time advances, so that what the warp does after its arrival is not ordered by the barrier.
    launch.time += 1
    barrier.arrived_warps |= 1 << warp.index
    barrier.arrivals += 1
    store64(barrier.address + ARRIVAL_TIMES + 8 * warp.index, launch.time)
    # The diagonal of the matrix of clocks: the warp's own component in its own row.
    store64(cta.vc_released + (ROW_BYTES + 8) * warp.index, launch.time)
    warp.status = Status.READY
    open_if_complete(launch, cta, warp)


@native
def wait_at(launch: LaunchRecord, cta: CtaRecord, warp: WarpRecord) -> None:
    """Open the barrier that a warp has come to, if it has a thread count that is reached."""
    if warp.barrier_threads:
        open_if_complete(launch, cta, warp)


@native
def open_if_complete(launch: LaunchRecord, cta: CtaRecord, warp: WarpRecord) -> None:
    """Open the barrier of a warp if it has a thread count, and that many threads have arrived."""
    barrier = BarrierRecord(cta.barriers + (warp.barrier & BARRIERS - 1) * BarrierRecord.size)
    waiting = warps_waiting_at(cta, warp.barrier)
    if waiting and LANES * (count_bits(waiting) + barrier.arrivals) >= warp.barrier_threads and warp.barrier_threads:
        open_barrier(launch, cta, waiting)


@native
def warps_waiting_at(cta: CtaRecord, number: int) -> int:
    """Return the warps that wait at a barrier, as bits."""
    waiting = 0
    for index in range(cta.warp_count):
        warp = WarpRecord(cta.warps + index * cta.warp_stride)
        if warp.status == Status.BARRIER and warp.barrier == number:
            waiting |= 1 << index
    return waiting


@native
def all_wait_together(cta: CtaRecord) -> int:
    """Return whether every thread of the block waits at one barrier without a count, at one place of the program."""
    first = WarpRecord(cta.warps)
    for warp_index in range(cta.warp_count):
        warp = WarpRecord(cta.warps + warp_index * cta.warp_stride)
        if warp.status != Status.BARRIER or warp.live != warp.threads or warp.barrier_threads:
            return 0
        if warp.barrier_block != first.barrier_block or warp.barrier != first.barrier:
            return 0
    return 1


@native
def open_for_all(launch: LaunchRecord, cta: CtaRecord) -> None:
    """Open a barrier that the whole block waits at: every warp is ordered behind every other."""
    first = WarpRecord(cta.warps)
    # The short way is for one plane of clocks and no result. The others take the general join.
    if first.barrier_reduces or launch.cluster_size > 1:
        open_barrier(launch, cta, warps_waiting_at(cta, first.barrier))
        return
    launch.time += 1
    cta.last_barrier_time = launch.time
    # Every warp knows that this phase is over.
    barrier = BarrierRecord(cta.barriers + (first.barrier & BARRIERS - 1) * BarrierRecord.size)
    barrier.threads = 0
    barrier.other_threads = 0
    for warp_index in range(cta.warp_count):
        warp = WarpRecord(cta.warps + warp_index * cta.warp_stride)
        warp.status = Status.READY
        for other_warp in range(cta.warp_count):
            # Every warp has arrived, so the join is the same for all: everything up to now.
            store64(cta.vector_clock + 8 * (WARPS * warp_index + other_warp), launch.time)


@native
def open_barrier(launch: LaunchRecord, cta: CtaRecord, waiting: int) -> None:
    """Open a barrier: the warps ``waiting``, as bits, are ordered behind all that have arrived, and join their
    clocks.

    A barrier for the whole block opens only when each warp has arrived or exited, so an exit counts as an arrival.
    """
    first = WarpRecord(cta.warps + lowest_bit(waiting) * cta.warp_stride)
    barrier = BarrierRecord(cta.barriers + (first.barrier & BARRIERS - 1) * BarrierRecord.size)
    launch.time += 1
    if count_bits(waiting) == cta.warp_count:
        cta.last_barrier_time = launch.time
    value = reduce_predicates(cta, waiting, first.barrier_reduces)
    arrived = waiting | exited_warps(cta, first.barrier_threads)
    all_arrived = arrived | barrier.arrived_warps
    # Join: component by component the maximum over all that have arrived. A warp that arrived without waiting
    # (bar.arrive) is known up to its arrival, a waiting or exited one up to now.
    for plane in range(launch.cluster_size):
        for other_warp in range(cta.warp_count):
            time = 0
            for warp_index in range(cta.warp_count):
                if all_arrived >> warp_index & 1:
                    time = max(
                        time, load64(cta.vector_clock + PLANE_BYTES * plane + ROW_BYTES * warp_index + 8 * other_warp)
                    )
            if plane == 0 and barrier.arrived_warps >> other_warp & 1:
                time = max(time, load64(barrier.address + ARRIVAL_TIMES + 8 * other_warp))
            if plane == 0 and arrived >> other_warp & 1:
                time = launch.time
            for warp_index in range(cta.warp_count):
                if waiting >> warp_index & 1:
                    raise_to(cta.vector_clock + PLANE_BYTES * plane + ROW_BYTES * warp_index + 8 * other_warp, time)
    for warp_index in range(cta.warp_count):
        if waiting >> warp_index & 1:
            warp = WarpRecord(cta.warps + warp_index * cta.warp_stride)
            warp.status = Status.READY
            warp.barrier_value = value
    barrier.arrived_warps = 0
    barrier.arrivals = 0
    barrier.opened_at = launch.time
    barrier.opened_by = waiting


@native
def exited_warps(cta: CtaRecord, count: int) -> int:
    """Return the warps that have left the kernel, as bits; none for a barrier with a thread count."""
    exited = 0
    for index in range(cta.warp_count):
        warp = WarpRecord(cta.warps + index * cta.warp_stride)
        if warp.live == 0 and count == 0:
            exited |= 1 << index
    return exited


@native
def reduce_predicates(cta: CtaRecord, waiting: int, operation: int) -> int:
    """Return the result of ``bar.red`` over the predicates of all threads."""
    total = 0
    any_true = 0
    all_true = 1
    for warp_index in range(cta.warp_count):
        if waiting >> warp_index & 1:
            warp = WarpRecord(cta.warps + warp_index * cta.warp_stride)
            total += count_bits(warp.barrier_value)
            any_true |= warp.barrier_value != 0
            # Threads that have exited have no predicate, so the others alone decide.
            all_true &= warp.barrier_value == warp.live
    if operation == POPC:
        return total
    return all_true if operation == AND else any_true
