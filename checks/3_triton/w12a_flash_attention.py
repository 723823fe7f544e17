"""FlashAttention: softmax and both GEMMs in one pass.

Week 12. out = softmax(q @ k^T / sqrt(head)) @ v per head, causal or not, heads in groups, and the log-sum-exp.
"""

from kernelpath.course import sweeps
from kernelpath.course.problems import attention
from kernelpath.course.spec import Exercise, Traffic

EXERCISE = Exercise(
    entry="flash_attention",
    problem=attention.PROBLEM,
    limits=(attention.case(1030, 64, True),),  # as much work as in the largest case
    aligned=True,  # as tensor descriptors need it
    # Here a load by descriptor is a copy by the TMA unit. For sm_80 Triton makes loads by pointers of it: 3.9 gives
    # the load of k 2 sectors per request, 3.6 gives it 32, because each lane takes an element of another row.
    arch="sm_90a",
    bench=attention.case(4096, 128, True, batch=4, heads=16, kv_heads=16),
    sweep=sweeps.attention(),
    baseline=attention.eager,
    min_speedup=16.0,  # on an H200 a plain loop with a mask on every block reaches 20, the reference kernel 38
    workspace=0.1,  # nothing but the outputs is allocated; the scores of a single head are too much
    tensor_cores=True,
    # Tiles of 128 queries ask for 2.7 times the compulsory bytes of 320 tokens, tiles of 64 for 4 times.
    traffic=Traffic(sectors=2.0, bytes=5.0, edges=None),
)
