"""Grade few_rows: besides what every kernel is graded by, the programs that read the matrix have to fill the GPU."""

from __future__ import annotations

import math
from dataclasses import replace

from kernelpath.course.problem import arguments
from kernelpath.grading.by_kind import GradingPlan, plan_kernel
from kernelpath.grading.context import GradingContext
from kernelpath.grading.job import Job
from kernelpath.verdict import Finding, Verdict

SMS = 132
"""The multiprocessors of an H200."""


def plan_grading(job: Job) -> GradingPlan:
    """Return the plan of a kernel, with a check of the grids before the speed is measured."""
    plan = plan_kernel(job)
    return replace(plan, steps=(*plan.steps[:-1], check_blocks, plan.steps[-1]))


def check_blocks(context: GradingContext) -> Finding | None:
    """Return a finding where no launch of the largest case has a block for each multiprocessor."""
    if context.counters is None:
        return None
    most_blocks = max((math.prod(launch.grid) for launch in context.counters.transcript), default=0)
    if most_blocks >= SMS:
        return None
    cause = f"at {arguments(context.largest)}: the largest grid has {most_blocks} blocks, fewer than {SMS} SMs"
    return context.job.locate(Finding(Verdict.NO_OVERLAP, cause))
