"""Grade linear_attention: besides what every kernel is graded by, tensor cores have to make its products.

The check that negates the results of tensor cores can't be used. Each term of an output goes through two products, and
is the same again when both are negated.
"""

from __future__ import annotations

from dataclasses import replace

from kernelpath.grading.by_kind import GradingPlan, plan_kernel_with
from kernelpath.grading.context import GradingContext
from kernelpath.grading.job import Job
from kernelpath.grading.provenance import check_tensor_cores
from kernelpath.verdict import Finding


def plan_grading(job: Job) -> GradingPlan:
    """Return the plan of a kernel, with a count of what tensor cores compute before the speed is measured."""
    return plan_kernel_with(job, count_operations)


def count_operations(context: GradingContext) -> Finding | None:
    """Return a finding where tensor cores can't have made a quarter of the operations of the largest case."""
    if context.counters is None:
        return None
    exercise = replace(context.job.exercise, tensor_cores=True)
    return context.job.locate(check_tensor_cores(exercise, context.counters))
