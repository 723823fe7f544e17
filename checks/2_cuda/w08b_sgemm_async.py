"""Asynchronous SGEMM: a multistage cp.async pipeline.

Week 8. out = a @ b for contiguous float32 matrices a (m x k) and b (k x n) of any size, in strict float32.
"""

from kernelpath.course import sweeps
from kernelpath.course.problems import matmul
from kernelpath.course.registry import solution_of
from kernelpath.course.spec import Exercise, Traffic

EXERCISE = Exercise(
    entry="matmul",
    problem=matmul.PROBLEM,
    # Tiles of out are 16 to 256 wide, those of a and b 8 to 32 deep. Limits hold at 256 x 256 x 256, where tiles fit;
    # a k of 256 fills every ring of stages more than once.
    cases=(
        {"m": 1, "n": 1, "k": 1},
        {"m": 127, "n": 65, "k": 17},
        {"m": 130, "n": 70, "k": 37},
        {"m": 129, "n": 132, "k": 68},
        {"m": 64, "n": 260, "k": 8},
        {"m": 256, "n": 256, "k": 256},
    ),
    bench={"m": 4096, "n": 4096, "k": 4096},
    sweep=sweeps.products(),
    baseline=solution_of("sgemm_registers"),
    min_speedup=0.8,  # on an H200 copies of 4 bytes reach 0.63, three stages with some of 16 0.83, the reference 1.06
    # As in sgemm_registers. A kernel may store half of its tiles through registers, which is one way to transpose a.
    traffic=Traffic(sectors=1.3, bank_conflicts=1.0, bytes=5.0, edges=0.8, shared=1.2, asynchronous=0.5),
)
