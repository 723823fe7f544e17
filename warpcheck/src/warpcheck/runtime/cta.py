"""A resident thread block: its record, its warps, its shared and local memory, and the states of their bytes."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, lru_cache

import numpy as np
import numpy.typing as npt

from warpcheck.layout import COPIES, FENCES, LANES, READS
from warpcheck.lowered_kernel import Lowered
from warpcheck.runtime.address_spaces import RANK
from warpcheck.runtime.arrays import Dim, Records, aligned, span
from warpcheck.runtime.buffers import empty_history
from warpcheck.runtime.cta_barrier import BARRIERS
from warpcheck.runtime.happens_before import WARPS
from warpcheck.runtime.mbarriers import MBARRIERS
from warpcheck.runtime.proxies import FENCE_HEADER_BYTES
from warpcheck.runtime.records import BARRIER, COPY, CTA, MBARRIER, READ, WARP, field_offset
from warpcheck.runtime.tensor_access import ACCESSES, TENSOR_ACCESS
from warpcheck.runtime.tensor_allocation import SLICES
from warpcheck.runtime.tensor_cells import CELL, CELLS, MEMORY_BYTES
from warpcheck.runtime.tensor_records import JOB, JOBS
from warpcheck.runtime.warpgroup import PRODUCTS_BYTES

__all__ = ["Cta", "cluster_of"]

WINDOW_ALIGNMENT = 1024
"""The alignment of a block's shared memory in bytes, which is that of the atoms of the widest swizzle."""


class Cta(Records):
    """The records of one thread block, which blocks of the grid use one after another.

    ``warps`` has the records of its warps. In a cluster of several blocks it belongs to the block of this ``rank``;
    ``window`` is the shared memory of all of them, and ``set_cluster`` makes them known to each other.
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
        self.rank = rank
        self.cluster = [self]
        threads = block[0] * block[1] * block[2]
        local = lowered.local_bytes * threads
        # One granule more for a size that is not a multiple of it, and one to spare.
        history, self.replaced = empty_history((shared_bytes >> shared_granule) + 2)
        # In a cluster the shared memory of all blocks is one window, so that an address tells the block that owns it.
        # Windows are aligned, as on a GPU: CUTLASS converts null pointers to shared addresses, and asserts that these
        # are multiples of what a swizzle needs.
        shared = aligned(shared_bytes, WINDOW_ALIGNMENT) if window is None else window[rank << RANK :][:shared_bytes]
        self.point(shared=shared, shared_state=np.empty(shared_bytes + 1, np.uint8))
        self.point(barriers=np.zeros(BARRIERS, BARRIER))
        self.point(local=aligned(local), local_state=np.empty(local + 1, np.uint8), shared_history=history)
        count = -(-threads // LANES)
        stride = lowered.warp_bytes
        self.warps = self._make_warps(block, count, stride)
        self.set(warp_count=count, warp_stride=stride)
        # Records that a kernel cannot use have no memory: a launch of a small kernel would spend most of its time on
        # clearing them.
        uses_wgmma = any(check.function == "wgmma_operand" for check in lowered.checks)
        self.point(
            operand_reads=np.zeros(count * READS * uses_wgmma, READ), products=aligned(PRODUCTS_BYTES * uses_wgmma)
        )
        uses_cp_async = any(check.function == "copy_async" for check in lowered.checks)
        clocks = {name: np.zeros((WARPS, WARPS), np.int64) for name in ("vc_released", "vc_observed")}
        known = np.zeros((size, WARPS, WARPS), np.int64)
        self.point(**clocks, vector_clock=known, copies=np.zeros(count * COPIES * uses_cp_async, COPY))
        uses_proxy_fences = any(check.function == "fence_proxy" for check in lowered.checks)
        words = (FENCE_HEADER_BYTES >> 3) + WARPS * size
        self.point(fence_ring=np.zeros((count * uses_proxy_fences, FENCES, words), np.int64))
        self._point_tensor_memory(lowered, count, size)
        self.set(window=self.get("shared") - (rank << RANK))
        has_mbarriers = any(check.function == "mbarrier_init" for check in lowered.checks)
        if has_mbarriers:
            self.point(mbarriers=np.zeros(MBARRIERS, MBARRIER))
        self.point(barrier_clocks=np.zeros((1 + MBARRIERS * has_mbarriers, 2, size, WARPS), np.int64))
        self.set_cluster([self])

    def _point_tensor_memory(self, lowered: Lowered, warp_count: int, size: int) -> None:
        """Allocate tensor memory, and what is remembered of it, if the kernel allocates any."""
        uses_tensor_memory = any(check.function == "tensor_alloc" for check in lowered.checks)
        if not uses_tensor_memory:
            return
        self.point(
            tensor_memory=aligned(MEMORY_BYTES),
            tensor_cells=np.zeros(CELLS, CELL),
            tensor_clock=np.zeros((size, WARPS, WARPS), np.int64),
            tensor_accesses=np.zeros(warp_count * ACCESSES, TENSOR_ACCESS),
            tensor_allocations=np.zeros(SLICES, np.int64),
            tensor_jobs=np.zeros(JOBS, JOB),
        )

    def set_cluster(self, cluster: Sequence[Cta]) -> None:
        """Set the blocks of its cluster, by rank."""
        self.cluster = list(cluster)
        self.point(peers=np.array([cta.address for cta in cluster], np.int64))

    def _make_warps(self, block: Dim, count: int, stride: int) -> npt.NDArray[np.void]:
        self.point(warps=aligned(count * stride))
        warps = np.ndarray(count, _strided(WARP, stride), self.arrays["warps"].data)
        warps["tid"], warps["threads"] = _threads_of_warps(block)
        warps["index"] = range(count)
        return warps

    def coordinates(self) -> Dim:
        """Return the block's coordinates in the grid."""
        return self.get("ctaid_x"), self.get("ctaid_y"), self.get("ctaid_z")

    def thread(self, warp: int, lane: int) -> Dim:
        """Return a thread's coordinates in the block."""
        x, y, z = (int(n) for n in self.warps[warp]["tid"][:, lane])
        return x, y, z


@lru_cache(maxsize=64)
def _threads_of_warps(block: Dim) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return for each warp of a block the coordinates of its threads, and as bits which threads it has."""
    x, y, z = block
    count = -(-x * y * z // LANES)
    thread = np.arange(count * LANES)
    coordinates = np.stack([thread % x, thread // x % y, thread // (x * y)]).reshape(3, count, LANES)
    exists = (thread < x * y * z).reshape(count, LANES)
    return coordinates.swapaxes(0, 1), (exists * (1 << np.arange(LANES))).sum(axis=1)


@cache
def _strided(record: np.dtype[np.void], size: int) -> np.dtype[np.void]:
    """Return the record's dtype padded to ``size`` bytes."""
    fields = record.fields
    assert fields is not None
    offsets = [field_offset(record, name) for name in fields]
    formats = [kind[0] for kind in fields.values()]
    return np.dtype({"names": list(fields), "formats": formats, "offsets": offsets, "itemsize": size})


def cluster_of(size: int, lowered: Lowered, block: Dim, shared_bytes: int, shared_granule: int) -> list[Cta]:
    """Return the records for the blocks of a cluster, or for one block."""
    window = span(size << RANK) if size > 1 else None
    cluster = [Cta(lowered, block, shared_bytes, shared_granule, size, rank, window) for rank in range(size)]
    for cta in cluster:
        cta.set_cluster(cluster)
    return cluster
