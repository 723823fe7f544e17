"""Divergence: distribute uneven work so that lanes stay busy.

Week 6. Oscillators that are followed for 0 to 64 time steps each, mixed, sorted, all alike, or nearly all short.
"""

import torch

from kernelpath.course.problems import divergence
from kernelpath.course.spec import Exercise
from warpcheck.frontends import cuda

KERNEL = cuda.kernel("w06c_divergence.cu", "oscillate")


def thread_for_each(x: torch.Tensor, steps: torch.Tensor) -> torch.Tensor:
    """A warp takes as many steps as the slowest of its 32 oscillators."""
    out = torch.empty_like(x)
    n = x.numel()
    KERNEL[(n + 255) // 256, 256](x, steps, out, n)
    return out


EXERCISE = Exercise(
    entry="oscillate",
    problem=divergence.PROBLEM,
    bench={"n": 1 << 25, "distribution": "mixed"},  # 288 MiB: 6 times its L2
    sweep=tuple({"n": n, "distribution": kind} for n in (1 << 22, 1 << 25) for kind in divergence.DISTRIBUTIONS),
    baseline=thread_for_each,
    min_speedup=1.5,  # an H200: the reference 3.1, a plain counting sort 2.9, refilled lanes 1.9, a queue per class 1.6
    # A thread for each has 8.7 on mixed steps and 3.6 on rare ones; refilled lanes 18 and more, sorted ones 29.
    active_lanes=16.0,
)
