"""Repair wgmma: faulty fences, waits, and a swizzle.

Week 23. Four kernels that somebody else wrote: a warp group that loads, multiplies, and uses the accumulators.
"""

import torch

from kernelpath.course import draw
from kernelpath.course.problem import Problem, Tolerance
from kernelpath.course.problems.broken import broken_kernels
from kernelpath.course.spec import BrokenKernel, Exercise

TILE = 64
# Products of float16 are exact in float32. Tensor cores truncate the sums of 16 of them.
TOLERANCE = {"float32": Tolerance(rtol=1e-3, atol=1e-4)}

REPAIRS = {
    "proxy": BrokenKernel(("MissingFence",), changes=1),
    "swizzle": BrokenKernel(("WrongValues",), changes=1),
    "refill": BrokenKernel(("Race",), changes=1),
    "promote": BrokenKernel(("Race",), changes=2),
}


def inputs(rng: torch.Generator, k: int) -> tuple[torch.Tensor, torch.Tensor]:
    a, b = (draw.normal(rng, TILE, k, dtype="float16", large=0, mean=0.0) for _ in range(2))
    return a, b


PRODUCT = Problem(
    inputs=inputs,
    cases=({"k": 192},),
    reference=lambda a, b: a.double() @ b.double().T,
    tolerance=TOLERANCE,
    compulsory_bytes=lambda k: 4 * TILE * k + 4 * TILE * TILE,
)

EXERCISE = Exercise(
    entry="run",
    kind="repair",
    problem=broken_kernels(
        dict.fromkeys(REPAIRS, PRODUCT),
        # One k-tile, and three: an odd number of passes through two stages.
        cases=[{"kernel": kernel, "k": k} for kernel in REPAIRS for k in (64, 192)],
        tolerance=TOLERANCE,
    ),
    repairs=REPAIRS,
    aligned=True,
    deterministic=True,
    requires=(9, 0),
    specific=True,
    arch="sm_90a",
)
