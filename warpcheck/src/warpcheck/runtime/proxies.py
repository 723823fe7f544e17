"""Fences of the asynchronous proxy. PTX ISA manual, "Memory consistency model: proxies".

Bulk copies and wgmma access memory through the asynchronous proxy. They find what threads wrote only if there is a
fence.proxy.async on the path of happens-before: by the writer, by the reader, or by a third warp that is ordered behind
the write and before the reader. So each warp remembers its last fences, with its vector clock at each.

The manual counts cp.async among the writes of threads. The GEMMs of CUTLASS and Triton 3.6 load operands of wgmma by
cp.async without such a fence, and an H200 was never observed to miss their data: no fence is required here.
"""

from __future__ import annotations

from warpcheck.layout import FENCES
from warpcheck.native import load64, native, store64
from warpcheck.runtime.access_history import site_of, thread_of, time_of
from warpcheck.runtime.happens_before import PLANE_BYTES, ROW_BYTES, block_at_time, is_by_own_block
from warpcheck.runtime.records import CountsRecord, CtaRecord, LaunchRecord, WarpRecord

__all__ = ["FENCES_GLOBAL", "FENCES_SHARED", "FENCE_HEADER_BYTES", "fence_proxy", "is_visible_to_async_proxy"]

# The memory that a fence is for, as bits.
FENCES_GLOBAL = 1
FENCES_SHARED = 2
# A fence's record: its time, its lanes and its memory, 8 bytes each, and then the vector clock of its warp.
FENCE_HEADER_BYTES = 24


@native
def fence_proxy(launch: LaunchRecord, cta: CtaRecord, warp: WarpRecord, spaces: int, mask: int) -> int:
    """Record that these lanes make the writes they are ordered behind visible to bulk copies and wgmma."""
    launch.time += 1
    slot = fence_slot(launch, cta, warp, warp.fence_count)
    warp.fence_count += 1
    store64(slot, launch.time)
    store64(slot + 8, mask)
    store64(slot + 16, spaces)
    for plane in range(launch.cluster_size):
        for other_warp in range(cta.warp_count):
            offset = ROW_BYTES * plane + 8 * other_warp
            store64(
                slot + FENCE_HEADER_BYTES + offset,
                load64(cta.vector_clock + PLANE_BYTES * plane + ROW_BYTES * warp.index + 8 * other_warp),
            )
    return 0


@native
def fence_slot(launch: LaunchRecord, cta: CtaRecord, warp: WarpRecord, number: int) -> int:
    """Return the address of a warp's record of its fence of that number."""
    return cta.fence_ring + (warp.index * FENCES + number % FENCES) * (
        FENCE_HEADER_BYTES + ROW_BYTES * launch.cluster_size
    )


@native
def is_visible_to_async_proxy(launch: LaunchRecord, cta: CtaRecord, warp: int, write_word: int, space: int) -> int:
    """Return whether a warp finds a write through the asynchronous proxy: a copy made it, or a fence is in between.

    ``write_word`` is a word of the history. Writes of other clusters, and fences that are no longer remembered, count
    as visible.
    """
    if write_word == 0:
        return 1
    counts = CountsRecord(launch.counts + site_of(write_word) * CountsRecord.size)
    if counts.bulk_bytes or counts.is_cp_async:
        return 1
    size = launch.cluster_size
    writer = cta.block_number
    if not is_by_own_block(launch, cta, time_of(write_word)):
        writer = block_at_time(launch, time_of(write_word))
        if writer // size != cta.block_number // size:
            return 1
    # Every warp of the cluster may have issued the fence. It counts if the fencing warp was ordered behind the write,
    # and this warp is ordered behind the fence.
    for rank in range(size):
        peer = CtaRecord(load64(cta.peers + 8 * rank))
        ahead = (peer.block_number - cta.block_number + size) % size
        behind = (writer - peer.block_number + size) % size
        for warp_index in range(peer.warp_count):
            fencer = WarpRecord(peer.warps + warp_index * peer.warp_stride)
            until = load64(cta.vector_clock + PLANE_BYTES * ahead + ROW_BYTES * warp + 8 * warp_index)
            if ahead == 0 and warp_index == warp:
                until = launch.time + 1
            if has_fence_between(launch, peer, fencer, behind, write_word, until, space):
                return 1
    return 0


@native
def has_fence_between(
    launch: LaunchRecord, cta: CtaRecord, fencer: WarpRecord, plane: int, write_word: int, until: int, space: int
) -> int:
    """Return whether a warp has issued a fence, before the time ``until``, when it was ordered behind a write."""
    time = time_of(write_word)
    thread = thread_of(write_word)
    for age in range(1, min(fencer.fence_count, FENCES) + 1):
        slot = fence_slot(launch, cta, fencer, fencer.fence_count - age)
        if load64(slot) < until and load64(slot + 16) & space:
            is_writer = plane == 0 and thread >> 5 == fencer.index and load64(slot + 8) >> (thread & 31) & 1
            if time < (
                load64(slot) if is_writer else load64(slot + FENCE_HEADER_BYTES + ROW_BYTES * plane + 8 * (thread >> 5))
            ):
                return 1
            return 0  # at earlier fences it knew less
    return fencer.fence_count > FENCES
