"""Strided copy: which axis the lanes run along, on both sides.

Week 9. out = x, contiguous, for a view of three dimensions with any strides: transposed, sliced, repeated.
"""

from kernelpath.course.problems import strided_copy
from kernelpath.course.spec import Exercise, Traffic

EXERCISE = Exercise(
    entry="strided_copy",
    problem=strided_copy.PROBLEM,
    bench={"view": "transposed", "planes": 1, "rows": 16_384, "columns": 16_384, "dtype": "float32"},  # 1 GiB each way
    baseline=strided_copy.reference,
    min_speedup=1.0,  # to be measured
    traffic=Traffic(sectors=1.3, bytes=1.3, edges=0.5),
)
