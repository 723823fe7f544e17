"""Limit how much of an input a single block may read, for exercises that divide one large read among all SMs."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from kernelpath.course.problem import Case, arguments
from kernelpath.grading.by_kind import GradingPlan, plan_kernel_with
from kernelpath.grading.context import GradingContext
from kernelpath.grading.job import Job
from kernelpath.grading.provenance import Observation
from kernelpath.grading.steps import check_largest_case
from kernelpath.verdict import Finding, Verdict

# The multiprocessors of an H200.
SMS = 132


def plan_shared_reads(job: Job, inputs: Mapping[str, int]) -> GradingPlan:
    """Return the plan of a kernel, with a check of what blocks read before the speed is measured.

    Args:
        job: The job of an exercise that declares measures_reads.
        inputs: The index of each input whose reads are limited, by its name in the statement.
    """

    def check_case(case: Case, observation: Observation) -> Finding | None:
        """Return a finding where a block reads more of an input than one SM's share."""
        # Neither the size of a grid nor the number of blocks that read shows this: some may have nothing to read, or
        # little.
        for name, index in inputs.items():
            tensor = observation.inputs[index]
            assert isinstance(tensor, torch.Tensor)
            # Launches follow one another, so the times of their busiest blocks add up.
            share = sum(observation.most_read[index]) / tensor.nbytes
            if share * SMS > 1:
                limit = f"at most {1 / SMS:.2%} are allowed, the share of one of {SMS} SMs"
                launches = sum(map(bool, observation.most_read[index]))
                blocks = "a block reads" if launches == 1 else f"the busiest blocks of {launches} launches read"
                cause = f"at {arguments(case)}: {blocks} {share:.2%} of {name}, {limit}"
                return Finding(Verdict.NO_OVERLAP, cause)
        return None

    def check_blocks(context: GradingContext) -> Finding | None:
        return check_largest_case(context, check_case)

    return plan_kernel_with(job, check_blocks)
