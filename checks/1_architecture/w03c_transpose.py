"""Transpose: coalesce both sides through shared memory.

Week 3. out[j, i] = x[i, j] for a contiguous float32 or bfloat16 matrix of any shape; out is contiguous too.
"""

from kernelpath.course.problems import transpose
from kernelpath.course.spec import Exercise, Traffic

EXERCISE = Exercise(
    entry="transpose",
    problem=transpose.PROBLEM,
    bench={"rows": 8192, "columns": 8192, "dtype": "float32"},  # 512 MiB in and out, 9 times the L2 of an H200
    baseline=lambda x: x.t().contiguous(),
    min_speedup=2.3,  # on an H200 the baseline moves 1151 GB/s, a copy 4282
    traffic=Traffic(sectors=1.1, bank_conflicts=0.5, bytes=1.1),
)
