"""Exercises whose kernels do the work: on a GPU, or on the PTX machine, which sees who did."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import starmap
from pathlib import Path
from typing import Any

import torch
from msgspec.structs import replace as replace_struct

from kernelpath.course.inputs import PLAIN, InputMode
from kernelpath.course.problem import Case
from kernelpath.course.registry import Lane
from kernelpath.course.spec import Exercise
from kernelpath.device import messages as device
from kernelpath.grading import ground_truth
from kernelpath.grading.kinds.python import Python, seen, told_tensor
from kernelpath.grading.provenance import MUTATED, Observation, borrowed, computed, launched_nothing
from kernelpath.grading.traffic import line_traffic
from kernelpath.line_counters import LineInstructions
from kernelpath.verdict import Finding, Verdict
from kernelpath.work import messages
from kernelpath.work.exception_findings import FAULT_VERDICTS
from kernelpath.work.runner import Runner, SubmissionFailed
from kernelpath.work.tensors import dtype_name, storage_bytes, to_bytes
from warpcheck.frontends.tuning import Chosen

_ENDINGS = {
    **{kind.name: verdict for kind, verdict in FAULT_VERDICTS.items()},
    "TIMED_OUT": Verdict.TIMED_OUT,
    "DEADLOCK": Verdict.DEADLOCK,
}


NOTHING = Chosen()


class Kernel(Python):
    """On the CPU inputs and outputs are the PTX machine's, and so is the word on what happened."""

    def __init__(self, exercise: Exercise, on: str) -> None:
        super().__init__(exercise, on)
        self.on_machine = self.twin = on == "cpu"

    def conduct(self, returned: messages.CallResult, inputs: tuple[object, ...]) -> Finding | None:
        overwritten = self.exercise.overwritten(inputs)
        return seen(returned, inputs, overwritten) or borrowed(
            returned.operators, returned.launches, self.exercise.entry
        )

    def _request(self, inputs: Sequence[Any], case: Case, seed: int, variety: InputMode) -> messages.WorkerRequest:
        """On a GPU the submission's process draws them, with their strides, and gigabytes need not be sent."""
        return messages.Run(case=dict(case), seed=seed, variety=variety)

    def call(
        self,
        runner: Runner,
        case: Case,
        seed: int,
        *,
        variety: InputMode = PLAIN,
        order: int = 0,
        negated: bool = False,
        chosen: Chosen = NOTHING,
        label: str = "",
        judged: bool = True,
    ) -> Observation:
        """chosen: what a GPU decided about the kernels, which holds on the PTX machine. negated, label: as in
        device.Begin. judged: False where the transcript alone is of interest, so that no output is sent.
        """
        if not self.on_machine:
            return super().call(runner, case, seed, variety=variety)
        runner.ready()
        drawn = ground_truth.generate_inputs(self.exercise, case, seed, "cpu", variety)
        inputs = as_inputs(drawn, runner.storage_numbers)
        runner.request_machine(device.Begin(runner.client, inputs, order, negated, label), device.Done)
        try:
            placed = runner.request(messages.Run(case=dict(case), seed=0, chosen=chosen), messages.OutputRefs)
        except SubmissionFailed as stopped:
            raise SubmissionFailed(self._machine_says(runner) or stopped.finding) from None
        overwritten = self.exercise.overwritten(inputs.arguments)
        if not judged:
            ended = runner.request_machine(device.End(runner.client, (), counted=False), device.Ended)
            assert ended is not None
            finding = finding_of(ended.failed) if ended.failed is not None else None
            return Observation(drawn, (), finding, notes=ended.notes, operators=placed.operators)
        places = overwritten or placed.outputs
        asked = [_storage_of(place, inputs) for place in overwritten] or placed.outputs
        ended = runner.request_machine(device.End(runner.client, asked), device.Ended)
        assert ended is not None
        contents = [output.content for output in ended.outputs]
        if overwritten:
            contents, ended = _taken(overwritten, inputs, ended)
        finding = self._finding(ended, placed)
        outputs: list[torch.Tensor] = []
        if finding is None:
            outputs = [
                told_tensor(place.dtype, place.shape, content, "cpu")
                for place, content in zip(places, contents, strict=True)
            ]
        return Observation(
            inputs=drawn,
            outputs=outputs,
            finding=finding,
            traffic=line_traffic(one for one in ended.accesses if Path(one[0]).stem != messages.PRODUCT),
            instructions=tuple(starmap(LineInstructions, ended.instructions)),
            notes=ended.notes,
            tensor=ended.tensor,
            workspace=ended.workspace,
            flops=self.exercise.flops(**case) if self.exercise.flops else 0,
            operators=placed.operators,
            places=places,
        )

    def with_writer(self, runner: Runner, observation: Observation, finding: Finding, lane: Lane) -> Finding:
        if finding.element is None or not self.on_machine:
            return finding
        output, element = finding.element
        place = observation.places[output]
        itemsize = torch.empty(0, dtype=getattr(torch, place.dtype)).element_size()
        asked = device.AskWriter(runner.client, place.storage, (place.offset + element) * itemsize)
        writer = runner.request_machine(asked, device.Writer)
        if writer is None and lane == "triton" and observation.notes:
            return replace(finding, cause=f"{finding.cause}; {_programs(observation.notes)}")
        if writer is None or Path(writer.file).stem == messages.PRODUCT:
            return finding
        who = f"program {writer.block}" if lane == "triton" else f"thread {writer.thread} of block {writer.block}"
        cause = f"{finding.cause}; {who} wrote the first of them"
        return replace(finding, cause=cause, file=Path(writer.file).name, line=writer.line)

    def _machine_says(self, runner: Runner) -> Finding | None:
        """What a kernel did wrong, whatever the submission's process made of it."""
        if not runner.pids:
            return None
        ended = runner.request_machine(device.End(runner.client, ()), device.Ended)
        return finding_of(ended.failed) if ended is not None and ended.failed else None

    def _finding(self, ended: device.Ended, placed: messages.OutputRefs) -> Finding | None:
        entry = self.exercise.entry
        if ended.failed is not None:
            return finding_of(ended.failed)
        if placed.tampered:
            return Finding(Verdict.TAMPERED, placed.tampered)
        if ended.mutated:
            return MUTATED
        if not ended.notes:
            return computed(placed.operators, entry) or launched_nothing(ended.notes, entry)
        fault = next((output.fault for output in ended.outputs if output.fault), "")
        if fault:
            return computed(placed.operators, entry) or Finding(Verdict.NOT_YOUR_KERNEL, fault)
        return None


