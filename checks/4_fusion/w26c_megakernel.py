"""Megakernel: a decoder's attention for one token in one launch, as a table of tasks with counters.

Week 26. Norm, projections, attention over a cache, and output projection. Blocks take tasks in order and pass results
to each other through counters, with release and acquire.
"""

from kernelpath.course.problems import decoder_attention
from kernelpath.course.spec import Exercise, Traffic

EXERCISE = Exercise(
    entry="megakernel",
    problem=decoder_attention.PROBLEM,
    aligned=True,
    requires=(8, 0),  # bfloat16
    any_size=False,
    # 16 blocks of 256 threads fit at once. Tasks are more, so a block waits for tasks that other blocks have taken.
    multiprocessors=2,
    bench={"heads": 64, "tokens": 4096},  # 201 MB, four times the L2 of an H200
    sweep=({"heads": 32, "tokens": 1024}, {"heads": 64, "tokens": 256}, {"heads": 64, "tokens": 16_384}),
    baseline=decoder_attention.library,
    min_speedup=1.5,  # on an H200 the reference 2.5, half as many loads in flight 1.9, loads of 4 bytes 0.7
    launches=1,
    # In the strided order, which only this check uses, a block runs while other blocks are halfway through a task.
    deterministic=True,
    traffic=Traffic(bank_conflicts=1.0),
)
