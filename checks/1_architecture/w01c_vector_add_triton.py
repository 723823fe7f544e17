"""Vector addition in Triton: each program handles a block.

Week 1. out = x + y for float32 vectors of any length, contiguous but not always aligned to 16 bytes.
"""

import torch

from kernelpath.course.problems import vector_add
from kernelpath.course.spec import Exercise, Traffic

EXERCISE = Exercise(
    entry="vector_add",
    problem=vector_add.PROBLEM,
    # A program takes 1024 elements where a block of threads takes 256, so other sizes lie beside a tile.
    cases=(
        {"n": 1, "offset": 0},
        {"n": 1023, "offset": 0},
        {"n": 1024, "offset": 0},
        {"n": 1025, "offset": 0},
        {"n": 10_007, "offset": 1},
        {"n": 131_072, "offset": 0},
    ),
    bench={"n": 1 << 26, "offset": 0},  # 256 MiB per vector, 13 times the L2 of an H200 in all
    baseline=torch.add,
    min_speedup=0.7,
    traffic=Traffic(sectors=1.3, bytes=1.3, edges=None),
    any_size=False,  # program_id has 32 bits, and so have the offsets of every first kernel; week 10 widens them
)
