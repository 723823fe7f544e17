"""Custom operator: a kernel for autograd and torch.compile.

Week 7. Softmax forward and backward, registered with torch.library: schema, fake implementation, backward formula.
"""

from kernelpath.course.problems import softmax_gradient
from kernelpath.course.spec import Exercise, Traffic

EXERCISE = Exercise(
    entry="softmax",
    kind="operator",
    problem=softmax_gradient.PROBLEM,
    bench={"rows": 16_384, "columns": 8192, "dtype": "bfloat16"},  # 256 MiB a tensor, five times the L2 of an H200
    sweep=(
        {"rows": 4096, "columns": 32_768, "dtype": "bfloat16"},
        {"rows": 131_072, "columns": 1024, "dtype": "bfloat16"},
        {"rows": 16_384, "columns": 4096, "dtype": "float32"},
    ),
    baseline=softmax_gradient.unfused,
    min_speedup=1.5,  # on an H200 the reference 3.6, a plain kernel 2.3, an operator for each direction 1.7
    traffic=Traffic(sectors=1.3, bank_conflicts=1.0, bytes=1.2),
)
