"""Reduction: sum a vector in one launch.

Week 6. out[0] = x[0] + x[1] + … for a float32 vector of any length, with the same bits in every call.
"""

import torch

from kernelpath.course import sweeps
from kernelpath.course.problems import vector_sum
from kernelpath.course.spec import Exercise, Traffic
from warpcheck.frontends import cuda

ATOMICS = cuda.kernel("w06a_reduction.cu", "vector_sum")


def atomic_per_warp(x: torch.Tensor) -> torch.Tensor:
    """One element per thread, one atomicAdd per warp."""
    out = x.new_zeros(1)
    ATOMICS[(x.numel() + 255) // 256, 256](x, out, x.numel())
    return out


EXERCISE = Exercise(
    entry="vector_sum",
    problem=vector_sum.PROBLEM,
    bench={"n": 1 << 28},  # 1 GiB, 18 times the L2 of an H200
    sweep=sweeps.vectors(),
    baseline=atomic_per_warp,
    min_speedup=6.0,  # an H200: the reference 59, tree or shuffles with as many blocks as SMs 10, with 64 blocks 9
    traffic=Traffic(sectors=1.3, bank_conflicts=1.0, bytes=1.1),
    deterministic=True,
)
