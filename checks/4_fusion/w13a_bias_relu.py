"""Bias and ReLU: a first fusion, with its bytes counted beforehand.

Week 13. out = relu(x + bias) for a matrix of float32, bfloat16 or float16, with one bias per column.
"""

from kernelpath.course import sweeps
from kernelpath.course.problems import bias_relu
from kernelpath.course.spec import Exercise, Traffic

EXERCISE = Exercise(
    entry="bias_relu",
    problem=bias_relu.PROBLEM,
    aligned=True,
    bench={"rows": 32_768, "columns": 8192, "dtype": "float32"},  # 1 GiB in and 1 GiB out
    sweep=sweeps.rows(),
    baseline=bias_relu.unfused,
    min_speedup=1.8,  # on an H200 the reference 2.5; two kernels as fast as memory would reach 1.25
    # Two kernels make it 2.0; a bias that is read again for each element makes it 1.5, and DRAM does not see it.
    traffic=Traffic(sectors=1.3, bytes=1.7, edges=None),
)
