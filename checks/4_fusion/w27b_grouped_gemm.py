"""Grouped GEMM: the rows of every expert in one launch.

Week 27. Rows gathered by token, ragged groups whose sizes only the device knows, and no reads of idle experts.
"""

from kernelpath.course.problems import grouped_gemm
from kernelpath.course.problems.grouped_gemm import case
from kernelpath.course.spec import Exercise, Traffic

EXERCISE = Exercise(
    entry="grouped_gemm",
    problem=grouped_gemm.PROBLEM,
    aligned=True,  # as copies of 16 bytes need it
    bench=case("32x512+48x256+16x1024+32x128", 5632, 4096, 2048),
    baseline=grouped_gemm.eager,
    min_speedup=5.5,  # on an H200 the reference kernel reaches 12.3, and the answer 8.2 in another grading
    tensor_cores=True,
    traffic=Traffic(bytes=2.5, edges=None),
)
