"""All-reduce: a sum over ranks with send and receive.

Week 16. Reduce-scatter, all-gather, and the all-reduces that are made of them: a ring, whose steps grow with the ranks,
and two shots, which have two. Every rank is a process; its messages are counted, and timed on simulated links.
"""

from kernelpath.course.problems import all_reduce
from kernelpath.course.spec import Exercise, Network

EXERCISE = Exercise(
    entry="collective",
    problem=all_reduce.PROBLEM,
    kind="distributed",
    network=Network(
        bytes=all_reduce.most_bytes,
        least=all_reduce.least_bytes,
        seconds=all_reduce.most_seconds,
        ring_messages=all_reduce.ring_messages,
    ),
    check=all_reduce.explain_output,
    # on GPUs, on as many as there are: 64 MiB on each
    bench=all_reduce.case(2, 1 << 25, "bfloat16", "two_shot"),
    baseline=all_reduce.library,
    min_speedup=0.5,  # a ring of two H200s in batches of isend and irecv took 300 µs, NCCL 245: 0.82
)
