"""Hello, grid: every thread writes its coordinates.

Week 1. out[:, i] = (block, warp, lane, i) for the i-th of blocks * threads threads, in int32.
"""

from kernelpath.course.problems import hello_grid
from kernelpath.course.spec import Exercise, Traffic

EXERCISE = Exercise(
    entry="hello_grid",
    problem=hello_grid.PROBLEM,
    traffic=Traffic(sectors=1.1, bytes=1.1),  # each of the four stores is coalesced
)
