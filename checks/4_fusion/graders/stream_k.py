"""Grade stream_k: besides what every kernel is graded by, all SMs have to get the same work, in a single wave."""

from __future__ import annotations

import math
from dataclasses import replace

import torch

from kernelpath.course.problem import Case, arguments
from kernelpath.grading.by_kind import GradingPlan, plan_kernel, plan_kernel_with
from kernelpath.grading.context import GradingContext
from kernelpath.grading.job import Job
from kernelpath.grading.provenance import Observation, check_refused_launches
from kernelpath.grading.steps import check_counters, check_largest_case, wait_for_counters
from kernelpath.verdict import Finding, Verdict

# What a report from a GPU says about the limits.
NOT_LIMITED = "bytes and the work of each SM: limited on {sms} simulated SMs alone; kp check stream_k --device cpu"

# The index of b among the inputs.
B = 1
# The least and the most that the busiest program may read of b, in shares of one SM. With k-tiles of 128 x 256, an
# even division gives each program 9 or 10 of 48, and the busiest 1.04 shares. Whole tiles give it 1.25 and more.
LEAST, MOST = 0.98, 1.1


def plan_grading(job: Job) -> GradingPlan:
    """Return the plan of a kernel, with a check of what the busiest program reads before the speed is measured.

    The limits on bytes hold for as many SMs as the exercise simulates. On a GPU, which has more, the largest case is
    divided into many more parts, so its bytes are counted there, but not limited.
    """
    sms = job.exercise.multiprocessors
    assert sms is not None
    if job.device == "cuda":
        plan = plan_kernel(job)
        return replace(plan, steps=[count_bytes if step is check_counters else step for step in plan.steps])

    def check_case(case: Case, observation: Observation) -> Finding | None:
        """Return a finding where the busiest program of a case has more or less than one SM's share of b.

        The largest case has one row of tiles, so a program reads as much of b as it multiplies. Several smaller
        programs for each SM read less: they are the tiles of a kernel without stream-K, or parts of k of equal size.
        """
        b = observation.inputs[B]
        assert isinstance(b, torch.Tensor)
        if finding := check_refused_launches(observation):
            return finding
        for launch, read in zip(observation.transcript, observation.most_read[B], strict=True):
            # Useless reads would make one of several programs for each SM the busiest one.
            if read and (programs := math.prod(launch.grid)) > sms:
                cause = f"{launch.kernel} divides b among {programs} programs; each of {sms} SMs gets one program"
                return Finding(Verdict.NO_OVERLAP, f"at {arguments(case)}: {cause}")
        # Launches follow one another, so the times of their busiest programs add up.
        share = sum(observation.most_read[B]) / b.nbytes
        if LEAST <= share * sms <= MOST:
            return None
        allowed = f"{LEAST / sms:.1%} to {MOST / sms:.1%} are allowed, since each of {sms} SMs gets one program"
        cause = f"at {arguments(case)}: the busiest program reads {share:.1%} of b, and {allowed}"
        return Finding(Verdict.NO_OVERLAP, cause)

    def check_blocks(context: GradingContext) -> Finding | None:
        return check_largest_case(context, check_case)

    return plan_kernel_with(job, check_blocks)


def count_bytes(context: GradingContext) -> Finding | None:
    """Count the largest case on the PTX machine beside a GPU, for the report and for the check of tensor cores."""
    context.not_measured.append(NOT_LIMITED.format(sms=context.job.exercise.multiprocessors))
    return wait_for_counters(context)
