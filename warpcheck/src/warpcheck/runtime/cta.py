"""A resident thread block: its record, its warps, its shared and local memory, and the states of their bytes."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, lru_cache

import numpy as np
import numpy.typing as npt

from warpcheck.layout import COPIES, FENCES, LANES, READS
from warpcheck.lowered_kernel import Lowered
from warpcheck.runtime.address_spaces import RANK
from warpcheck.runtime.arrays import Dim, Records, span
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

__all__ = ["Cta", "cluster_of", "thread_coordinates"]


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
        self._block = block
        threads = block[0] * block[1] * block[2]
        local = lowered.local_bytes * threads
        # One granule more for a size that is not a multiple of it, and one to spare.
        history, self.replaced = empty_history((shared_bytes >> shared_granule) + 2)
        self.point(shared_history=history)
        count = -(-threads // LANES)
        stride = lowered.warp_bytes
        # Records that a kernel cannot use have no memory: a launch of a small kernel would spend most of its time on
        # clearing them.
        checks = lowered.functions_checked
        has_mbarriers = "mbarrier_init" in checks
        fence_words = (FENCE_HEADER_BYTES >> 3) + WARPS * size
        # Shared memory comes first, because its window is aligned, as on a GPU: CUTLASS converts null pointers to
        # shared addresses, and asserts that these are multiples of what a swizzle needs.
        self.create(
            shared=(np.uint8, shared_bytes * (window is None)),
            shared_state=(np.uint8, shared_bytes + 1),
            local=(np.uint8, local),
            local_state=(np.uint8, local + 1),
            warps=(np.uint8, count * stride),
            barriers=(BARRIER, BARRIERS),
            operand_reads=(READ, count * READS * ("wgmma_operand" in checks)),
            products=(np.uint8, PRODUCTS_BYTES * ("wgmma_operand" in checks)),
            copies=(COPY, count * COPIES * ("copy_async" in checks)),
            vc_released=(np.int64, WARPS, WARPS),
            vc_observed=(np.int64, WARPS, WARPS),
            vector_clock=(np.int64, size, WARPS, WARPS),
            fence_ring=(np.int64, count * ("fence_proxy" in checks), FENCES, fence_words),
            barrier_clocks=(np.int64, 1 + MBARRIERS * has_mbarriers, 2, size, WARPS),
        )
        if has_mbarriers:  # the scheduler clears them if the address is not 0
            self.create(mbarriers=(MBARRIER, MBARRIERS))
        if window is not None:
            # In a cluster the shared memory of all blocks is one window, so that an address tells the block that owns
            # it.
            self.point(shared=window[rank << RANK :][:shared_bytes])
        self.warps = self._make_warps(block, count, stride)
        self.set(warp_count=count, warp_stride=stride, window=self.get("shared") - (rank << RANK))
        if "tensor_alloc" in checks:
            self._create_tensor_memory(count, size)
        self.set_cluster([self])

    def _create_tensor_memory(self, warp_count: int, size: int) -> None:
        """Create tensor memory, and what is remembered of it."""
        self.create(
            tensor_memory=(np.uint8, MEMORY_BYTES),
            tensor_cells=(CELL, CELLS),
            tensor_clock=(np.int64, size, WARPS, WARPS),
            relaxed_clock=(np.int64, size, WARPS, WARPS),
            tensor_accesses=(TENSOR_ACCESS, warp_count * ACCESSES),
            tensor_allocations=(np.int64, SLICES),
            tensor_jobs=(JOB, JOBS),
        )

    def set_cluster(self, cluster: Sequence[Cta]) -> None:
        """Set the blocks of its cluster, by rank."""
        # A block that is alone does not keep itself. Records that refer to themselves would be freed by the garbage
        # collector, and not when their launch ends.
        self._cluster = list(cluster) if len(cluster) > 1 else []
        self.point(peers=np.array([cta.address for cta in cluster], np.int64))

    @property
    def cluster(self) -> list[Cta]:
        """The blocks of its cluster, by rank."""
        return self._cluster or [self]

    def _make_warps(self, block: Dim, count: int, stride: int) -> npt.NDArray[np.void]:
        warps = np.ndarray(count, _strided(WARP, stride), self.arrays["warps"].data)
        warps["tid"], warps["threads"] = _threads_of_warps(block)
        warps["index"] = range(count)
        return warps

    def coordinates(self) -> Dim:
        """Return the block's coordinates in the grid."""
        return self.get("ctaid_x"), self.get("ctaid_y"), self.get("ctaid_z")

    def thread(self, warp: int, lane: int) -> Dim:
        """Return a thread's coordinates in the block."""
        return thread_coordinates(self._block, warp * LANES + lane)


def thread_coordinates(block: Dim, thread: int) -> Dim:
    """Return the coordinates of a thread by its number, x fastest, in a block of these extents."""
    width, height, _ = block
    return thread % width, thread // width % height, thread // (width * height)


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
    if size > 1:
        for cta in cluster:
            cta.set_cluster(cluster)
    return cluster
