"""Grade embedding_gradient: besides what every kernel is graded by, no block may have all rows of a frequent token."""

from __future__ import annotations

from kernelpath.grading.block_share import plan_shared_reads
from kernelpath.grading.by_kind import GradingPlan
from kernelpath.grading.job import Job


def plan_grading(job: Job) -> GradingPlan:
    """Return the plan of a kernel of which no block may read more of dy than one SM's share."""
    return plan_shared_reads(job, {"dy": 0})
