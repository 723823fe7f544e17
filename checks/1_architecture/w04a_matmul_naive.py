"""Naive matmul: one thread per output, with coalesced loads.

Week 4. out = a @ b for contiguous float32 matrices a (m x k) and b (k x n) of any size, in strict float32.
"""

import torch

from kernelpath.course.problems import matmul
from kernelpath.course.spec import Exercise, Traffic
from warpcheck.frontends import cuda

LANES_DOWN = cuda.kernel("w04a_matmul_naive.cu", "matmul")


def lanes_down_a_column(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """The same kernel with rows and columns exchanged: the lanes of a warp are in 32 rows of a and of out."""
    (m, k), n = a.shape, b.shape[1]
    out = a.new_empty(m, n)
    LANES_DOWN[((m + 31) // 32, (n + 7) // 8), (32, 8)](a, b, out, m, n, k)
    return out


EXERCISE = Exercise(
    entry="matmul",
    problem=matmul.PROBLEM,
    limits=({"m": 65_537, "n": 1, "k": 1}, {"m": 1, "n": 65_537, "k": 1}, {"m": 8, "n": 8, "k": 4_099}),
    gpu_limits=({"m": 500_000, "n": 1, "k": 1},),  # the most that the stub allows
    bench={"m": 2048, "n": 2048, "k": 2048},
    baseline=lanes_down_a_column,
    min_speedup=4.0,  # 14.5 on an H200
    traffic=Traffic(sectors=1.3),
)
