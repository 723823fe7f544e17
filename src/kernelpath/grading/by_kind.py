"""Choose how a job is graded, by the kind of its exercise: the grader, and the steps of the grading."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from kernelpath.course import registry
from kernelpath.grading.context import Step
from kernelpath.grading.graders import Grader
from kernelpath.grading.graders.distributed import Distributed
from kernelpath.grading.graders.kernel_on_gpu import KernelOnGpu
from kernelpath.grading.graders.kernel_on_machine import KernelOnMachine
from kernelpath.grading.graders.python_call import PythonCall
from kernelpath.grading.graders.simulated import Simulated
from kernelpath.grading.graders.trace import Trace
from kernelpath.grading.job import Job
from kernelpath.grading.repair import check_changes, check_diagnosis, run_broken_cases
from kernelpath.grading.steps import (
    check_capability,
    check_counters,
    check_gpu_run,
    check_large_offsets,
    check_network,
    check_overlap,
    check_registers,
    check_tensor_cores,
    inspect_operator,
    measure_on_gpus,
    measure_speed,
    repeat_cases,
    run_cases,
    run_edge_cases,
    run_program_on_gpu,
    start_cpu_shadow,
)


@dataclass(frozen=True)
class GradingPlan:
    """How a job is graded.

    Attributes:
        grader: Calls the entry.
        steps: The steps in order. The first finding is the verdict.
    """

    grader: Grader
    steps: Sequence[Step]


def plan_grading(job: Job) -> GradingPlan:
    """Return how a job is graded: as the exercise's own module of graders says, else as its kind does.

    Such a module has a function `plan_grading` like this one. It is for steps that no other exercise needs.
    """
    own_grader = job.item.grader
    if own_grader.is_file():
        module = registry.import_file(own_grader, f"kernelpath_grader_{job.item.name}", listed=False)
        plan: GradingPlan = module.plan_grading(job)
        return plan
    return _PLANS[job.exercise.kind](job)


# The steps for an exercise of which the result alone is graded.
_RESULT_STEPS: Sequence[Step] = (check_capability, run_cases, measure_speed)

# The steps for kernels whose results are right in all cases.
_LIMIT_STEPS: Sequence[Step] = (
    check_counters,
    check_tensor_cores,
    check_overlap,
    check_registers,
    check_large_offsets,
    measure_speed,
)


def plan_kernel(job: Job, inspections: Sequence[Step] = (), preload: str = "") -> GradingPlan:
    """Return the plan for kernels.

    Args:
        job: The job.
        inspections: Further steps for kernels whose results are right in all cases.
        preload: The module with which the workers inspect, instead of the lane's.
    """
    if job.device == "cpu":
        steps = (check_capability, run_cases, repeat_cases, *inspections, *_LIMIT_STEPS)
        return GradingPlan(KernelOnMachine(job, preload), steps)
    # The machine runs the kernels while the GPU does. Its counters stand for the GPU only if both launched the same, so
    # check_gpu_run comes before the limits.
    run_steps = (check_capability, start_cpu_shadow, run_cases, repeat_cases)
    return GradingPlan(KernelOnGpu(job, preload), (*run_steps, *inspections, check_gpu_run, *_LIMIT_STEPS))


def plan_kernel_with(job: Job, check: Step) -> GradingPlan:
    """Return the plan for kernels, with a further check after all limits and before the measurement of the speed."""
    plan = plan_kernel(job)
    place = plan.steps.index(measure_speed)
    return replace(plan, steps=(*plan.steps[:place], check, *plan.steps[place:]))


_PLANS: dict[str, Callable[[Job], GradingPlan]] = {
    "kernel": plan_kernel,
    "operator": lambda job: plan_kernel(job, [inspect_operator], "kernelpath.work.operators"),
    "library": lambda job: plan_kernel(job, [inspect_operator], "kernelpath.work.package"),
    "python": lambda job: GradingPlan(PythonCall(job), (check_capability, run_cases, run_edge_cases, measure_speed)),
    "lab": lambda job: GradingPlan(Simulated(job), _RESULT_STEPS),
    "repair": lambda job: GradingPlan(
        KernelOnMachine(job), (check_capability, run_broken_cases, repeat_cases, check_changes, check_diagnosis)
    ),
    "program": lambda job: GradingPlan(
        KernelOnMachine(job), (check_capability, run_cases, repeat_cases, check_counters, run_program_on_gpu)
    ),
    "trace": lambda job: GradingPlan(Trace(job), _RESULT_STEPS),
    "distributed": lambda job: GradingPlan(
        Distributed(job), (check_capability, run_cases, check_network, measure_on_gpus)
    ),
}
