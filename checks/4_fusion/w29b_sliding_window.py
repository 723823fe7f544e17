"""Sliding window: causal attention of a prompt in which queries see a window of keys and the first tokens.

Week 29. Tiles that the mask hides are neither loaded nor computed, and no key counts twice.
"""

from kernelpath.course.problems import window_attention
from kernelpath.course.problems.window_attention import case
from kernelpath.course.spec import Exercise, Instructions, Traffic

# The heads of Mistral 7B, whose window is 4,096 tokens.
MISTRAL = {"heads": 32, "kv_heads": 8}

BENCH = case(16_384, 128, 1024, 4, **MISTRAL)

SWEEP = (
    *(case(16_384, 128, window, 4, **MISTRAL) for window in (128, 512, 4096)),
    *(case(tokens, 64, 128, 0, heads=64, kv_heads=8) for tokens in (4096, 32_768)),  # as in gpt-oss
    case(2048, 128, 1024, 4, batch=8, **MISTRAL),
)

EXERCISE = Exercise(
    entry="sliding_window",
    problem=window_attention.PROBLEM,
    aligned=True,  # as tensor descriptors need it
    requires=(8, 0),  # bfloat16 on tensor cores
    # Here a load by descriptor is a copy by the TMA unit. For sm_80, Triton replaces it with loads by pointers: 3.9
    # gives the load of k 2 sectors per request, and 3.6 gives it 32, because each lane takes an element of a different
    # row.
    arch="sm_90a",
    bench=BENCH,
    sweep=SWEEP,
    baseline=window_attention.eager,
    min_speedup=44.0,  # on an H200 a mask on each tile reaches 49 to 62, pointers without it 83, the reference 97
    workspace=0.1,
    tensor_cores=True,
    # At 2,000 tokens, tiles of 32 to 128 queries and keys take 2.0 to 6.1 times the bytes and 5.9 to 7.7 special
    # functions. Computing every tile below the diagonal takes 17.
    traffic=Traffic(bytes=7.0, edges=None),
    instructions=Instructions(special=9.0),
)
