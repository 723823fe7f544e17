"""Repair tiles: four GEMMs that somebody else wrote, each with a fault.

run(kernel, a, b) launches the named kernel in w08d_repair_tiles.cu, and returns a @ b.

Repair each of the four kernels with as few changes as possible, and name the kind of its fault in CAUSES. The kind is
the name of a warpcheck exception, such as "OutOfBounds", or "WrongValues" if the machine reports no fault but the
values are wrong. `kp check` lists all names if one is missing. `kp check repair_tiles` runs all kernels and reports on
the first that fails. The PTX machine grades this exercise on a computer with a GPU, too, because most of these kernels
return the right product on a GPU in nearly every run.

The grader checks the values, and that the machine finds no fault in any order of warps and blocks. It counts the
statements that the repair changes: at most 1 in tile, 1 in ring, 2 in tail, 1 in edge, and none outside of the kernels
except an #include. It also checks CAUSES. A moved statement counts as two changes. Comments, line breaks, and
CAUSES do not count.
"""

import torch

from kernelpath.lanes import cuda

TILE = 16

# Replace each "TODO" with the kind of the kernel's fault.
CAUSES = {
    "tile": "TODO",
    "ring": "TODO",
    "tail": "TODO",
    "edge": "TODO",
}


def run(kernel: str, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    (m, k), n = a.shape, b.shape[1]
    out = a.new_empty(m, n)
    grid = (-(-n // TILE), -(-m // TILE))
    cuda.kernel("w08d_repair_tiles.cu", kernel)[grid, (TILE, TILE)](a, b, out, m, n, k)
    return out
