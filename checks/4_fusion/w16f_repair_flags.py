"""Repair flags: all-reduces with broken synchronization.

Week 16. Four kernels that somebody else wrote: through staging buffers, by the last rank, along a chain, in a ring.
"""

import torch

from kernelpath.course import draw
from kernelpath.course.problem import Problem, Tolerance
from kernelpath.course.problems import symmetric
from kernelpath.course.problems.broken import broken_kernels
from kernelpath.course.spec import BrokenKernel, Exercise

TOLERANCE = {"float32": Tolerance(rtol=1e-5, atol=1e-5)}

REPAIRS = {
    "push": BrokenKernel(("Race",), changes=1),
    "last": BrokenKernel(("Race",), changes=2),
    "chain": BrokenKernel(("Race", "Uninitialized"), changes=1),
    "rounds": BrokenKernel(("Race",), changes=2),
}


def inputs(rng: torch.Generator, world: int, n: int) -> tuple[torch.Tensor, int]:
    return draw.normal(rng, world * n), world


ALL_REDUCE = Problem(
    inputs=inputs,
    cases=({"world": 4, "n": 300},),
    reference=symmetric.reference,
    tolerance=TOLERANCE,
    compulsory_bytes=lambda world, n: 8 * world * n,
)

EXERCISE = Exercise(
    entry="run",
    kind="repair",
    problem=broken_kernels(
        dict.fromkeys(REPAIRS, ALL_REDUCE),
        cases=[{"kernel": kernel, "world": world, "n": n} for kernel in REPAIRS for world, n in ((2, 128), (4, 300))],
        tolerance=TOLERANCE,
    ),
    repairs=REPAIRS,
    aligned=True,
    deterministic=True,
)
