"""Long context: causal attention of packed sequences, in linear memory.

Week 15. out = softmax(q @ k^T / sqrt(head)) @ v per head and sequence; the sequences lie one after another.
"""

from kernelpath.course.problems import packed_attention
from kernelpath.course.problems.packed_attention import case
from kernelpath.course.spec import Exercise, Traffic

EXERCISE = Exercise(
    entry="long_context",
    problem=packed_attention.PROBLEM,
    aligned=True,  # as tensor descriptors need it
    bench=case("16384+8192+4096+2048+2x1024", 128, heads=16, kv_heads=16),
    baseline=packed_attention.eager,
    min_speedup=1.0,
    workspace=0.1,
    tensor_cores=True,
    traffic=Traffic(sectors=2.0, bytes=4.0, edges=None),
)
