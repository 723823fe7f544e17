"""A resident thread block: its record, its warps, its shared and local memory and what is known of them."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from kernelpath.simt.layout import COPIES, LANES, READS
from kernelpath.simt.lowered import Lowered
from kernelpath.simt.run.arrays import Dim, Records, aligned
from kernelpath.simt.run.races import ENTRY, WARPS
from kernelpath.simt.run.records import COPY, CTA, READ, WARP, field_offset
from kernelpath.simt.run.warpgroup import ROOM

__all__ = ["Cta"]


class Cta(Records):
    """The place of one thread block, which blocks of the grid take one after another.

    ``warps`` has their records; ``known`` is (32, 32), see ``races``; ``arrivals`` the warps that have arrived at a
    barrier without waiting: for each barrier, warp and time.
    """

    def __init__(self, lowered: Lowered, block: Dim, shared_bytes: int, shared_granule: int) -> None:
        super().__init__(CTA)
        self.arrivals: dict[int, dict[int, int]] = {}
        threads = block[0] * block[1] * block[2]
        local = lowered.local_bytes * threads
        history = np.zeros(((shared_bytes >> shared_granule) + 2) * ENTRY, np.uint8)
        self.point(shared=aligned(shared_bytes), shared_state=np.empty(shared_bytes + 1, np.uint8))
        self.point(local=aligned(local), local_state=np.empty(local + 1, np.uint8), shared_history=history)
        count, stride = -(-threads // LANES), lowered.warp_bytes
        self.warps = self._make_warps(block, threads, count, stride)
        self.set(warp_count=count, warp_stride=stride)
        multiplies = any(check.function == "wgmma_operand" for check in lowered.checks)
        self.point(reads=np.zeros(count * READS * multiplies, READ), products=aligned(ROOM * multiplies))
        copies = any(check.function == "copy_async" for check in lowered.checks)
        self.known = np.zeros((WARPS, WARPS), np.int64)
        order = {name: np.zeros((WARPS, WARPS), np.int64) for name in ("released", "seen")}
        self.point(**order, known=self.known, copies=np.zeros(count * COPIES * copies, COPY))

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
