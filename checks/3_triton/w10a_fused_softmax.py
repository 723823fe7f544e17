"""Fused softmax: one block per row, read and written once.

Week 10. out[i, :] = exp(x[i, :] - max) / sum for a contiguous float32 or bfloat16 matrix, computed in float32.
"""

from kernelpath.course import sweeps
from kernelpath.course.problems import softmax
from kernelpath.course.spec import Exercise, Traffic

EXERCISE = Exercise(
    entry="fused_softmax",
    problem=softmax.PROBLEM,
    # A block of values has a power of two of columns, 128 here. Rows beyond 32,768 are split, and 100,000 columns leave
    # an eighth of 131,072 with nothing. 2500 rows are more than one for each program that an H200 holds.
    cases=(
        {"rows": 1, "columns": 1, "dtype": "float32"},
        {"rows": 5, "columns": 127, "dtype": "bfloat16"},
        {"rows": 5, "columns": 128, "dtype": "bfloat16"},
        {"rows": 5, "columns": 129, "dtype": "bfloat16"},
        {"rows": 33, "columns": 1009, "dtype": "float32"},
        {"rows": 9, "columns": 20_480, "dtype": "bfloat16"},
        {"rows": 2500, "columns": 30, "dtype": "float32"},
        {"rows": 67, "columns": 2048, "dtype": "float32"},
    ),
    limits=(
        {"rows": 3, "columns": 100_000, "dtype": "bfloat16"},
        {"rows": 1, "columns": 131_072, "dtype": "bfloat16"},
    ),
    bench={"rows": 16_384, "columns": 8192, "dtype": "bfloat16"},  # 512 MiB in and out, 9 times the L2 of an H200
    sweep=sweeps.rows(),
    baseline=softmax.unfused,
    min_speedup=5.0,  # on an H200 the baseline moves 513 GB/s of compulsory bytes, the reference kernel 4089
    # 9 rows of 20,480 columns are large: what fits into registers is read once. 2500 rows of 30 are not, since warps
    # that a row does not fill load it again.
    traffic=Traffic(sectors=1.3, bank_conflicts=1.0, bytes=1.2, large=0.6, edges=None),
)
