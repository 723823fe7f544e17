"""Symmetric memory: all-reduce in one kernel through peer addresses.

Week 16. Two shots: each rank pushes chunks to their owners, who add up and push the sums. Here all ranks are in one
launch on one device, whose blocks meet through flags; on several GPUs the same kernel is launched on each of them.
"""

from kernelpath.course.problems import symmetric
from kernelpath.course.spec import Exercise, Traffic

# Time is a matter of two GPUs: benchmarks/all_reduce.py measures it beside NCCL, and week 16's notebook shows it.
EXERCISE = Exercise(
    entry="all_reduce",
    problem=symmetric.PROBLEM,
    aligned=True,  # each rank's buffer is an allocation of its own
    any_size=False,
    ranks=True,
    # two shots through staging move 1.75 times the compulsory bytes with four ranks, 2 if the own chunk goes
    # there as well, one shot 2.5 times
    traffic=Traffic(sectors=1.25, bytes=2.25),
)
