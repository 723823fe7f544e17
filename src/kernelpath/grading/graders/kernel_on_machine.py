"""Grade kernels on the PTX machine, which holds inputs and outputs and sees who did the work."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch
from msgspec.structs import replace as replace_struct

from kernelpath.course.inputs import PLAIN, InputMode
from kernelpath.course.problem import Case
from kernelpath.device import messages as device
from kernelpath.device.case import NOT_FROM_KERNEL
from kernelpath.grading import compare, ground_truth
from kernelpath.grading.graders.machine import encode_inputs, fault_on_machine, machine_finding
from kernelpath.grading.graders.results import decode_tensor, kernel_process_finding
from kernelpath.grading.job import Job
from kernelpath.grading.provenance import MUTATED, Observation, no_launch_finding, operators_finding
from kernelpath.grading.workers import SLOW_IMPORTS, ProcessSetup
from kernelpath.verdict import Finding, Verdict
from kernelpath.work import messages
from kernelpath.work.runner import Runner, SubmissionFailed
from warpcheck.frontends.host_program_errors import COPY_SOURCES
from warpcheck.frontends.tuning import Chosen

NO_CHOICES = Chosen()


def is_simulated_copy(file: str) -> bool:
    """Return whether a file is the source of the kernels that copy and fill memory for a host program."""
    return Path(file).name in COPY_SOURCES


class KernelOnMachine:
    """Calls an entry whose kernels run on the PTX machine. See `Grader` for its methods.

    Args:
        job: The job. Its device may be a GPU: then the machine runs the kernels besides.
        preload: The module that the workers need, instead of the lane's.
    """

    needs_shadow_run = True

    def __init__(self, job: Job, preload: str = "") -> None:
        self.exercise = job.exercise
        self.setup = ProcessSetup("cpu", on_machine=True, preload=preload or SLOW_IMPORTS.get(job.item.lane, ""))
        self._submission = job.submission
        self._is_triton = job.item.lane == "triton"

    def call(
        self,
        runner: Runner,
        case: Case,
        seed: int,
        *,
        variety: InputMode = PLAIN,
        order: int = 0,
        negated: bool = False,
        chosen: Chosen = NO_CHOICES,
        label: str = "",
        with_outputs: bool = True,
    ) -> Observation:
        """Call the entry on inputs generated from the seed. See Grader.call.

        Args:
            negated: Whether the PTX machine negates the results of tensor cores; see device.messages.Begin.
            chosen: The configurations that a GPU's autotuning chose, which the call on the PTX machine must use.
            with_outputs: Whether the outputs are fetched. Otherwise the observation has the transcript alone.
        """
        # A new worker is a new client of the machine, whose storages are numbered from the start. It has to exist
        # before the inputs get their numbers.
        runner.ready()
        inputs = ground_truth.generate_inputs(self.exercise, case, seed, "cpu", variety)
        world = case["world"] if self.exercise.ranks else 0
        assert isinstance(world, int)
        encoded = encode_inputs(inputs, runner.storage_numbers, ranks=world)
        runner.request_machine(device.Begin(runner.client, encoded, order, negated, label), device.Acknowledged)
        try:
            # The worker fetches the inputs from the machine, so this seed is not used.
            output_refs = runner.request(messages.Run(case=dict(case), seed=0, chosen=chosen), messages.OutputRefs)
        except SubmissionFailed as error:
            fault = fault_on_machine(runner, self._submission)
            # A copy of a host program is a kernel on the machine, whose source no learner knows. The program's process
            # knows the line of the call.
            if fault is None or is_simulated_copy(fault.file):
                fault = error.finding
            raise SubmissionFailed(fault) from None
        overwritten = self.exercise.overwritten(encoded.arguments)
        if not with_outputs:
            call_end = runner.request_machine(device.End(runner.client, (), counted=False), device.CaseReport)
            assert call_end is not None
            finding = machine_finding(call_end.failed, self._submission) if call_end.failed is not None else None
            return Observation(inputs, (), finding, transcript=call_end.transcript, operators=output_refs.operators)
        places = overwritten or output_refs.outputs
        # Of an overwritten input the whole storage is fetched: what surrounds it must not have changed.
        measures_reads = self.exercise.measures_reads and case is self.exercise.largest
        fetched = [_whole_storage(place, encoded) for place in overwritten] or output_refs.outputs
        call_end = runner.request_machine(
            device.End(runner.client, fetched, measures_reads=measures_reads), device.CaseReport
        )
        assert call_end is not None
        contents = [output.content for output in call_end.outputs]
        if overwritten:
            contents, call_end = _extract_overwritten(overwritten, encoded, call_end)
        finding = self._call_finding(call_end, output_refs)
        outputs: list[torch.Tensor] = []
        if finding is None:
            outputs = [
                decode_tensor(place.dtype, place.shape, content, "cpu")
                for place, content in zip(places, contents, strict=True)
            ]
        return Observation(
            inputs=inputs,
            outputs=outputs,
            finding=finding,
            # The kernels of torch.mm are the grader's own: their accesses are nothing to grade.
            traffic=tuple(line for line in call_end.traffic if Path(line.file).stem != messages.PRODUCT),
            instructions=tuple(call_end.instructions),
            transcript=call_end.transcript,
            tensor_core_operations=call_end.tensor,
            workspace=call_end.workspace,
            overlaps=call_end.overlaps,
            most_read=call_end.most_read,
            flops=self.exercise.flops(**case) if self.exercise.flops else 0,
            operators=output_refs.operators,
            places=places,
        )

    def check_process(self, result: messages.CallResult, inputs: tuple[object, ...]) -> Finding | None:
        return kernel_process_finding(self.exercise, result, inputs)

    def check(self, observation: Observation) -> Finding | None:
        return compare.check_observation(self.exercise, observation)

    def add_writer(self, runner: Runner, observation: Observation, finding: Finding) -> Finding:
        if finding.element is None:
            return finding
        output, element = finding.element
        place = observation.places[output]
        itemsize = torch.empty(0, dtype=getattr(torch, place.dtype)).element_size()
        question = device.GetLastWriter(runner.client, place.storage, (place.offset + element) * itemsize)
        writer = runner.request_machine(question, device.LastWriter)
        if writer is None and self._is_triton and observation.transcript:
            return replace(finding, cause=f"{finding.cause}; {_describe_programs(observation.transcript)}")
        if writer is None or Path(writer.file).stem == messages.PRODUCT or is_simulated_copy(writer.file):
            return finding
        thread = f"program {writer.block}" if self._is_triton else f"thread {writer.thread} of block {writer.block}"
        cause = f"{finding.cause}; {thread} wrote the first of them"
        return replace(finding, cause=cause, file=Path(writer.file).name, line=writer.line)

    def _call_finding(self, call_end: device.CaseReport, output_refs: messages.OutputRefs) -> Finding | None:
        entry = self.exercise.entry
        if call_end.failed is not None:
            return machine_finding(call_end.failed, self._submission)
        if output_refs.tampered:
            return Finding(Verdict.TAMPERED, output_refs.tampered)
        if call_end.mutated:
            return MUTATED
        if not call_end.transcript:
            return operators_finding(output_refs.operators, entry) or no_launch_finding(call_end.transcript, entry)
        fault = next((output.fault for output in call_end.outputs if output.fault), "")
        if fault == NOT_FROM_KERNEL and self.exercise.kind == "program":
            return Finding(Verdict.NOT_WRITTEN, "no cudaMemcpy copies anything into the array of the result")
        if fault:
            return operators_finding(output_refs.operators, entry) or Finding(Verdict.NOT_YOUR_KERNEL, fault)
        return None


# The launches that a message describes.
_MAX_DESCRIBED = 3


def _describe_programs(transcript: Sequence[device.LaunchEntry]) -> str:
    """Say how many programs each of Triton's kernels had: "softmax_rows ran in 3 x 2 programs"."""
    descriptions = []
    for launch in transcript[:_MAX_DESCRIBED]:
        # A cluster of blocks runs one program of Triton.
        cluster = launch.cluster or (1, 1, 1)
        x, y, z = (blocks // size for blocks, size in zip(launch.grid, cluster, strict=True))
        if z > 1:
            extents: tuple[int, ...] = (x, y, z)
        else:
            extents = (x, y) if y > 1 else (x,)
        programs = "program" if extents == (1,) else "programs"
        shape = " x ".join(f"{extent:,}" for extent in extents)
        descriptions.append(f"{launch.kernel} ran in {shape} {programs}")
    return ", ".join(descriptions) + ", …" * (len(transcript) > _MAX_DESCRIBED)


def _whole_storage(place: device.TensorRef, inputs: device.Inputs) -> device.TensorRef:
    """Return a reference to all bytes of the storage that a tensor is in."""
    return device.TensorRef(place.storage, "uint8", [len(inputs.storages[place.storage])], [1], 0)


def _extract_overwritten(
    overwritten: Sequence[device.TensorRef], inputs: device.Inputs, call_end: device.CaseReport
) -> tuple[list[bytes], device.CaseReport]:
    """Return the bytes of overwritten inputs, out of the bytes of their storages.

    A storage counts as mutated where bytes outside of the overwritten input differ.
    """
    mutated = {*call_end.mutated} - {place.storage for place in overwritten}
    contents = []
    for place, output in zip(overwritten, call_end.outputs, strict=True):
        itemsize = getattr(torch, place.dtype).itemsize
        start = place.offset * itemsize
        end = start + math.prod(place.shape) * itemsize
        original = inputs.storages[place.storage]
        contents.append(output.content[start:end])
        if (original[:start], original[end:]) != (output.content[:start], output.content[end:]) and not output.fault:
            mutated.add(place.storage)
    return contents, replace_struct(call_end, mutated=sorted(mutated))
