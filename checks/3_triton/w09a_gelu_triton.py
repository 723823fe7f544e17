"""GELU in Triton: let the compiler vectorize.

Week 9. out = x * Phi(x) for float32 and bfloat16 of any size, exact by erf or approximated by tanh.
"""

from itertools import product

from kernelpath.course.problems import gelu
from kernelpath.course.spec import Exercise, Traffic

EXERCISE = Exercise(
    entry="gelu",
    problem=gelu.PROBLEM,
    # Fewer than the problem has, around blocks of 1024: each pair of dtype and formula takes a second to compile.
    cases=(
        {"n": 1, "dtype": "float32", "approximate": "tanh"},
        {"n": 1023, "dtype": "bfloat16", "approximate": "tanh"},
        {"n": 1024, "dtype": "float32", "approximate": "none"},
        {"n": 1025, "dtype": "float32", "approximate": "tanh"},
        {"n": 10_007, "dtype": "bfloat16", "approximate": "none"},
        {"n": 65_536, "dtype": "bfloat16", "approximate": "tanh"},
        {"n": 131_072, "dtype": "float32", "approximate": "none"},
    ),
    bench={"n": 1 << 28, "dtype": "float32", "approximate": "tanh"},  # 1 GiB, 18 times the L2 of an H200
    sweep=tuple(
        {"n": n, "dtype": dtype, "approximate": approximate}
        for dtype, approximate, n in product(
            ("float32", "bfloat16"), gelu.FORMULAS, (1 << 20, 1 << 24, 100_000_007, 1 << 28)
        )
    ),
    baseline=gelu.by_hand,
    min_speedup=7.2,  # on an H200 the reference kernel reaches 10.4, libdevice's tanh 10.4, programs of many tiles 9.0
    traffic=Traffic(sectors=1.3, bytes=1.3, edges=None),
)
