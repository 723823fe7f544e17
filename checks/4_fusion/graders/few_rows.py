"""Grade few_rows: besides what every kernel is graded by, the blocks that read the matrix have to fill the GPU."""

from __future__ import annotations

from dataclasses import replace

import torch

from kernelpath.course.problem import arguments
from kernelpath.grading.by_kind import GradingPlan, plan_kernel
from kernelpath.grading.context import GradingContext
from kernelpath.grading.job import Job
from kernelpath.verdict import Finding, Verdict

SMS = 132
"""The multiprocessors of an H200."""


def plan_grading(job: Job) -> GradingPlan:
    """Return the plan of a kernel, with a check of the blocks before the speed is measured."""
    plan = plan_kernel(job)
    return replace(plan, steps=(*plan.steps[:-1], check_blocks, plan.steps[-1]))


def check_blocks(context: GradingContext) -> Finding | None:
    """Return a finding where a block of the largest case reads more of w than one multiprocessor's share.

    Neither the size of a grid nor the number of blocks that read shows this: some may have nothing to read, or little.
    """
    if context.counters is None:
        return None
    w = context.counters.inputs[1]
    assert isinstance(w, torch.Tensor)
    share = context.counters.most_read[1] / w.nbytes
    if share * SMS <= 1:
        return None
    cause = f"a block reads {share:.2%} of w, at most {1 / SMS:.2%} are allowed, the share of one of {SMS} SMs"
    return context.job.locate(Finding(Verdict.NO_OVERLAP, f"at {arguments(context.largest)}: {cause}"))
