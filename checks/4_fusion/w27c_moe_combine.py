"""Combine: the weighted sum of each token's rows, with the same bits in every run.

Week 27. A gather instead of a scatter: no atomics, every row read once, and choices that an expert had no room for.
"""

from kernelpath.course.problems import moe_combine
from kernelpath.course.problems.moe_combine import case
from kernelpath.course.spec import Exercise, Traffic

EXERCISE = Exercise(
    entry="moe_combine",
    problem=moe_combine.PROBLEM,
    bench=case(16_384, 4096, 8),
    baseline=moe_combine.eager,
    min_speedup=9.0,  # on an H200 the reference reaches 14.6, at 96% of a copy's bandwidth
    # Each program of 256 columns reads rows and weights again, 1.44 times the bytes. Reading y twice takes 1.8 times.
    traffic=Traffic(bytes=1.6, edges=None),
    deterministic=True,
)
