"""Kernel library: package the phase's kernels for others.

Week 16. Operators with gradients and a contract, tests that would notice, a benchmark, and a wheel that holds it all.
"""

from kernelpath.course.problems import kernel_library
from kernelpath.course.problems.kernel_library import case
from kernelpath.course.spec import Exercise, Traffic

EXERCISE = Exercise(
    entry="layer",
    kind="library",
    problem=kernel_library.PROBLEM,
    gradients_of=("x", "residual", "weight"),
    library=kernel_library.LIBRARY,
    any_size=False,
    bench=case(16_384, 8192, "bfloat16"),
    baseline=kernel_library.step,
    min_speedup=1.3,  # on an H200 the reference 2.06
    traffic=Traffic(edges=None),
)
