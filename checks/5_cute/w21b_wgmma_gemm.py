"""Hopper GEMM: wgmma fed by TMA.

Week 21. out = a @ b.T for bfloat16 matrices a (m x k) and b (n x k), k a multiple of 8, with float32 sums.
"""

from kernelpath.course.problems import matmul_k_major
from kernelpath.course.spec import Exercise, Traffic

EXERCISE = Exercise(
    entry="wgmma_gemm",
    problem=matmul_k_major.PROBLEM,
    aligned=True,
    any_size=False,
    bench={"m": 8192, "n": 8192, "k": 8192},
    sweep=matmul_k_major.SWEEP,
    baseline=matmul_k_major.library,
    min_speedup=0.63,  # of cuBLAS on an H200: the reference 1.00, others' styles 0.68 to 0.92, mma.sync 0.61
    requires=(9, 0),
    specific=True,  # wgmma
    arch="sm_90a",
    tensor_cores=True,
    # At 256 x 256 x 256 with k-tiles of 64, the copies of the last of four k-tiles have landed: 75% for the reference
    # and others' styles. A block that waits for each k-tile, as the first kernels of week 21 do, has 0%.
    overlap=0.5,
    # Threads may store what they have summed; at 256 x 256 x 256 that is an eighth of what tiles of 64 move.
    traffic=Traffic(bytes=6.0, edges=None, bulk=0.5),
)
