"""Grade dependent_launch: besides what every kernel is graded by, how far its launches may overlap."""

from __future__ import annotations

from itertools import pairwise

from kernelpath import words
from kernelpath.course.problem import arguments
from kernelpath.grading.by_kind import GradingPlan, plan_kernel_with
from kernelpath.grading.context import GradingContext
from kernelpath.grading.job import Job
from kernelpath.grading.provenance import check_refused_launches
from kernelpath.verdict import Finding, Verdict

# The largest share of its instructions that the first launch may execute before griddepcontrol.launch_dependents.
BEFORE_TRIGGER = 0.25

# The smallest share of its sectors that the dependent launch has to access before griddepcontrol.wait.
BEFORE_WAIT = 0.1


def plan_grading(job: Job) -> GradingPlan:
    """Return the plan of a kernel, with a check of the overlap before the speed is measured."""
    return plan_kernel_with(job, check_launches)


def check_launches(context: GradingContext) -> Finding | None:
    """Return a finding where the launches of the largest case overlap too little."""
    if context.counters is None:
        return None
    if finding := check_refused_launches(context.counters):
        return context.job.locate(finding)
    launches = list(zip(context.counters.transcript, context.counters.overlaps, strict=True))
    pairs = [(before, launch) for before, launch in pairwise(launches) if launch[0].programmatic_stream_serialization]
    cause = "no launch follows another one with the attribute for programmatic stream serialization"
    if pairs:
        (first, first_overlap), (second, second_overlap) = pairs[0]
        if first_overlap.before_trigger > BEFORE_TRIGGER:
            cause = (
                f"{first.kernel} lets dependents begin after {words.share(first_overlap.before_trigger)} of its"
                f" instructions, at most {words.share(BEFORE_TRIGGER)} are allowed"
            )
        elif second_overlap.before_wait < BEFORE_WAIT:
            cause = (
                f"{second.kernel} loads {words.share(second_overlap.before_wait)} of its sectors before the wait, at"
                f" least {words.share(BEFORE_WAIT)} are required"
            )
        else:
            return None
    return context.job.locate(Finding(Verdict.NO_OVERLAP, f"at {arguments(context.largest)}: {cause}"))
