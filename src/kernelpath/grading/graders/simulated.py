"""Grade exercises on a simulated device, which is in the device's process, with a GPU and without a GPU.

The submission has a proxy of the device that it can call. What the device knows and counts, and the memory that it
owns, are read from its process. The lab in the grader's inputs takes over the costs that the device counted.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import torch

from kernelpath.course import labs
from kernelpath.course.inputs import PLAIN, InputMode
from kernelpath.course.labs import bus
from kernelpath.course.labs.ci_machine import CiMachine
from kernelpath.course.labs.recorded import RecordedGpu
from kernelpath.course.labs.timer import Device
from kernelpath.course.problem import Case
from kernelpath.device import lab_messages as device
from kernelpath.device import lab_server
from kernelpath.device.messages import Acknowledged, LabPart
from kernelpath.grading import compare, ground_truth
from kernelpath.grading.graders.machine import encode_inputs
from kernelpath.grading.graders.results import decode_output, decode_tensor, process_finding
from kernelpath.grading.job import Job
from kernelpath.grading.provenance import Observation
from kernelpath.grading.workers import SLOW_IMPORTS, ProcessSetup
from kernelpath.verdict import Finding, Verdict
from kernelpath.work import messages
from kernelpath.work.runner import UNEXPECTED_RESPONSE, Runner, SubmissionFailed
from kernelpath.work.tensors import dtype_name, poison_, to_bytes


class Simulated:
    """Calls an entry whose own process holds no seed and no lab. See `Grader` for its methods."""

    needs_shadow_run = False

    def __init__(self, job: Job) -> None:
        self.exercise = job.exercise
        preload = SLOW_IMPORTS.get(job.item.lane, "")
        self.setup = ProcessSetup(job.device, on_machine=True, preload=preload, entry=job.exercise.entry)

    def call(
        self, runner: Runner, case: Case, seed: int, *, variety: InputMode = PLAIN, order: int = 0, label: str = ""
    ) -> Observation:
        """Call the entry on a lab and its variants, and return the first wrong call, or the last call if none is."""
        inputs = ground_truth.generate_inputs(self.exercise, case, seed, self.setup.device, variety)
        observation = self._call_once(runner, inputs)
        for variant in labs.inputs_with_variants(inputs):
            if compare.check_observation(self.exercise, observation) is not None:
                break
            observation = self._call_once(runner, variant)
        return observation

    def _call_once(self, runner: Runner, inputs: tuple[Any, ...]) -> Observation:
        runner.ready()
        lab = next(value for value in inputs if isinstance(value, labs.Lab))
        arguments = [_encode_lab(value, lab, self.setup.device) for value in inputs]
        encoded = encode_inputs(arguments, runner.storage_numbers)
        runner.request_machine(device.BeginLab(runner.client, encoded, lab_server.describe(lab)), Acknowledged)
        try:
            result = runner.request(messages.Run(case={}, seed=0), messages.CallResult)
        except SubmissionFailed as error:
            raise SubmissionFailed(_forgery_finding(runner) or error.finding) from None
        outputs = [decode_output(output, self.setup.device) for output in result.outputs]
        # The response is not trusted. If it has too few references, that is reported below.
        spans = [_span(output, place) for output, place in zip(outputs, result.output_refs, strict=False)]
        call_end = runner.request_machine(device.EndLab(runner.client, spans), device.LabReport)
        assert call_end is not None
        if isinstance(lab, bus.SimulatedRuntime) and call_end.spent is not None:
            lab.spent = call_end.spent
        if isinstance(lab, RecordedGpu) and call_end.tuning is not None:
            lab.spent = call_end.tuning
        finding = self.check_process(result, inputs)
        if call_end.failed is not None:
            finding = Finding(Verdict.TAMPERED, call_end.failed.text)
        # The response and the device's report come from two processes, and must describe the same call.
        if len(spans) != len(outputs):
            finding = UNEXPECTED_RESPONSE
        if finding is None:
            # What counts is the simulated device's memory. The submission's own copy of an output is only a view of it.
            in_lab = [
                self._decode(output, content) for output, content in zip(outputs, call_end.output_contents, strict=True)
            ]
            outputs = list(lab.graded(outputs, in_lab))
        return Observation(inputs=inputs, outputs=outputs, finding=finding, operators=result.operators)

    def check_process(self, result: messages.CallResult, inputs: tuple[object, ...]) -> Finding | None:
        return process_finding(result, inputs, self.exercise.overwritten(inputs))

    def check(self, observation: Observation) -> Finding | None:
        return compare.check_observation(self.exercise, observation)

    def add_writer(self, runner: Runner, observation: Observation, finding: Finding) -> Finding:
        """Return the finding as it is: there is no kernel whose thread wrote the wrong element."""
        return finding

    def _decode(self, output: torch.Tensor, content: bytes | None) -> torch.Tensor:
        """Return the output as it is in the lab's memory; poison where the lab's memory does not have it."""
        if content is None:
            # The comparison then reports an output that was never written.
            halves = torch.empty(output.nbytes // 2 * 2, dtype=torch.uint8)
            content = to_bytes(poison_(halves)) + bytes(output.nbytes % 2)
        return decode_tensor(dtype_name(output.dtype), output.shape, content, self.setup.device)


def _forgery_finding(runner: Runner) -> Finding | None:
    """Return a finding about a message that no proxy sends, if such a message ended the call."""
    call_end = runner.request_machine(device.EndLab(runner.client, ()), device.LabReport) if runner.pids else None
    return Finding(Verdict.TAMPERED, call_end.failed.text) if call_end is not None and call_end.failed else None


_KINDS: Mapping[type[labs.Lab], Literal["bus", "timer", "recorded", "ci_machine"]] = {
    bus.SimulatedRuntime: "bus",
    Device: "timer",
    RecordedGpu: "recorded",
    CiMachine: "ci_machine",
}


def _encode_lab(value: Any, lab: labs.Lab, device_name: str) -> Any:
    """Return an input for the wire, where the lab is a LabPart, and a method of the lab a LabPart with its name."""
    kind = _KINDS[type(lab)]
    if value is lab:
        return LabPart(kind, device_name)
    return LabPart(kind, device_name, value.__name__) if getattr(value, "__self__", None) is lab else value


def _span(output: torch.Tensor, place: Any) -> device.ByteRange:
    return device.ByteRange(place.storage, place.offset * output.element_size(), output.nbytes)
