"""Vector copy: a thread-value layout and 16-byte accesses.

Week 18. A copy of a contiguous float32 or bfloat16 vector of any length, which may begin anywhere in its storage.
"""

import torch

from kernelpath.course.problems import vector_copy
from kernelpath.course.spec import Exercise, Traffic

EXERCISE = Exercise(
    entry="vector_copy",
    problem=vector_copy.PROBLEM,
    bench={"n": 1 << 28, "offset": 0, "dtype": "float32"},  # 1 GiB in and 1 GiB out
    baseline=torch.clone,
    min_speedup=0.7,
    requires=(8, 0),  # the DSL compiles for nothing older
    traffic=Traffic(sectors=1.05, bytes=1.05),
)