def as_inputs(drawn: Sequence[Any], fresh: Iterator[int], *, far: bool = False) -> device.Inputs:
    """The drawn arguments for the machine; tensors on torch's meta device get address spans.

    fresh: numbers for their storages, which are negative there.
    """
    numbers: dict[int, int] = {}
    storages: dict[int, bytes] = {}
    spans: dict[int, int] = {}
    arguments: list[Any] = []
    for value in drawn:
        if isinstance(value, torch.device):
            value = device.TorchDevice(str(value))
        elif isinstance(value, torch.Tensor):
            storage = value.untyped_storage()
            number = numbers.get(storage._cdata)
            if number is None:
                number = numbers[storage._cdata] = -next(fresh)
                if value.is_meta:
                    spans[number] = storage.nbytes()
                else:
                    storages[number] = to_bytes(storage_bytes(value))
            shape, strides, offset = list(value.shape), list(value.stride()), int(value.storage_offset())
            value = device.Strided(number, dtype_name(value.dtype), shape, strides, offset)
        arguments.append(value)
    return device.Inputs(arguments, storages, far, spans)


_SHOWN = 3
"""Launches that a message tells of."""


def _programs(notes: Sequence[device.Note]) -> str:
    """How many programs each of Triton's kernels had: "softmax_rows ran in 3 x 2 programs"."""
    told = []
    for note in notes[:_SHOWN]:
        x, y, z = (count // wide for count, wide in zip(note.grid, note.cluster or (1, 1, 1), strict=True))
        extents = (x, y, z)[: 3 if z > 1 else 2 if y > 1 else 1]
        programs = "program" if extents == (1,) else "programs"
        told.append(f"{note.kernel} ran in {' x '.join(f'{extent:,}' for extent in extents)} {programs}")
    return ", ".join(told) + ", …" * (len(notes) > _SHOWN)


def _storage_of(place: device.Strided, inputs: device.Inputs) -> device.Strided:
    """All bytes of the storage that a tensor is in."""
    return device.Strided(place.storage, "uint8", [len(inputs.storages[place.storage])], [1], 0)


def _taken(
    overwritten: Sequence[device.Strided], inputs: device.Inputs, ended: device.Ended
) -> tuple[list[bytes], device.Ended]:
    """The bytes of inputs that a call overwrites, out of their storages; those are mutated where others differ."""
    mutated = {*ended.mutated} - {place.storage for place in overwritten}
    contents = []
    for place, output in zip(overwritten, ended.outputs, strict=True):
        itemsize = getattr(torch, place.dtype).itemsize
        start, drawn = place.offset * itemsize, inputs.storages[place.storage]
        end = start + math.prod(place.shape) * itemsize
        contents.append(output.content[start:end])
        if (drawn[:start], drawn[end:]) != (output.content[:start], output.content[end:]) and not output.fault:
            mutated.add(place.storage)
    return contents, replace_struct(ended, mutated=sorted(mutated))


def finding_of(failed: device.Failed) -> Finding:
    """How a kernel ended, as a verdict."""
    if failed.kind == "FORGED":
        return Finding(Verdict.TAMPERED, failed.text)
    return Finding(_ENDINGS.get(failed.kind, Verdict.CRASHED), failed.text, failed.file, failed.line)
