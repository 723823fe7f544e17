"""Grade few_rows: besides what every kernel is graded by, the blocks that read the matrix have to fill the GPU."""

from __future__ import annotations

from kernelpath.grading.block_share import plan_shared_reads
from kernelpath.grading.by_kind import GradingPlan
from kernelpath.grading.job import Job


def plan_grading(job: Job) -> GradingPlan:
    """Return the plan of a kernel of which no block may read more of w than one SM's share."""
    return plan_shared_reads(job, {"w": 1})
