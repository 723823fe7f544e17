"""Repair persistent kernels: four kernels of several warp groups or blocks that somebody else wrote, each with a fault.

run(kernel, x) launches the kernel with that name in w22d_repair_persistent.cu, and returns the sum over the second axis
of x, a float32 tensor of shape (tiles, steps, 128) that is aligned to 16 bytes. steps stands for the k-tiles of a GEMM,
and a sum for its accumulators. The kernels have the structure of this week's kernels, in CUDA C++.

Repair each kernel with as few changes as possible, and name the kind of its fault in CAUSES. The kind is the name of an
exception of warpcheck, such as "OutOfBounds", or "WrongValues" if the machine reports no fault and the values are
wrong. `kp check` lists all names if one is missing. `kp check repair_persistent` runs all kernels and reports on the
first that fails. The PTX machine grades this exercise on a computer with a GPU, too, because a GPU hangs with some of
these kernels, and returns the right sums with others.

The grader checks the values, and that the machine finds no fault in any order of warps and blocks. It counts the
statements that the repair changes, at most 2 in persistent, 1 in epilogue, 1 in pingpong, 1 in cluster, and no
statement outside of the kernels but an #include, and it checks CAUSES. A statement that moves counts twice. Comments
and the layout of lines do not count, and neither does CAUSES.
"""

import torch

from kernelpath.lanes import cuda

COLS = 128
BLOCKS = 2  # of a persistent kernel

# Each "TODO" is for you to replace by the kind of the fault that the kernel has.
CAUSES = {
    "persistent": "TODO",
    "epilogue": "TODO",
    "pingpong": "TODO",
    "cluster": "TODO",
}


def run(kernel: str, x: torch.Tensor) -> torch.Tensor:
    tiles, steps, _ = x.shape
    out = x.new_empty(tiles, COLS)
    grid = {"persistent": BLOCKS, "epilogue": BLOCKS, "pingpong": 1, "cluster": 2 * tiles}[kernel]
    threads = {"persistent": COLS + 32, "epilogue": COLS, "pingpong": 2 * COLS, "cluster": COLS}[kernel]
    cuda.kernel("w22d_repair_persistent.cu", kernel)[grid, threads](x, out, tiles, steps)
    return out
