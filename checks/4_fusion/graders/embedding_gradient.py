"""Grade embedding_gradient: besides what every kernel is graded by, no block may have all rows of a frequent token."""

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
    """Return a finding where a block of the largest case reads more of dy than one multiprocessor's share."""
    if context.counters is None:
        return None
    dy = context.counters.inputs[0]
    assert isinstance(dy, torch.Tensor)
    share = context.counters.most_read[0] / dy.nbytes
    if share * SMS <= 1:
        return None
    cause = f"a block reads {share:.2%} of dy, at most {1 / SMS:.2%} are allowed, the share of one of {SMS} SMs"
    return context.job.locate(Finding(Verdict.NO_OVERLAP, f"at {arguments(context.largest)}: {cause}"))
