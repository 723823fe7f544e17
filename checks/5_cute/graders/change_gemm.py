"""Grade change requests: run the kernel by the contract of each request, and count what was changed.

Unlike in a repair, nothing was faulty, so there is no fault to name.
"""

from __future__ import annotations

from kernelpath.grading.by_kind import GradingPlan
from kernelpath.grading.graders.kernel_on_machine import KernelOnMachine
from kernelpath.grading.job import Job
from kernelpath.grading.repair import check_changes, run_broken_cases
from kernelpath.grading.steps import check_capability, repeat_cases


def plan_grading(job: Job) -> GradingPlan:
    """Return the grader of kernels on the PTX machine, and the steps of a repair without the diagnosis."""
    return GradingPlan(KernelOnMachine(job), (check_capability, run_broken_cases, repeat_cases, check_changes))
