"""FlashAttention backward on Hopper: five GEMMs, two of them transposed, and dq through TMA.

Week 23. The operator of week 12, with heads of 64 and 128: dk and dv stay in registers, and dq is added up in memory.
"""

from kernelpath.course import sweeps
from kernelpath.course.problems import attention_gradient
from kernelpath.course.problems.attention import case
from kernelpath.course.spec import Exercise, Traffic

EXERCISE = Exercise(
    entry="flash_attention_backward",
    problem=attention_gradient.PROBLEM,
    # Each size of a head is compiled separately, causal or not: two of the four here, the others on a GPU.
    cases=(
        case(192, 64, True, heads=2, kv_heads=1),  # blocks before the diagonal, and behind it
        case(2, 64, True),
        case(31, 64, True, batch=2, heads=3, kv_heads=3),
        case(200, 64, True, heads=4, kv_heads=2),
        case(67, 128, False, heads=2, kv_heads=1),
        case(130, 128, False, heads=2, kv_heads=2),
    ),
    gpu_limits=(
        case(1000, 64, False, heads=6, kv_heads=3),
        case(1001, 128, True, heads=4, kv_heads=2),
        case(2, 64, True, batch=65_537),
    ),
    aligned=True,  # as tensor maps need it
    any_size=False,
    bench=case(4096, 128, True, batch=4, heads=16, kv_heads=16),
    # The baseline keeps the scores of all heads, in float32.
    sweep=tuple(one for one in sweeps.attention() if one["head"] <= 128 and one["tokens"] <= 16_384),
    baseline=attention_gradient.eager,
    # The gate of the Triton exercise. On an H200 the answer reaches 15.6, and the expert kernel 19.8.
    min_speedup=9.0,
    # In the largest case dq in float32 takes 0.43 if its tiles are padded to 64 queries, and the weights of all keys in
    # bfloat16 take 0.52.
    workspace=0.45,
    tensor_cores=True,
    traffic=Traffic(sectors=2.1, edges=None),
    requires=(9, 0),
    specific=True,  # wgmma
    arch="sm_90a",
)
