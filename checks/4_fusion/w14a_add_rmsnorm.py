"""Residual add and RMSNorm in one kernel: vertical fusion.

Week 14. h = x + residual, and y = h * weight / sqrt(mean(h^2) + eps) along each row, computed in float32.
"""

from kernelpath.course import sweeps
from kernelpath.course.problems import add_rmsnorm
from kernelpath.course.spec import Exercise, Traffic

EXERCISE = Exercise(
    entry="add_rmsnorm",
    problem=add_rmsnorm.PROBLEM,
    bench={"rows": 16_384, "columns": 8192, "dtype": "bfloat16"},  # four tensors of 256 MiB
    sweep=sweeps.rows(),
    baseline=add_rmsnorm.unfused,
    min_speedup=1.2,  # on an H200 the reference kernel reaches 1.49, and a row per program the same
    traffic=Traffic(sectors=1.3, bank_conflicts=1.0, bytes=1.4, edges=None),  # reading h again makes it 1.5
)
