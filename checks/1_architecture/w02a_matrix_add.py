"""Matrix addition: two indices, two strides.

Week 2. out = x + y for float32 matrices whose rows are contiguous, with any row stride.
"""

import torch

from kernelpath.course.problems import matrix_add
from kernelpath.course.spec import Exercise, Traffic

EXERCISE = Exercise(
    entry="matrix_add",
    problem=matrix_add.PROBLEM,
    bench={"rows": 8192, "columns": 8192, "pad": 0},  # 256 MiB per matrix, 13 times the L2 of an H200 in all
    baseline=torch.add,
    min_speedup=0.7,
    traffic=Traffic(sectors=1.3, bytes=1.3),
)
