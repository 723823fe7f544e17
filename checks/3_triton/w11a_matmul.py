"""Matrix product: a tile per program, masks on every side, and an order of the programs that L2 can serve.

Week 11. out = activation(a @ b + bias) for bfloat16 or float16 matrices of any size and strides, with float32 sums.
"""

from kernelpath.course import sweeps
from kernelpath.course.problems import matmul_bias
from kernelpath.course.spec import Exercise, Traffic

EXERCISE = Exercise(
    entry="matmul",
    problem=matmul_bias.PROBLEM,
    bench={**matmul_bias.SQUARE, "m": 8192, "n": 8192, "k": 8192},
    sweep=tuple({**matmul_bias.SQUARE, **case} for case in sweeps.products()),
    baseline=matmul_bias.library,
    min_speedup=0.5,  # to be measured on an H200
    requires=(8, 0),
    tensor_cores=True,
    traffic=Traffic(bytes=3.5, edges=None),
)
