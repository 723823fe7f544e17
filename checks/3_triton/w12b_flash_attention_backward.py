"""FlashAttention backward: recompute what was not saved.

Week 12. dq, dk, dv from q, k, v, out, the log-sum-exp of each row and dout, in bfloat16 with float32 sums.
"""

from kernelpath.course import sweeps
from kernelpath.course.problems import attention_gradient
from kernelpath.course.problems.attention import case
from kernelpath.course.spec import Exercise, Traffic

EXERCISE = Exercise(
    entry="flash_attention_backward",
    problem=attention_gradient.PROBLEM,
    aligned=True,  # as tensor descriptors need it
    # Here a load by descriptor is a copy by the TMA unit. For sm_80 Triton makes loads by pointers of it: 3.9 gives
    # the load of k 2 sectors per request, 3.6 gives it 32, because each lane takes an element of another row.
    arch="sm_90a",
    bench=case(4096, 128, True, batch=4, heads=16, kv_heads=16),
    # The baseline keeps the scores of all heads, in float32.
    sweep=tuple(one for one in sweeps.attention() if one["head"] <= 128 and one["tokens"] <= 16_384),
    baseline=attention_gradient.eager,
    # On an H200 the reference reaches 17.2, Flash-Attention 2 in PyTorch 10, tiles of 32 without a pipeline 5.2.
    min_speedup=9.0,
    workspace=0.4,  # dq in float32 takes 0.25 where no heads are grouped; the weights of all keys in bfloat16 0.5
    tensor_cores=True,
    traffic=Traffic(sectors=2.1, edges=None),
)
