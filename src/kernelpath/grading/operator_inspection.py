"""Inspect the operator of torch.library that kernels are behind.

The kernels are graded like any others; the inputs and outputs of the problem include those of the gradient. The
registered operator is in the submission's own process, and is inspected there.
"""

from __future__ import annotations

from kernelpath.device import messages as device
from kernelpath.grading import ground_truth
from kernelpath.grading.context import GradingContext
from kernelpath.grading.graders.machine import encode_inputs, fault_on_machine
from kernelpath.verdict import Finding
from kernelpath.work import messages
from kernelpath.work.runner import SubmissionFailed

INSPECTION_SECONDS = 60.0
_INSPECTED = "; opcheck calls it here, also with the gradient of y.sum(), one element with strides of 0"


def inspect_operator(context: GradingContext) -> Finding | None:
    """Return what opcheck, autograd or torch.compile reports about the operator, on the first case."""
    context.progress("inspecting the operator")
    case = context.job.exercise.cases[0]
    runner = context.runner
    try:
        runner.ready()
        if context.grader.setup.on_machine:
            inputs = ground_truth.generate_inputs(context.job.exercise, case, context.seed, "cpu")
            encoded = encode_inputs(inputs, runner.storage_numbers)
            runner.request_machine(device.Begin(runner.client, encoded, 0), device.Acknowledged)
        runner.request(messages.Inspect(case=dict(case), seed=context.seed), messages.Done, INSPECTION_SECONDS)
        finding = _inspection_fault(context)
    except SubmissionFailed as error:
        finding = _inspection_fault(context) or error.finding
    return context.job.locate(finding)


def _inspection_fault(context: GradingContext) -> Finding | None:
    """Return a kernel's fault during the inspection, and say with which new arguments the kernel was called."""
    if not context.grader.setup.on_machine:
        return None
    return fault_on_machine(context.runner, context.job.submission, _INSPECTED)
