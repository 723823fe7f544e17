"""fp8 decode: attention of one query per head over a KV cache in float8 with scales.

Week 28. Keys have a scale for each channel, values have a scale for each token, and the 8-bit cache is read once.
"""

from kernelpath.course.problems import fp8_decode
from kernelpath.course.problems.fp8_decode import case
from kernelpath.course.spec import Exercise, Traffic

EXERCISE = Exercise(
    entry="fp8_decode",
    problem=fp8_decode.PROBLEM,
    aligned=True,  # as 16-byte loads of keys and values need it
    requires=(8, 9),  # the first with float8
    arch="sm_90a",
    bench=case(16, 16, 8192, 128),
    sweep=(
        *(case(batch, 32, 4096, 128) for batch in (1, 8, 64)),
        case(16, 32, 8192, 64),
        case(8, 16, 8192, 256),
    ),
    baseline=fp8_decode.dequantize_then_attend,
    # On an H200 the reference reaches 21.9, one program for each head with one maximum for each tile 8.4, and PyTorch's
    # attention over a bfloat16 cache 12.6.
    min_speedup=7.5,
    # A bfloat16 copy of the cache has twice its size and is written and read, which adds 4 times the cache's bytes.
    traffic=Traffic(sectors=2.0, bytes=1.5, edges=None),
    workspace=0.5,
)
