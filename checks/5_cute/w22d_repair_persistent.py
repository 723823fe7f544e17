"""Repair persistent kernels: pipelines, ping-pong, and clusters.

Week 22. Four kernels that somebody else wrote: a persistent loop, an overlapped epilogue, two warp groups, a cluster.
"""

import torch

from kernelpath.course import draw
from kernelpath.course.problem import Problem, Tolerance
from kernelpath.course.problems.broken import broken_kernels
from kernelpath.course.spec import BrokenKernel, Exercise

COLS = 128
TOLERANCE = {"float32": Tolerance(rtol=1e-5, atol=1e-5)}

REPAIRS = {
    "persistent": BrokenKernel(("Uninitialized", "Deadlock"), changes=2),
    "epilogue": BrokenKernel(("Race",), changes=1),
    "pingpong": BrokenKernel(("BarrierDivergence",), changes=1),
    "cluster": BrokenKernel(("OutOfBounds",), changes=1),
}


def inputs(rng: torch.Generator, tiles: int, steps: int) -> tuple[torch.Tensor]:
    return (draw.normal(rng, tiles, steps, COLS),)


SUM_OF_STEPS = Problem(
    inputs=inputs,
    cases=({"tiles": 5, "steps": 3},),
    reference=lambda x: x.double().sum(1),
    tolerance=TOLERANCE,
    compulsory_bytes=lambda tiles, steps: 4 * COLS * tiles * (steps + 1),
)

EXERCISE = Exercise(
    entry="run",
    kind="repair",
    problem=broken_kernels(
        dict.fromkeys(REPAIRS, SUM_OF_STEPS),
        # 4 steps are twice the stages, 3 are not a multiple of them; 1 tile is less than the blocks, 5 are odd.
        cases=[
            {"kernel": kernel, "tiles": tiles, "steps": steps}
            for kernel in REPAIRS
            for tiles, steps in ((1, 3), (4, 4), (5, 3))
        ],
        tolerance=TOLERANCE,
    ),
    repairs=REPAIRS,
    aligned=True,
    deterministic=True,
    requires=(9, 0),
    arch="sm_90a",
)
