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
from kernelpath.grading import compare, truth
from kernelpath.grading.conduct import Evidence
from kernelpath.grading.kinds.kernel import as_inputs
from kernelpath.grading.kinds.python import Python, told_tensor
from kernelpath.verdict import Complaint, Verdict
from kernelpath.work import messages
from kernelpath.work.runner import Runner, Stopped
from kernelpath.work.tensors import dtype_name, poison_, to_bytes


class Lab(Python):
    """The entry's own process holds no seed and no lab."""

    on_machine = True

    def call(
        self, runner: Runner, case: Case, seed: int, *, variety: InputMode = PLAIN, order: int = 0, label: str = ""
    ) -> Evidence:
        """The first call that is wrong, of that on the drawn lab and those on its variants; the last where none is."""
        drawn = truth.generate_inputs(self.exercise, case, seed, self.device, variety)
        evidence = self._once(runner, drawn)
        for inputs in labs.inputs_with_variants(drawn):
            if compare.judged(self.exercise, evidence) is not None:
                break
            evidence = self._once(runner, inputs)
        return evidence

    def _once(self, runner: Runner, inputs: tuple[Any, ...]) -> Evidence:
        runner.ready()
        lab = next(value for value in inputs if isinstance(value, labs.Lab))
        told = as_inputs([_part(value, lab, self.device) for value in inputs], runner.numbers)
        runner.ask_machine(device.BeginLab(runner.client, told, lab_server.described(lab)), Done)
        try:
            returned = runner.ask(messages.Run(case={}, seed=0), messages.Returned)
        except Stopped as stopped:
            raise Stopped(_forged(runner) or stopped.complaint) from None
        outputs = [told_tensor(one.dtype, one.shape, one.content, self.device) for one in returned.outputs]
        spans = [_span(output, place) for output, place in zip(outputs, returned.places, strict=False)]
        ended = runner.ask_machine(device.EndLab(runner.client, spans), device.LabEnded)
        assert ended is not None
        if isinstance(lab, Simulated) and ended.spent is not None:
            lab.spent = ended.spent
        if isinstance(lab, RecordedGpu) and ended.tuning is not None:
            lab.spent = ended.tuning
        complaint = self.conduct(returned, inputs)
        if ended.failed is not None:
            complaint = Complaint(Verdict.TAMPERED, ended.failed.text)
        if len(spans) != len(outputs):
            complaint = Complaint(Verdict.TAMPERED, "the submission answered in place of the worker")
        if complaint is None:
            held = [self._held(output, content) for output, content in zip(outputs, ended.held, strict=True)]
            outputs = list(lab.graded(outputs, held))
        return Evidence(inputs=inputs, outputs=outputs, complaint=complaint, operators=returned.operators)

    def _held(self, output: torch.Tensor, content: bytes | None) -> torch.Tensor:
        """The output as it is in the lab's memory; poison where it has none."""
        shape: Sequence[int] = output.shape
        if content is None:
            halves = torch.empty(output.nbytes // 2 * 2, dtype=torch.uint8)
            content = to_bytes(poison_(halves)) + bytes(output.nbytes % 2)
        return told_tensor(dtype_name(output.dtype), shape, content, self.device)


def _forged(runner: Runner) -> Complaint | None:
    """What the submission's process sent in place of a call, where that ended it."""
    ended = runner.ask_machine(device.EndLab(runner.client, ()), device.LabEnded) if runner.pids else None
    return Complaint(Verdict.TAMPERED, ended.failed.text) if ended is not None and ended.failed else None


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
