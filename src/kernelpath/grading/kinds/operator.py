"""Exercises whose kernels are behind an operator of torch.library: graded as kernels are, then for what is registered.

What is registered lies in the submission's own process, and is inspected there.
"""

from __future__ import annotations

from dataclasses import replace

from kernelpath.device import messages as device
from kernelpath.grading import ground_truth
from kernelpath.grading.kinds.kernel import Kernel, as_inputs
from kernelpath.verdict import Finding
from kernelpath.work import messages
from kernelpath.work.runner import Runner, SubmissionFailed

INSPECTION_SECONDS = 60.0
_INSPECTED = "; opcheck calls it here, also with the gradient of y.sum(), one element with strides of 0"


class Operator(Kernel):
    """The entry is called with its gradient; the problem's inputs and outputs are those of both."""

    def inspected(self, runner: Runner, seed: int) -> Finding | None:
        """What opcheck, autograd or torch.compile finds wrong with the operator, on the first case."""
        case = self.exercise.cases[0]
        try:
            runner.ready()
            if self.on_machine:
                drawn = ground_truth.generate_inputs(self.exercise, case, seed, "cpu")
                runner.request_machine(
                    device.Begin(runner.client, as_inputs(drawn, runner.storage_numbers), 0), device.Done
                )
            runner.request(messages.Inspect(case=dict(case), seed=seed), messages.Done, INSPECTION_SECONDS)
            return self._fault(runner)
        except SubmissionFailed as stopped:
            return self._fault(runner) or stopped.finding

    def _fault(self, runner: Runner) -> Finding | None:
        """What a kernel did wrong while the operator was inspected, and what it had not been called with before."""
        found = self._machine_says(runner) if self.on_machine else None
        return found and replace(found, cause=found.cause + _INSPECTED)
