"""Matmul: one tile per program, with masks and an L2-friendly order.

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
    min_speedup=0.65,  # of cuBLAS on an H200: the reference 0.98, Triton's tutorial 0.93, 128 x 128 by descriptors 0.69
    tensor_cores=True,
    # At 1100 x 144 x 80 tiles of 64 ask for 2.4 times the compulsory bytes, those of 16 for 6.8 times. An epilogue that
    # loads the bias once for every element of out, as Inductor's does, adds 2 to either.
    traffic=Traffic(bytes=5.5, edges=None),
)
