"""Repair persistent kernels: four kernels with several warp groups or blocks, each with a fault.

run(kernel, x) launches the kernel with that name in w22d_repair_persistent.cu, and returns the sum over the second axis
of x, a float32 tensor of shape (tiles, steps, 128) that is aligned to 16 bytes. The steps stand for the k-tiles of a
GEMM, and a sum for its accumulators. The kernels have the structure of this week's kernels, in CUDA C++.

Repair each kernel with as few changes as possible, and name the kind of its fault in CAUSES. The kind is the name of an
exception of warpcheck, such as "OutOfBounds", or "WrongValues" if the machine reports no fault and the values are
wrong. `kp check` lists all names if one is missing. `kp check repair_persistent` runs all kernels and reports on the
first that fails. The PTX machine grades this exercise even on a computer with a GPU, because there some of these
kernels hang, and others return the right sums.

The grader checks the values, and that the machine finds no fault in any order of warps and blocks. It counts changed
statements, and allows at most 2 in persistent, 1 in epilogue, 1 in pingpong, 1 in cluster, and none outside of the
kernels except an #include. It also checks CAUSES. A moved statement counts as two changes. Comments, line breaks and
CAUSES do not count.

The consumers in `persistent` restart the count in each tile, but the producer does not. `epilogue` overwrites the
source of a copy that may still read it. Each warp group in `pingpong` releases itself instead of the other. In
`cluster`, block 1 exits while block 0 may still read its shared memory.
"""

import torch

from kernelpath.lanes import cuda

COLS = 128
BLOCKS = 2  # blocks of a persistent kernel

CAUSES = {
    "persistent": "Uninitialized",
    "epilogue": "Race",
    "pingpong": "BarrierDivergence",
    "cluster": "OutOfBounds",
}


def run(kernel: str, x: torch.Tensor) -> torch.Tensor:
    tiles, steps, _ = x.shape
    out = x.new_empty(tiles, COLS)
    grid = {"persistent": BLOCKS, "epilogue": BLOCKS, "pingpong": 1, "cluster": 2 * tiles}[kernel]
    threads = {"persistent": COLS + 32, "epilogue": COLS, "pingpong": 2 * COLS, "cluster": COLS}[kernel]
    cuda.kernel("w22d_repair_persistent.cu", kernel)[grid, threads](x, out, tiles, steps)
    return out
