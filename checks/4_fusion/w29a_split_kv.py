"""Split KV: one query against a long context, with a sink logit, divided among all SMs and combined by log-sum-exp.

Week 29. No block reads more than one SM's share of the keys, and the same inputs give the same bits.
"""

from kernelpath.course.problems import sink_decode
from kernelpath.course.problems.sink_decode import case
from kernelpath.course.spec import Exercise, Traffic

# The attention of gpt-oss-120b, whose heads have 64 columns and a sink logit each.
GPT_OSS = {"heads": 64, "kv_heads": 8}

# 537 MB of keys and values: two sequences of the longest context of gpt-oss.
BENCH = case(131_072, 64, batch=2, **GPT_OSS)

SWEEP = (
    *(case(tokens, 64, **GPT_OSS) for tokens in (4096, 32_768, 131_072, 1_048_576)),
    *(case(8192, 64, batch=batch, **GPT_OSS) for batch in (8, 32)),
    case(131_072, 128, heads=32, kv_heads=8),
    case(131_072, 128, heads=8, kv_heads=1),
)

EXERCISE = Exercise(
    entry="split_kv",
    problem=sink_decode.PROBLEM,
    aligned=True,  # as 16-byte loads of keys and values need it
    requires=(8, 0),  # bfloat16 on tensor cores
    bench=BENCH,
    sweep=SWEEP,
    baseline=sink_decode.eager,
    min_speedup=18.0,  # on an H200 the reference 30, 1,024 programs 27, 128 programs 21
    deterministic=True,
    measures_reads=True,  # graders/split_kv.py limits the shares of k and v that one block reads
    # The partial results of 133 parts take an eighth of the bytes of 8,500 tokens, and are written and read. Simple
    # kernels move 1.3 to 1.8 times the bytes. Reading keys and values twice alone moves 2 times.
    traffic=Traffic(bytes=2.0, edges=None),
    workspace=0.5,
)
