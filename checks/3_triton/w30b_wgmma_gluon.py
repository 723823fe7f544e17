"""GEMM in Gluon on Hopper: TMA, mbarriers, and asynchronous wgmma.

Week 30. out = a @ b.T for bfloat16 matrices a (m x k) and b (n x k), k a multiple of 8, with float32 sums.
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
    min_speedup=0.63,  # of cuBLAS, as wgmma_gemm of week 21; on an H200 the reference has 0.96, mma.sync 0.61
    requires=(9, 0),
    specific=True,  # wgmma
    arch="sm_90a",
    tensor_cores=True,
    overlap=0.5,  # as wgmma_gemm of week 21: a program that waits for each k-tile has 0%
    traffic=Traffic(bytes=6.0, edges=None, bulk=0.5),
)
