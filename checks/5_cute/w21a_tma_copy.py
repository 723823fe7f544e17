"""TMA copy: boxes, a ring of stages, and mbarriers.

Week 21. A copy of a float32 or bfloat16 matrix whose rows begin at multiples of 16 bytes, by bulk tensor copies alone.
"""

import torch

from kernelpath.course.problems import matrix_copy
from kernelpath.course.spec import Exercise, Traffic

EXERCISE = Exercise(
    entry="tma_copy",
    problem=matrix_copy.PROBLEM,
    aligned=True,
    any_size=False,
    bench={"rows": 16_384, "columns": 16_384, "beside": 0, "dtype": "float32"},  # 1 GiB in and 1 GiB out
    sweep=(
        {"rows": 16_384, "columns": 16_384, "beside": 0, "dtype": "bfloat16"},
        {"rows": 16_000, "columns": 12_000, "beside": 800, "dtype": "float32"},
        {"rows": 1_000_003, "columns": 64, "beside": 0, "dtype": "bfloat16"},
        {"rows": 99, "columns": 2_000_000, "beside": 0, "dtype": "float32"},
    ),
    baseline=lambda x: x.clone(memory_format=torch.contiguous_format),
    min_speedup=0.8,  # of PyTorch's copy on an H200: the reference 0.98, others' styles 0.92 to 0.99
    requires=(9, 0),  # TMA
    arch="sm_90a",
    traffic=Traffic(bytes=1.05, bulk=0.95),
)
