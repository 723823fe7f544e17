"""Tensor cores: fragments, ldmatrix, mma.sync, and a swizzle.

Week 8. out = a @ b for contiguous bfloat16 or float16 matrices a (m x k) and b (k x n) of any size, with float32 sums.
"""

import torch

from kernelpath.course import sweeps
from kernelpath.course.problems import matmul_half
from kernelpath.course.spec import Exercise, Traffic
from warpcheck.frontends import cuda

KERNELS = {
    dtype: cuda.kernel("w08c_tensor_cores.cu", f"matmul<{name}>")
    for dtype, name in ((torch.bfloat16, "__nv_bfloat16"), (torch.float16, "__half"))
}


def a_tile_per_warp(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Tensor cores by wmma, of which each warp uses every value that it loads 16 times."""
    (m, k), n = a.shape, b.shape[1]
    out = a.new_empty(m, n)
    KERNELS[a.dtype][((n + 31) // 32, (m + 31) // 32), 128](a, b, out, m, n, k)
    return out


EXERCISE = Exercise(
    entry="matmul",
    problem=matmul_half.PROBLEM,
    bench={"m": 4096, "n": 4096, "k": 4096, "dtype": "bfloat16"},
    sweep=tuple({**case, "dtype": "bfloat16"} for case in sweeps.products()),
    baseline=a_tile_per_warp,
    min_speedup=10.0,  # on an H200 wmma with shared tiles reaches 9, mma.sync with padded rows 15, the reference 27
    requires=(8, 0),  # cp.async
    tensor_cores=True,
    # At 256 x 256 x 256 tiles of 64 ask for 3 times the compulsory bytes, tiles of 32 for 5.7 times. Pairs of sums that
    # are stored from registers fill half a sector each. A cp.async of 16 bytes takes 4 wavefronts, and 8 where rows of
    # 32 elements are padded by 8; ldmatrix takes 32 where rows of 64 are neither padded nor swizzled.
    traffic=Traffic(sectors=2.0, bank_conflicts=4.0, bytes=3.5, edges=0.5),
)
