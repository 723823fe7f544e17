"""One-sided all-gather: put, signal, wait, over a sharded KV cache.

Week 32. Each rank has attended to its shard of the cache. In every step it puts its partial outputs into the memory of
all peers and raises a flag there, then combines what its peers have put. All ranks are in one launch on one device.
"""

from kernelpath.course.problems import sharded_decode
from kernelpath.course.spec import Exercise

EXERCISE = Exercise(
    entry="decode",
    problem=sharded_decode.PROBLEM,
    aligned=True,  # each rank's buffer is an allocation of its own
    any_size=False,
    ranks=True,
    # two slots of world partial outputs: world / steps of the inputs and outputs, 0.5 on the largest case; a slot for
    # each step takes 2
    workspace=0.75,
)
