"""CUTLASS epilogue: a Hopper GEMM from the collective builder, with a visitor node of your own.

Week 24. out = max(x @ weight.T + bias, 0) and the largest value of each of its rows, for bfloat16 matrices, in a CUDA
C++ program that composes a kernel of CUTLASS.
"""

from kernelpath.course.problems import linear_amax
from kernelpath.course.spec import Exercise

EXERCISE = Exercise(
    entry="cutlass_epilogue",
    kind="program",
    problem=linear_amax.PROBLEM,
    aligned=True,
    any_size=False,
    requires=(9, 0),
    specific=True,  # wgmma
    arch="sm_90a",
    cutlass_gemms=True,
)
