"""A resident thread block: its record, its warps, its shared and local memory and what is known of them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from warpcheck.layout import COPIES, FENCES, LANES, READS
from warpcheck.lowered import Lowered
from warpcheck.runtime.arrays import Dim, Records, aligned, span
from warpcheck.runtime.buffers import empty_history
from warpcheck.runtime.happens_before import WARPS
from warpcheck.runtime.mbarriers import MBARRIERS
from warpcheck.runtime.meeting import BARRIERS
from warpcheck.runtime.proxies import FENCE_BYTES
from warpcheck.runtime.records import BARRIER, COPY, CTA, MBARRIER, READ, WARP, field_offset
from warpcheck.runtime.spaces import RANK
from warpcheck.runtime.warpgroup import ROOM

__all__ = ["Cta", "cluster_of"]


class Cta(Records):
    """The place of one thread block, which blocks of the grid take one after another.

    ``warps`` has their records. In a cluster of several blocks it is the place of the one of this ``rank``; ``window``
    is the shared memory of them all, and ``join`` tells who the others are.
    """

    def __init__(
        self,
        lowered: Lowered,
        block: Dim,
        shared_bytes: int,
        shared_granule: int,
        size: int = 1,
        rank: int = 0,
        window: npt.NDArray[np.uint8] | None = None,
    ) -> None:
        super().__init__(CTA)
        self.rank, self.group = rank, [self]
        threads = block[0] * block[1] * block[2]
        local = lowered.local_bytes * threads
        history, self.replaced = empty_history((shared_bytes >> shared_granule) + 2)
        shared = aligned(shared_bytes) if window is None else window[rank << RANK :][:shared_bytes]
        self.point(shared=shared, shared_state=np.empty(shared_bytes + 1, np.uint8))
        self.point(barriers=np.zeros(BARRIERS, BARRIER))
        self.point(local=aligned(local), local_state=np.empty(local + 1, np.uint8), shared_history=history)
        count, stride = -(-threads // LANES), lowered.warp_bytes
        self.warps = self._make_warps(block, threads, count, stride)
        self.set(warp_count=count, warp_stride=stride)
        multiplies = any(check.function == "wgmma_operand" for check in lowered.checks)
        self.point(reads=np.zeros(count * READS * multiplies, READ), products=aligned(ROOM * multiplies))
        copies = any(check.function == "copy_async" for check in lowered.checks)
        order = {name: np.zeros((WARPS, WARPS), np.int64) for name in ("released", "seen")}
        known = np.zeros((size, WARPS, WARPS), np.int64)
        self.point(**order, known=known, copies=np.zeros(count * COPIES * copies, COPY))
        fences = any(check.function == "fence_proxy" for check in lowered.checks)
        words = (FENCE_BYTES >> 3) + WARPS * size
        self.point(fences=np.zeros((count * fences, FENCES, words), np.int64))
        self.set(window=self.get("shared") - (rank << RANK))
        has_mbarriers = any(check.function == "mbarrier_init" for check in lowered.checks)
        if has_mbarriers:
            self.point(mbarriers=np.zeros(MBARRIERS, MBARRIER))
        self.point(clocks=np.zeros((1 + MBARRIERS * has_mbarriers, 2, size, WARPS), np.int64))
        self.join([self])

    def join(self, group: Sequence[Cta]) -> None:
        """These are the blocks of its cluster, by rank."""
        self.group = list(group)
        self.point(peers=np.array([cta.address for cta in group], np.int64))

    def _make_warps(self, block: Dim, threads: int, count: int, stride: int) -> npt.NDArray[np.void]:
        self.point(warps=aligned(count * stride))
        warps = np.ndarray(count, _strided(WARP, stride), self.arrays["warps"].data)
        thread = np.arange(count * LANES)
        x, y, _ = block
        for axis, tid in enumerate((thread % x, thread // x % y, thread // (x * y))):
            warps["tid"][:, axis] = tid.reshape(count, LANES)
        exists = (thread < threads).reshape(count, LANES)
        warps["threads"] = (exists * (1 << np.arange(LANES))).sum(axis=1)
        warps["index"] = np.arange(count)
        return warps

    def place(self) -> Dim:
        """The block's coordinates in the grid."""
        return self.get("ctaid_x"), self.get("ctaid_y"), self.get("ctaid_z")

    def thread(self, warp: int, lane: int) -> Dim:
        """A thread's coordinates in the block."""
        x, y, z = (int(n) for n in self.warps[warp]["tid"][:, lane])
        return x, y, z


def _strided(record: np.dtype[np.void], size: int) -> np.dtype[np.void]:
    """The record padded to ``size`` bytes."""
    fields = record.fields
    assert fields is not None
    offsets = [field_offset(record, name) for name in fields]
    formats = [kind[0] for kind in fields.values()]
    return np.dtype({"names": list(fields), "formats": formats, "offsets": offsets, "itemsize": size})


def cluster_of(size: int, lowered: Lowered, block: Dim, shared_bytes: int, shared_granule: int) -> list[Cta]:
    """Places for the blocks of a cluster, or for one block."""
    window = span(size << RANK) if size > 1 else None
    group = [Cta(lowered, block, shared_bytes, shared_granule, size, rank, window) for rank in range(size)]
    for cta in group:
        cta.join(group)
    return group
