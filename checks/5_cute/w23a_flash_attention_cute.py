"""FlashAttention on Hopper: TMA, ping-pong consumers, overlapped softmax.

Week 23. The operator of week 12, with heads of 64 and 128: both products and the softmax between them in one pipeline.
"""

from kernelpath.course import sweeps
from kernelpath.course.problems import attention
from kernelpath.course.spec import Exercise, Traffic

EXERCISE = Exercise(
    entry="flash_attention",
    problem=attention.PROBLEM,
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
    baseline=attention.eager,
    min_speedup=20.0,  # on an H200 plain loops with wgmma reach 26 to 32, the reference kernel 48
    workspace=0.1,  # nothing but the outputs is allocated; the scores of a single head are too much
    tensor_cores=True,
    multiprocessors=4,  # so that blocks which stay on theirs have several tiles
    # Tiles of 128 queries ask for 2.7 times the compulsory bytes of 320 tokens, tiles of 64 for 4 times.
    traffic=Traffic(sectors=2.0, bytes=5.0, edges=None),
    requires=(9, 0),
    specific=True,  # wgmma
    arch="sm_90a",
)
