"""End the slice of a warp that polls, so that the thread that it waits for can run."""

from __future__ import annotations

from warpcheck.layout import LANES
from warpcheck.native import load64, lowest_bit, native, noinline, store64
from warpcheck.runtime.access_history import BLOCK_STRONG
from warpcheck.runtime.records import WARP, CtaRecord, LaunchRecord, WarpRecord, field_offset

__all__ = ["count_poll", "poll", "repeats_last_poll"]

POLLED_ADDRESSES = field_offset(WARP, "polled_addresses")

POLLS_PER_SLICE = 32  # consecutive strong accesses to one address after which a warp gives up its slice


@native
def poll(
    launch: LaunchRecord, cta: CtaRecord, warp: WarpRecord, addresses: int, mask: int, ordering: int, spins: int
) -> None:
    """Count a strong access to global memory, which acquires what other blocks have published.

    Even a relaxed access acquires: programs in CUDA C++ leave out the fence after it, as NVIDIA's guide does. Triton
    has no fences, and its operations say whether they acquire. An access with the scope of the block acquires nothing
    from other blocks.
    """
    if not launch.converges and ordering != BLOCK_STRONG:
        cta.acquired_at = launch.time
    count_poll(launch, cta, warp, addresses, mask, spins)


@noinline
def count_poll(launch: LaunchRecord, cta: CtaRecord, warp: WarpRecord, addresses: int, mask: int, spins: int) -> None:
    """Count a strong access, which may signal something unless it spins. After several in a row to one address, the
    warp's slice ends with the next iteration of its loop.

    If that loop contains a barrier of the block, the block yields at that barrier; see ``schedule``. ``spins`` says
    whether the loop ends by the value of this access alone.
    """
    launch.signals += not spins
    address = load64(addresses + 8 * lowest_bit(mask))
    if warp.polled_address != address:
        warp.polled_address = address
        warp.polls = 0
    warp.polls += 1
    if warp.polls >= POLLS_PER_SLICE and launch.budget >= 0:
        warp.polls = 1
        cta.poll_timeouts += 1
        cta.spin_timeouts += spins
        # A negative budget preempts the warp at its next loop; the rest of the slice is not charged.
        unused = launch.budget + 1
        launch.unused_budget += unused
        launch.clock -= unused
        launch.budget = -1


@noinline
def repeats_last_poll(warp: WarpRecord, site: int, addresses: int, mask: int) -> int:
    """Return whether every lane of a strong load repeats its last one, by the same instruction. How often depends on
    timing.
    """
    is_repeated = warp.poll_site == site + 1
    for lane in range(LANES * (not is_repeated)):
        store64(warp.address + POLLED_ADDRESSES + 8 * lane, 0)
    while mask:
        lane = lowest_bit(mask)
        mask &= mask - 1
        address = load64(addresses + 8 * lane)
        is_repeated = is_repeated and load64(warp.address + POLLED_ADDRESSES + 8 * lane) == address
        store64(warp.address + POLLED_ADDRESSES + 8 * lane, address)
    warp.poll_site = site + 1
    return is_repeated
