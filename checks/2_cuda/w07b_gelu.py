"""GELU: hide the arithmetic behind 16-byte accesses.

Week 7. out = x * Phi(x) for float32 and bfloat16 of any size, exact by erf or approximated by tanh.
"""

from itertools import product

from kernelpath.course.problems import gelu
from kernelpath.course.spec import Exercise, Traffic

EXERCISE = Exercise(
    entry="gelu",
    problem=gelu.PROBLEM,
    bench={"n": 1 << 28, "dtype": "float32", "approximate": "tanh"},  # 1 GiB, 18 times the L2 of an H200
    sweep=tuple(
        {"n": n, "dtype": dtype, "approximate": approximate}
        for dtype, approximate, n in product(
            ("float32", "bfloat16"), gelu.FORMULAS, (1 << 20, 1 << 24, 100_000_007, 1 << 28)
        )
    ),
    baseline=gelu.by_hand,
    min_speedup=6.0,  # on an H200 the reference kernel reaches 10.5, one element per thread 6.3
    traffic=Traffic(sectors=1.3, bytes=1.3),
)
