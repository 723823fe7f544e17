"""Fences of the asynchronous proxy. PTX ISA manual, "Memory consistency model: proxies".

Bulk copies and wgmma reach memory by another way than threads do. What threads wrote they find only if there is a
fence.proxy.async on the path of happens-before: by the writer, by the reader, or by a third warp that knew of the write
and that the reader knows of. So each warp remembers its last fences, and what it knew then.

The manual counts cp.async among the threads' writes. CUTLASS's and Triton 3.6's products feed wgmma by it without a
fence all the same, and an H200 was never seen to miss what it brought: none is asked for here.
"""

from __future__ import annotations

from warpcheck.layout import FENCES
from warpcheck.native import load64, native, store64
from warpcheck.runtime.happens_before import PLANE, ROW, block_at, is_own
from warpcheck.runtime.history import LOW, SITE, THREAD
from warpcheck.runtime.records import CountsRecord, CtaRecord, LaunchRecord, WarpRecord

__all__ = ["FENCE_BYTES", "OF_GLOBAL", "OF_SHARED", "fence_proxy", "is_seen"]

OF_GLOBAL, OF_SHARED = 1, 2  # the memory that a fence is for
FENCE_BYTES = 24  # of what is kept of a fence beside what its warp knew: its time, its lanes, the memory


@native
def fence_proxy(launch: LaunchRecord, cta: CtaRecord, warp: WarpRecord, spaces: int, mask: int) -> int:
    """What these lanes know to be written may be read by bulk copies and wgmma."""
    launch.time += 1
    place = fence_slot(launch, cta, warp, warp.fences)
    warp.fences += 1
    store64(place, launch.time)
    store64(place + 8, mask)
    store64(place + 16, spaces)
    for plane in range(launch.cluster_size):
        for other in range(cta.warp_count):
            at = ROW * plane + 8 * other
            store64(place + FENCE_BYTES + at, load64(cta.known + PLANE * plane + ROW * warp.index + 8 * other))
    return 0


@native
def fence_slot(launch: LaunchRecord, cta: CtaRecord, warp: WarpRecord, number: int) -> int:
    """Where a warp remembers its fence of that number."""
    return cta.fences + (warp.index * FENCES + number % FENCES) * (FENCE_BYTES + ROW * launch.cluster_size)


@native
def is_seen(launch: LaunchRecord, cta: CtaRecord, warp: int, write: int, space: int) -> int:
    """Whether a warp finds through the asynchronous proxy what was written: a copy did, or a fence lies between.

    ``write`` is an entry of the history. Of blocks of other clusters nothing is said, nor of fences long ago.
    """
    if write == 0:
        return 1
    counts = CountsRecord(launch.counts + (((write & LOW) >> SITE) - 1) * CountsRecord.size)
    if counts.bulk_bytes or counts.copies:
        return 1
    size, writer = launch.cluster_size, cta.block_number
    if not is_own(launch, cta, write >> 32):
        writer = block_at(launch, write >> 32)
        if writer // size != cta.block_number // size:
            return 1
    for rank in range(size):
        peer = CtaRecord(load64(cta.peers + 8 * rank))
        ahead = (peer.block_number - cta.block_number + size) % size
        behind = (writer - peer.block_number + size) % size
        for number in range(peer.warp_count):
            fencer = WarpRecord(peer.warps + number * peer.warp_stride)
            until = load64(cta.known + PLANE * ahead + ROW * warp + 8 * number)
            if ahead == 0 and number == warp:
                until = launch.time + 1
            if fences_between(launch, peer, fencer, behind, write, until, space):
                return 1
    return 0


@native
def fences_between(
    launch: LaunchRecord, cta: CtaRecord, fencer: WarpRecord, plane: int, write: int, until: int, space: int
) -> int:
    """Whether a warp has issued a fence, before the time ``until``, when it knew of a write: its own, or another's."""
    time, thread = write >> 32, write & THREAD
    for back in range(1, min(fencer.fences, FENCES) + 1):
        place = fence_slot(launch, cta, fencer, fencer.fences - back)
        if load64(place) < until and load64(place + 16) & space:
            own = plane == 0 and thread >> 5 == fencer.index and load64(place + 8) >> (thread & 31) & 1
            if time < (load64(place) if own else load64(place + FENCE_BYTES + ROW * plane + 8 * (thread >> 5))):
                return 1
            return 0  # at earlier fences it knew less
    return fencer.fences > FENCES
