"""A resident thread block: its record, its warps, its shared and local memory, and the states of their bytes."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, cached_property, lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from warpcheck.layout import COPIES, FENCES, LANES, READS, Space
from warpcheck.lowered_kernel import Lowered
from warpcheck.runtime.address_spaces import RANK
from warpcheck.runtime.arrays import RECORD, Dim, Place, RecordLayout, Records, span
from warpcheck.runtime.buffers import SmallHistory, empty_history
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

__all__ = ["Cta", "CtaLayout", "cluster_of", "thread_coordinates"]

# The fields of a warp's record that tell its threads: the bytes from ``tid`` to ``index``.
WARP_THREADS = slice(field_offset(WARP, "tid"), field_offset(WARP, "index") + 4)


class CtaLayout(RecordLayout):
    """The layout of the records of a thread block.

    Args:
        lowered: The kernel.
        block: The threads of a block along each axis.
        shared_bytes: The bytes of its shared memory.
        cluster_size: The blocks of its cluster.
    """

    def __init__(self, lowered: Lowered, block: Dim, shared_bytes: int, cluster_size: int) -> None:
        self.block = block
        self.cluster_size = cluster_size
        self.shared_bytes = shared_bytes
        self.warp_stride = lowered.warp_bytes
        # One granule more for a size that is not a multiple of it, and one to spare.
        self.granules = (shared_bytes >> lowered.granules[Space.SHARED]) + 2
        threads = block[0] * block[1] * block[2]
        local = lowered.local_bytes * threads
        count = -(-threads // LANES)
        # Records that a kernel cannot use have no memory: a launch of a small kernel would spend most of its time on
        # clearing them.
        checks = lowered.functions_checked
        has_mbarriers = "mbarrier_init" in checks
        fence_words = (FENCE_HEADER_BYTES >> 3) + WARPS * cluster_size
        # Shared memory comes first, because its window is aligned, as on a GPU: CUTLASS converts null pointers to
        # shared addresses, and asserts that these are multiples of what a swizzle needs.
        arrays: dict[str, tuple[Any, ...]] = {
            "shared": (np.uint8, shared_bytes * (cluster_size == 1)),
            "shared_state": (np.uint8, shared_bytes + 1),
            "local": (np.uint8, local),
            "local_state": (np.uint8, local + 1),
            "warps": (np.uint8, count * self.warp_stride),
            "barriers": (BARRIER, BARRIERS),
            "operand_reads": (READ, count * READS * ("wgmma_operand" in checks)),
            "products": (np.uint8, PRODUCTS_BYTES * ("wgmma_operand" in checks)),
            "copies": (COPY, count * COPIES * ("copy_async" in checks)),
            "vc_released": (np.int64, WARPS, WARPS),
            "vc_observed": (np.int64, WARPS, WARPS),
            "vector_clock": (np.int64, cluster_size, WARPS, WARPS),
            "fence_ring": (np.int64, count * ("fence_proxy" in checks), FENCES, fence_words),
            "barrier_clocks": (np.int64, 1 + MBARRIERS * has_mbarriers, 2, cluster_size, WARPS),
            "peers": (np.int64, cluster_size),
        }
        if has_mbarriers:  # the scheduler clears them if the address is not 0
            arrays["mbarriers"] = (MBARRIER, MBARRIERS)
        if "tensor_alloc" in checks:
            arrays |= _tensor_memory(count, cluster_size)
        addresses: dict[str, Place] = {}
        links: dict[Place, Place] = {}
        self.has_history = SmallHistory.suits(self.granules)
        if self.has_history:
            history = SmallHistory("history", self.granules)
            arrays["history"] = history.shape
            addresses["shared_history"] = history.entries
            links |= history.links
        # The only block of a cluster begins its window, and is its own peer.
        if cluster_size == 1:
            addresses["window"] = Place("shared")
            links[Place("peers")] = Place(RECORD)
        super().__init__(CTA, arrays, {"warp_count": count, "warp_stride": self.warp_stride}, addresses, links=links)


def _tensor_memory(warp_count: int, cluster_size: int) -> dict[str, tuple[Any, ...]]:
    """Return the arrays of tensor memory, and of what is remembered of it."""
    return {
        "tensor_memory": (np.uint8, MEMORY_BYTES),
        "tensor_cells": (CELL, CELLS),
        "tensor_clock": (np.int64, cluster_size, WARPS, WARPS),
        "relaxed_clock": (np.int64, cluster_size, WARPS, WARPS),
        "tensor_accesses": (TENSOR_ACCESS, warp_count * ACCESSES),
        "tensor_allocations": (np.int64, SLICES),
        "tensor_jobs": (JOB, JOBS),
    }


class Cta(Records):
    """The records of one thread block, which blocks of the grid use one after another.

    In a cluster of several blocks it belongs to the block of this ``rank``; ``window`` is the shared memory of all of
    them, and ``set_cluster`` makes them known to each other.
    """

    def __init__(self, layout: CtaLayout, rank: int = 0, window: npt.NDArray[np.uint8] | None = None) -> None:
        super().__init__(layout)
        self.rank = rank
        self._block = layout.block
        self._stride = layout.warp_stride
        # A block that is alone does not keep itself. Records that refer to themselves would be freed by the garbage
        # collector, and not when their launch ends.
        self._cluster: list[Cta] = []
        if not layout.has_history:
            history, self.replaced = empty_history(layout.granules)
            self.point(shared_history=history)
        if window is not None:
            # In a cluster the shared memory of all blocks is one window, so that an address tells the block that owns
            # it.
            self.point(shared=window[rank << RANK :][: layout.shared_bytes])
            self.set(window=self.get("shared") - (rank << RANK))
        self.array("warps").reshape(-1, self._stride)[:, WARP_THREADS] = _threads_of_warps(layout.block)

    def set_cluster(self, cluster: Sequence[Cta]) -> None:
        """Set the blocks of its cluster, by rank, of which there are several."""
        self._cluster = list(cluster)
        self.array("peers")[: len(cluster)] = [cta.address for cta in cluster]

    @property
    def cluster(self) -> list[Cta]:
        """The blocks of its cluster, by rank."""
        return self._cluster or [self]

    @cached_property
    def warps(self) -> npt.NDArray[np.void]:
        """The records of its warps."""
        warps = self.array("warps")
        return np.ndarray(warps.size // self._stride, _strided(WARP, self._stride), warps.data)

    @property
    def mbarriers(self) -> npt.NDArray[np.void]:
        """The records of its mbarriers; none if the kernel initializes no mbarrier."""
        return self.array("mbarriers") if self.has_array("mbarriers") else np.empty(0, MBARRIER)

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
def _threads_of_warps(block: Dim) -> npt.NDArray[np.uint8]:
    """Return the fields WARP_THREADS of each warp of a block: the coordinates of its threads, as bits which threads it
    has, and its index.
    """
    x, y, z = block
    count = -(-x * y * z // LANES)
    thread = np.arange(count * LANES)
    coordinates = np.stack([thread % x, thread // x % y, thread // (x * y)]).reshape(3, count, LANES)
    exists = (thread < x * y * z).reshape(count, LANES)
    warps = np.zeros(count, WARP)
    warps["tid"] = coordinates.swapaxes(0, 1)
    warps["threads"] = (exists * (1 << np.arange(LANES))).sum(axis=1)
    warps["index"] = range(count)
    return warps.view(np.uint8).reshape(count, -1)[:, WARP_THREADS].copy()


@cache
def _strided(record: np.dtype[np.void], size: int) -> np.dtype[np.void]:
    """Return the record's dtype padded to ``size`` bytes."""
    fields = record.fields
    assert fields is not None
    offsets = [field_offset(record, name) for name in fields]
    formats = [kind[0] for kind in fields.values()]
    return np.dtype({"names": list(fields), "formats": formats, "offsets": offsets, "itemsize": size})


def cluster_of(layout: CtaLayout) -> list[Cta]:
    """Return the records for the blocks of a cluster, or for one block."""
    if layout.cluster_size == 1:
        return [Cta(layout)]
    window = span(layout.cluster_size << RANK)
    cluster = [Cta(layout, rank, window) for rank in range(layout.cluster_size)]
    for cta in cluster:
        cta.set_cluster(cluster)
    return cluster
