"""Overlap: average gradients during the backward pass.

Week 16. Buckets of gradients are reduced behind the compute that makes the next ones, as DistributedDataParallel does.
Graded by the timeline: the share of the communication that is hidden, on simulated links of 5 µs and 10 GB/s.
"""

from kernelpath.course.labs.fabric import ETHERNET
from kernelpath.course.problems import overlap
from kernelpath.course.spec import Exercise, Network

EXERCISE = Exercise(
    entry="overlap",
    problem=overlap.PROBLEM,
    kind="distributed",
    network=Network(
        links=ETHERNET,
        bytes=overlap.most_bytes,
        least=overlap.least_bytes,
        hidden=overlap.HIDDEN,
        collectives=("all_reduce",),
    ),
)
