"""Grade exercises whose kernels are behind an operator of torch.library.

The kernels are graded first. The registered operator is in the submission's own process, and is inspected there.
"""

from __future__ import annotations

from dataclasses import replace

from kernelpath.device import messages as device
from kernelpath.grading import ground_truth
from kernelpath.grading.kinds.kernel import Kernel, encode_inputs
from kernelpath.verdict import Finding
from kernelpath.work import messages
from kernelpath.work.runner import Runner, SubmissionFailed

INSPECTION_SECONDS = 60.0
_INSPECTED = "; opcheck calls it here, also with the gradient of y.sum(), one element with strides of 0"


class Operator(Kernel):
    """Calls an entry with its gradient. The problem's inputs and outputs include those of the gradient."""

    def inspect(self, runner: Runner, seed: int) -> Finding | None:
        """Return what opcheck, autograd or torch.compile reports about the operator, on the first case."""
        case = self.exercise.cases[0]
        try:
            runner.ready()
            if self.on_machine:
                inputs = ground_truth.generate_inputs(self.exercise, case, seed, "cpu")
                encoded = encode_inputs(inputs, runner.storage_numbers)
                runner.request_machine(device.Begin(runner.client, encoded, 0), device.Done)
            runner.request(messages.Inspect(case=dict(case), seed=seed), messages.Done, INSPECTION_SECONDS)
            return self._inspection_fault(runner)
        except SubmissionFailed as error:
            return self._inspection_fault(runner) or error.finding

    def _inspection_fault(self, runner: Runner) -> Finding | None:
        """Return a kernel's fault during the inspection, and say with which new arguments the kernel was called."""
        fault = self._fault_on_machine(runner) if self.on_machine else None
        return fault and replace(fault, cause=fault.cause + _INSPECTED)
