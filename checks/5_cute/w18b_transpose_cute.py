"""Transpose in CuTe: register squares and a swizzled tile.

Week 18. out[j, i] = x[i, j] for a contiguous float32 or bfloat16 matrix of any shape, with 16-byte accesses.
"""

from kernelpath.course.problems import transpose
from kernelpath.course.spec import Exercise, Instructions, Traffic

EXERCISE = Exercise(
    entry="transpose",
    problem=transpose.PROBLEM,
    # Each dtype with 16-byte vectors and without. Tiles are 32 to 256 wide. Of the odd cases, one side fits vectors.
    cases=(
        {"rows": 512, "columns": 768, "dtype": "float32"},
        {"rows": 1, "columns": 1, "dtype": "float32"},
        {"rows": 136, "columns": 72, "dtype": "bfloat16"},
        {"rows": 128, "columns": 1009, "dtype": "float32"},
        {"rows": 257, "columns": 136, "dtype": "bfloat16"},
    ),
    bench={"rows": 8192, "columns": 8192, "dtype": "float32"},  # 512 MiB in and out, 9 times the L2 of an H200
    sweep=(
        {"rows": 8192, "columns": 8192, "dtype": "bfloat16"},
        {"rows": 65_536, "columns": 1024, "dtype": "float32"},
        {"rows": 1024, "columns": 65_536, "dtype": "bfloat16"},
        {"rows": 8191, "columns": 8193, "dtype": "float32"},
    ),
    baseline=lambda x: x.t().contiguous(),
    # On an H200, 3.5 by the reference, 3.2 through a padded tile, and 2.8 in registers alone.
    min_speedup=2.3,
    requires=(8, 0),  # the DSL compiles for nothing older
    traffic=Traffic(sectors=1.1, bank_conflicts=0.5, bytes=1.1),
    instructions=Instructions(access_bytes=16),
)
