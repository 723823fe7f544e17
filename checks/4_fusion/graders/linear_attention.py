"""Grade linear_attention: besides what every kernel is graded by, tensor cores have to make its products.

The check that negates the results of tensor cores judges each output by itself. A term of the state goes through one
product and changes its sign. A term of out goes through two products, and is the same again when both are negated.
"""

from __future__ import annotations

from dataclasses import replace

from kernelpath.grading.by_kind import GradingPlan, plan_kernel_with
from kernelpath.grading.context import GradingContext
from kernelpath.grading.ground_truth import expected_outputs
from kernelpath.grading.job import Job
from kernelpath.grading.provenance import Observation, check_tensor_core_output, check_tensor_cores
from kernelpath.grading.steps import check_negated
from kernelpath.verdict import Finding, Verdict


def plan_grading(job: Job) -> GradingPlan:
    """Return the plan of a kernel, with a check of what tensor cores compute before the speed is measured."""
    return plan_kernel_with(job, check_products)


def check_products(context: GradingContext) -> Finding | None:
    """Return a finding where tensor cores can't have made the products of the largest case, or have not made others."""
    if context.counters is None:
        return None
    exercise = replace(context.job.exercise, tensor_cores=True)
    # Tensor cores can't have made a quarter of the operations.
    if finding := check_tensor_cores(exercise, context.counters):
        return context.job.locate(finding)

    def check_outputs(negated: Observation) -> Finding | None:
        expected = expected_outputs(exercise, negated.inputs)
        # None where the output has changed.
        out, state = (
            check_tensor_core_output(exercise, replace(negated, outputs=[output]), [truth])
            for output, truth in zip(negated.outputs, expected, strict=True)
        )
        if state is None and out is None:
            cause = "one of the two products that make a term of out was not made by mma instructions"
            return Finding(Verdict.NO_TENSOR_CORES, cause)
        return state

    # The largest case would take twice as long, and shows no more.
    *_, second_largest, _ = sorted(exercise.cases, key=lambda case: case["tokens"])
    return check_negated(context, second_largest, check_outputs)
