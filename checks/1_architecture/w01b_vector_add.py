"""Vector addition: one element per thread, then more bytes in flight.

Week 1. out = x + y for float32 vectors of any length, contiguous but not always aligned to 16 bytes.
"""

import torch

from kernelpath.course.problems import vector_add
from kernelpath.course.spec import Exercise, Traffic

EXERCISE = Exercise(
    entry="vector_add",
    problem=vector_add.PROBLEM,
    bench={"n": 1 << 26, "offset": 0},  # 256 MiB per vector, 13 times the L2 of an H200 in all
    baseline=torch.add,
    min_speedup=0.7,
    traffic=Traffic(sectors=1.3, bytes=1.3),  # 1.25 is a warp of 4-byte accesses that straddles a sector
)
