"""GEMM on Blackwell: one thread issues tcgen05.mma, and the accumulator is in tensor memory.

Week 31. out = a @ b.T for bfloat16 matrices a (m x k) and b (n x k), k a multiple of 8, with float32 sums.
"""

from kernelpath.course.problems import matmul_k_major
from kernelpath.course.spec import Exercise, Traffic

EXERCISE = Exercise(
    entry="tcgen05_gemm",
    problem=matmul_k_major.PROBLEM,
    aligned=True,
    any_size=False,
    bench={"m": 8192, "n": 8192, "k": 8192},
    sweep=matmul_k_major.SWEEP,
    baseline=matmul_k_major.library,
    min_speedup=1.0,  # of cuBLAS; no B200 has timed it
    requires=(10, 0),
    specific=True,  # tcgen05
    arch="sm_100a",
    tensor_cores=True,
    multiprocessors=4,  # so that persistent pairs of blocks have several tiles
    overlap=0.5,  # as wgmma_gemm of week 21: a block that waits for each k-tile has 0%
    # At 256 x 256 x 256 the reference asks for 1.3 times the compulsory bytes, others' styles for 2.0 and 2.7 times.
    traffic=Traffic(bytes=6.0, edges=None, bulk=0.5),
)
