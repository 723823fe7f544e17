"""Matrix addition in Triton: two-dimensional blocks.

Week 2. out = x + y for float32 matrices whose rows are contiguous, with any row stride.
"""

import torch

from kernelpath.course.problems import matrix_add
from kernelpath.course.spec import Exercise, Traffic

EXERCISE = Exercise(
    entry="matrix_add",
    problem=matrix_add.PROBLEM,
    # Tiles are 128 columns wide, not 32; strides of 528 and 544 are multiples of 16, which Triton looks for.
    cases=(
        {"rows": 1, "columns": 1, "pad": 0},
        {"rows": 7, "columns": 127, "pad": 0},
        {"rows": 8, "columns": 128, "pad": 3},
        {"rows": 8, "columns": 128, "pad": 16},
        {"rows": 9, "columns": 129, "pad": 5},
        {"rows": 127, "columns": 509, "pad": 0},
        {"rows": 256, "columns": 512, "pad": 16},
    ),
    bench={"rows": 8192, "columns": 8192, "pad": 0},  # 256 MiB per matrix, 13 times the L2 of an H200 in all
    baseline=torch.add,
    min_speedup=0.7,
    traffic=Traffic(sectors=1.3, bytes=1.3, edges=None),
    any_size=False,  # program_id has 32 bits, and so have the offsets of every first kernel; week 10 widens them
)
