"""Repair barriers: faulty mbarriers and a missing proxy fence.

Week 21. Four kernels that somebody else wrote: a producer and its consumers, and a circular buffer between them.
"""

import torch

from kernelpath.course import draw
from kernelpath.course.problem import Problem, Tolerance
from kernelpath.course.problems.broken import broken_kernels
from kernelpath.course.spec import BrokenKernel, Exercise

COLS = 128
TOLERANCE = {"float32": Tolerance(rtol=1e-5, atol=1e-5)}

REPAIRS = {
    "bytes": BrokenKernel(("Uninitialized", "Race"), changes=1),
    "arrivals": BrokenKernel(("Deadlock",), changes=1),
    "parity": BrokenKernel(("Uninitialized", "Deadlock"), changes=1),
    "proxies": BrokenKernel(("MissingFence",), changes=1),
}


def inputs(rng: torch.Generator, rows: int) -> tuple[torch.Tensor]:
    return (draw.normal(rng, rows, COLS),)


SUM_OF_ROWS = Problem(
    inputs=inputs,
    cases=({"rows": 11},),
    reference=lambda x: x.double().sum(0),
    tolerance=TOLERANCE,
    compulsory_bytes=lambda rows: 4 * COLS * (rows + 1),
)

EXERCISE = Exercise(
    entry="run",
    kind="repair",
    problem=broken_kernels(
        dict.fromkeys(REPAIRS, SUM_OF_ROWS),
        # 2 rows fill the circular buffer once, 11 go through it more than five times.
        cases=[{"kernel": kernel, "rows": rows} for kernel in REPAIRS for rows in (1, 2, 11)],
        tolerance=TOLERANCE,
    ),
    repairs=REPAIRS,
    aligned=True,
    deterministic=True,
    requires=(9, 0),
    arch="sm_90a",
)
