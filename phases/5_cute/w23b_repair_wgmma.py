"""Repair wgmma: four kernels with asynchronous MMAs that somebody else wrote, each with a fault.

run(kernel, a, b) launches the kernel with that name in w23b_repair_wgmma.cu, and returns a @ b^T as float32. a and b
are float16 matrices of shape (64, k) that are aligned to 16 bytes, and k is a multiple of 64. The kernels are CUDA C++,
and write out the instructions behind warpgroup.fence, commit_group and wait_group of the CuTe DSL.

Repair each kernel with as few changes as possible, and name the kind of its fault in CAUSES. The kind is the name of an
exception of warpcheck, such as "OutOfBounds", or "WrongValues" if the machine reports no fault and the values are
wrong. `kp check` lists all names if one is missing. `kp check repair_wgmma` runs all kernels and reports on the first
that fails. The PTX machine grades this exercise even on a computer with a GPU.

The grader checks the values, and that the machine finds no fault in any order of warps. It counts changed statements,
and allows at most 1 in proxy, 1 in swizzle, 1 in refill, 2 in promote, and none outside of the kernels except an
#include. It also checks CAUSES. A moved statement counts as two changes. Comments, line breaks and CAUSES do not count.
"""

import torch

from kernelpath.lanes import cuda

TILE = 64
THREADS = 128

# Replace each "TODO" with the kind of the kernel's fault.
CAUSES = {
    "proxy": "TODO",
    "swizzle": "TODO",
    "refill": "TODO",
    "promote": "TODO",
}


def run(kernel: str, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    out = a.new_empty(TILE, TILE, dtype=torch.float32)
    cuda.kernel("w23b_repair_wgmma.cu", kernel)[1, THREADS](a, b, out, a.shape[1])
    return out
