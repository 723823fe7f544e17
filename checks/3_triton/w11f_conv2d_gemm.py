"""Convolution as a matrix product whose left matrix is never stored: implicit GEMM.

Week 11. A convolutional layer in bfloat16 with channels last, square filters of odd side, stride 1, float32 sums.
"""

from kernelpath.course.problems import conv2d_gemm
from kernelpath.course.spec import Exercise, Traffic

EXERCISE = Exercise(
    entry="conv2d",
    problem=conv2d_gemm.PROBLEM,
    bench=conv2d_gemm.case(32, 56, 56, 256, 256),
    sweep=(
        conv2d_gemm.case(32, 56, 56, 64, 64),
        conv2d_gemm.case(32, 28, 28, 512, 512),
        conv2d_gemm.case(32, 56, 56, 256, 64, side=1),
    ),
    baseline=conv2d_gemm.convolve,
    min_speedup=0.25,  # of cuDNN; the reference has 0.39 on an H200
    requires=(8, 0),  # bfloat16
    tensor_cores=True,
    traffic=Traffic(sectors=2.0, edges=None),
    workspace=0.1,  # the matrix of im2col would be side * side times x
)
