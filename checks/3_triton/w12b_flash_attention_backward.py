"""Flash attention, backward: what the forward pass did not keep is computed again.

Week 12. dq, dk, dv from q, k, v, out, the log-sum-exp of each row and dout, in bfloat16 with float32 sums.
"""

from kernelpath.course.problems import attention_gradient
from kernelpath.course.problems.attention_gradient import case
from kernelpath.course.spec import Exercise, Traffic

EXERCISE = Exercise(
    entry="flash_attention_backward",
    problem=attention_gradient.PROBLEM,
    aligned=True,
    bench=case(4096, 128, False, batch=4, heads=16, kv_heads=16),
    baseline=attention_gradient.eager,
    min_speedup=1.0,
    tensor_cores=True,
    traffic=Traffic(sectors=2.1),
)
