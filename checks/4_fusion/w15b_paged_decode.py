"""Paged decode: attention of one new token per sequence over a KV cache in pages.

Week 15. Block tables, grouped heads, split over the sequence and merged by log-sum-exp.
"""

from kernelpath.course.problems import paged_decode
from kernelpath.course.problems.paged_decode import case
from kernelpath.course.spec import Exercise, Traffic

EXERCISE = Exercise(
    entry="paged_decode",
    problem=paged_decode.PROBLEM,
    aligned=True,
    bench=case("8x32768+56x1024", 16, 128, heads=32, kv_heads=8),
    baseline=paged_decode.eager,
    min_speedup=1.0,
    workspace=0.5,
    tensor_cores=True,
    traffic=Traffic(sectors=2.0, bytes=1.5, edges=None),
)
