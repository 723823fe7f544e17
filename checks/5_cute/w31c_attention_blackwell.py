"""Attention on Blackwell: softmax and correction warps around an MMA warp, exponentials on FMA units.

Week 31. The operator of week 23 without the log-sum-exp, with heads of 64 and 128: scores and weights are in tensor
memory.
"""

from kernelpath.course import sweeps
from kernelpath.course.problems import attention, attention_output
from kernelpath.course.spec import Exercise, Traffic

EXERCISE = Exercise(
    entry="attention_blackwell",
    problem=attention_output.PROBLEM,
    # Each size of a head is compiled separately, causal or not: two of the four here, the others on a GPU.
    cases=(
        attention.case(520, 64, True, heads=2, kv_heads=1),  # more tiles than a ring has stages
        attention.case(1, 64, True),
        attention.case(127, 64, True, batch=2, heads=3, kv_heads=3),
        attention.case(129, 128, False, heads=2, kv_heads=1),
        attention.case(320, 128, False, heads=4, kv_heads=2),
    ),
    gpu_limits=(
        attention.case(1000, 64, False, heads=6, kv_heads=3),
        attention.case(1001, 128, True, heads=6, kv_heads=2),
        attention.case(1, 64, False, batch=65_537),
    ),
    aligned=True,  # as tensor maps need it
    any_size=False,
    bench=attention.case(4096, 128, True, batch=4, heads=16, kv_heads=16),
    sweep=tuple(case for case in sweeps.attention() if case["head"] < 256),
    baseline=attention_output.eager,
    min_speedup=1.0,  # of the formula in operators; no B200 has timed it
    workspace=0.1,  # nothing but the output is allocated; the scores of a single head are too much
    tensor_cores=True,
    # Threads that store 16 bytes of their rows use half of each sector. Tiles of 128 queries ask for 2.7 times the
    # compulsory bytes of 320 tokens.
    traffic=Traffic(sectors=2.0, bytes=5.0, edges=None),
    requires=(10, 0),
    specific=True,  # tcgen05
    arch="sm_100a",
    spills="ptxas 13: a softmax thread holds a row of 128 scores, and 320 threads have 200 registers each; 92 bytes",
)
