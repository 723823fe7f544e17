"""NVFP4 GEMM on Blackwell: 4-bit numbers, and their scales in tensor memory.

Week 31. out = a @ b.T for 4-bit matrices with a scale for every 16 numbers along k, float32 sums, rounded once to
bfloat16.
"""

from kernelpath.course import sweeps
from kernelpath.course.problems import nvfp4_gemm
from kernelpath.course.spec import Exercise, Traffic

EXERCISE = Exercise(
    entry="nvfp4_gemm",
    problem=nvfp4_gemm.PROBLEM,
    aligned=True,
    any_size=False,
    bench=nvfp4_gemm.case(8192, 8192, 8192),
    sweep=tuple(nvfp4_gemm.case(**size) for size in sweeps.products() if size["n"] % 16 + size["k"] % 64 == 0),
    baseline=nvfp4_gemm.library,
    min_speedup=1.0,  # of cuBLAS; no B200 has timed it
    requires=(10, 0),
    specific=True,  # tcgen05
    arch="sm_100a",
    tensor_cores=True,
    multiprocessors=4,
    traffic=Traffic(bytes=6.0, edges=None),
)
