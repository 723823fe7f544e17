"""Linear attention: a recurrence with a decay, computed in chunks by tensor cores.

Week 29. Pairs of tokens within a chunk, a state between chunks, and exponentials that never overflow.
"""

from kernelpath.course.problems import linear_attention
from kernelpath.course.problems.linear_attention import case
from kernelpath.course.spec import Exercise, Instructions, Traffic

SWEEP = (
    *(case(tokens, 128, batch=4, heads=32) for tokens in (1024, 4096, 16_384)),
    case(8192, 64, batch=4, heads=32),
    case(65_536, 128, heads=16),
)

EXERCISE = Exercise(
    entry="linear_attention",
    problem=linear_attention.PROBLEM,
    aligned=True,
    requires=(8, 0),  # bfloat16 on tensor cores
    bench=case(8192, 128, batch=4, heads=32),
    sweep=SWEEP,
    baseline=linear_attention.eager,
    # On an H200 the reference reaches 116 (103 to 132), weighted keys 91, and these with 32 columns of v for each
    # program 59.
    min_speedup=50.0,
    # One pass over the chunks moves 1.0 to 1.5 times the bytes and needs no workspace. Three passes (states of all
    # chunks, a scan, outputs) move 3.5 times the bytes and need a workspace of 0.5.
    workspace=1.0,
    traffic=Traffic(bytes=4.0, edges=None),
    instructions=Instructions(special=5.0),  # chunks of 64 take about 1 per element, of 256 about 4
)
