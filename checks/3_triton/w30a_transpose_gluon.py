"""Transpose in Gluon: three layouts, two in registers and one in shared memory.

Week 30. out[j, i] = x[i, j] for a contiguous float32 or bfloat16 matrix of any shape; out is contiguous too.
"""

from kernelpath.course.problems import transpose
from kernelpath.course.spec import Exercise, Traffic

EXERCISE = Exercise(
    entry="transpose",
    problem=transpose.PROBLEM,
    bench={"rows": 8192, "columns": 8192, "dtype": "float32"},  # 512 MiB in and out, 9 times the L2 of an H200
    sweep=(
        {"rows": 8192, "columns": 8192, "dtype": "bfloat16"},
        {"rows": 65_536, "columns": 1024, "dtype": "float32"},
        {"rows": 8191, "columns": 8193, "dtype": "float32"},
    ),
    baseline=lambda x: x.t().contiguous(),
    min_speedup=2.3,  # as transpose in CUDA C++ (week 3) and in CuTe (week 18); on an H200 the reference has 3.32
    requires=(8, 0),
    traffic=Traffic(sectors=1.1, bank_conflicts=0.5, bytes=1.1),
)
