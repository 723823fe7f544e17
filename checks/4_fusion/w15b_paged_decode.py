"""Paged decode: attention over a KV cache that is stored in pages.

Week 15. Block tables, grouped heads, split over the sequence and merged by log-sum-exp.
"""

from kernelpath.course.problems import paged_decode
from kernelpath.course.problems.paged_decode import case
from kernelpath.course.spec import Exercise, Traffic

LLAMA = {"heads": 32, "kv_heads": 8}

# 3.1 GB of keys and values: one layer of Llama 3 8B for a batch that fills an H200.
BENCH = case("16x32768+112x2048", 16, 128, **LLAMA)

SWEEP = (
    *(case(lengths, 16, 128, **LLAMA) for lengths in ("1024", "131072", "16x1000", "256x1000", "64x8192")),
    *(case("64x8192", page, 128, **LLAMA) for page in (1, 64, 256)),
    case("8x32768+56x1024", 16, 128, heads=64, kv_heads=8),
    case("64x8192", 16, 64, heads=16, kv_heads=16),
    case("64x8192", 64, 256, heads=8, kv_heads=4),
)

EXERCISE = Exercise(
    entry="paged_decode",
    problem=paged_decode.PROBLEM,
    aligned=True,  # as 16-byte loads of keys and values need it
    bench=BENCH,
    sweep=SWEEP,
    baseline=paged_decode.eager,
    min_speedup=15.0,  # on an H200 splits of a fixed number reach 17 to 20, the reference kernel 23
    workspace=0.85,  # partial results of 188 multiprocessors take 0.81, a gathered copy 1
    traffic=Traffic(sectors=2.0, bytes=1.5, edges=None),
)
