"""Host program: allocate, copy, launch, time and free, with every error handled.

Week 1. A vector addition as a program in CUDA C++: cudaMalloc, cudaMemcpy, <<<>>>, events and cudaFree. Each call of
the runtime fails once, each time in a separate run.
"""

from kernelpath.course.problems import vector_add
from kernelpath.course.spec import Exercise

EXERCISE = Exercise(
    entry="host_program",
    kind="program",
    problem=vector_add.PROBLEM,
    cases=(
        {"n": 1, "offset": 0},
        {"n": 255, "offset": 0},
        {"n": 256, "offset": 0},
        {"n": 1000, "offset": 0},
        {"n": 10_007, "offset": 1},
        {"n": 65_537, "offset": 0},
    ),
    any_size=False,  # the function takes an int
)
