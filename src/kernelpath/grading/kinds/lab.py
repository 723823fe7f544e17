"""Exercises on a simulated device, which is in the device's process, with a GPU and without one.

The submission has a proxy that it can call. What the device knows and counts, and the memory that it owns, are read
there; the drawn lab of the grader's inputs takes over what was spent.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import torch

from kernelpath.course import labs
from kernelpath.course.inputs import PLAIN, InputMode
from kernelpath.course.labs.bus import Simulated
from kernelpath.course.labs.recorded import RecordedGpu
from kernelpath.course.labs.timer import Device
from kernelpath.course.problem import Case
from kernelpath.device import lab_messages as device
from kernelpath.device import lab_server
from kernelpath.device.messages import Done, LabPart
from kernelpath.grading import compare, ground_truth
from kernelpath.grading.kinds.kernel import as_inputs
from kernelpath.grading.kinds.python import Python, told_tensor
from kernelpath.grading.provenance import Observation
from kernelpath.verdict import Finding, Verdict
from kernelpath.work import messages
from kernelpath.work.runner import Runner, SubmissionFailed
from kernelpath.work.tensors import dtype_name, poison_, to_bytes


class Lab(Python):
    """The entry's own process holds no seed and no lab."""

    on_machine = True

    def call(
        self, runner: Runner, case: Case, seed: int, *, variety: InputMode = PLAIN, order: int = 0, label: str = ""
    ) -> Observation:
        """The first call that is wrong, of that on the drawn lab and those on its variants; the last where none is."""
        drawn = ground_truth.generate_inputs(self.exercise, case, seed, self.device, variety)
        observation = self._once(runner, drawn)
        for inputs in labs.inputs_with_variants(drawn):
            if compare.judged(self.exercise, observation) is not None:
                break
            observation = self._once(runner, inputs)
        return observation

    def _once(self, runner: Runner, inputs: tuple[Any, ...]) -> Observation:
        runner.ready()
        lab = next(value for value in inputs if isinstance(value, labs.Lab))
        told = as_inputs([_part(value, lab, self.device) for value in inputs], runner.storage_numbers)
        runner.request_machine(device.BeginLab(runner.client, told, lab_server.described(lab)), Done)
        try:
            returned = runner.request(messages.Run(case={}, seed=0), messages.CallResult)
        except SubmissionFailed as stopped:
            raise SubmissionFailed(_forged(runner) or stopped.finding) from None
        outputs = [told_tensor(one.dtype, one.shape, one.content, self.device) for one in returned.outputs]
        spans = [_span(output, place) for output, place in zip(outputs, returned.output_refs, strict=False)]
        ended = runner.request_machine(device.EndLab(runner.client, spans), device.LabEnded)
        assert ended is not None
        if isinstance(lab, Simulated) and ended.spent is not None:
            lab.spent = ended.spent
        if isinstance(lab, RecordedGpu) and ended.tuning is not None:
            lab.spent = ended.tuning
        finding = self.conduct(returned, inputs)
        if ended.failed is not None:
            finding = Finding(Verdict.TAMPERED, ended.failed.text)
        if len(spans) != len(outputs):
            finding = Finding(Verdict.TAMPERED, "the submission answered in place of the worker")
        if finding is None:
            held = [self._held(output, content) for output, content in zip(outputs, ended.held, strict=True)]
            outputs = list(lab.graded(outputs, held))
        return Observation(inputs=inputs, outputs=outputs, finding=finding, operators=returned.operators)

    def _held(self, output: torch.Tensor, content: bytes | None) -> torch.Tensor:
        """The output as it is in the lab's memory; poison where it has none."""
        shape: Sequence[int] = output.shape
        if content is None:
            halves = torch.empty(output.nbytes // 2 * 2, dtype=torch.uint8)
            content = to_bytes(poison_(halves)) + bytes(output.nbytes % 2)
        return told_tensor(dtype_name(output.dtype), shape, content, self.device)


def _forged(runner: Runner) -> Finding | None:
    """What the submission's process sent in place of a call, where that ended it."""
    ended = runner.request_machine(device.EndLab(runner.client, ()), device.LabEnded) if runner.pids else None
    return Finding(Verdict.TAMPERED, ended.failed.text) if ended is not None and ended.failed else None


_KINDS: Mapping[type[labs.Lab], Literal["bus", "timer", "recorded"]] = {
    Simulated: "bus",
    Device: "timer",
    RecordedGpu: "recorded",
}


def _part(value: Any, lab: labs.Lab, on: str) -> Any:
    """An input for the wire: the lab and its methods by name."""
    kind = _KINDS[type(lab)]
    if value is lab:
        return LabPart(kind, on)
    return LabPart(kind, on, value.__name__) if getattr(value, "__self__", None) is lab else value


def _span(output: torch.Tensor, place: Any) -> device.Span:
    return device.Span(place.storage, place.offset * output.element_size(), output.nbytes)
