"""Grouped GEMM for Hopper: tiles that end where a group ends.

Week 27. TMA loads at any row, wgmma, a persistent walk through the groups, and stores that leave the next group alone.
"""

from kernelpath.course.problems import grouped_gemm_sorted
from kernelpath.course.problems.grouped_gemm_sorted import case
from kernelpath.course.spec import Exercise, Traffic

EXERCISE = Exercise(
    entry="grouped_gemm",
    problem=grouped_gemm_sorted.PROBLEM,
    aligned=True,
    any_size=False,
    bench=case("32x512+48x256+16x1024+32x128", 4096, 2048),
    baseline=grouped_gemm_sorted.eager,
    min_speedup=2.0,  # of a loop over experts with cuBLAS; on an H200 the answer reaches 4.5
    requires=(9, 0),
    specific=True,  # wgmma
    arch="sm_90a",
    tensor_cores=True,
    multiprocessors=4,  # so that blocks have tiles of several experts
    # In the largest case, the answer requests 1.4 times the compulsory bytes, tiles of 128 x 128 2.1 times,
    # and a kernel that reads the weights of idle experts 3.7 times.
    traffic=Traffic(bytes=2.5, edges=None, bulk=0.5),
)
