"""Grade exercises without kernels, such as layouts and formulas, by their results alone.

The submission's process is sent the inputs, since the code that generates them is beside the code that knows the right
results. An exercise with a simulated device is of the kind lab.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from kernelpath.course.inputs import PLAIN, InputMode
from kernelpath.course.problem import Case
from kernelpath.course.registry import Lane
from kernelpath.course.spec import Exercise
from kernelpath.grading import compare, ground_truth
from kernelpath.grading.provenance import MUTATED, Observation
from kernelpath.verdict import Finding, Verdict
from kernelpath.work import messages
from kernelpath.work.runner import Runner, SubmissionFailed
from kernelpath.work.tensors import dtype_name, fingerprints, storage_bytes, to_bytes


class Python:
    """Calls an entry in the submission's process."""

    on_machine = False
    needs_shadow_run = False

    def __init__(self, exercise: Exercise, device: str) -> None:
        self.exercise = exercise
        self.device = device

    def call(
        self, runner: Runner, case: Case, seed: int, *, variety: InputMode = PLAIN, order: int = 0, label: str = ""
    ) -> Observation:
        """Call the entry on inputs generated from the seed. See Kind.call."""
        inputs = ground_truth.generate_inputs(self.exercise, case, seed, self.device, variety)
        result = runner.request(self._make_request(inputs, case, seed, variety), messages.CallResult)
        return Observation(
            inputs=inputs,
            outputs=[decode_output(output, self.device) for output in result.outputs],
            finding=self.check_process(result, inputs),
            operators=result.operators,
        )

    def _make_request(self, inputs: Sequence[Any], case: Case, seed: int, variety: InputMode) -> messages.WorkerRequest:
        """Return the request to the submission's process."""
        return call_request(inputs)

    def check_process(self, result: messages.CallResult, inputs: tuple[object, ...]) -> Finding | None:
        """Return a finding about what the submission did in its process besides returning outputs."""
        return process_finding(result, inputs, self.exercise.overwritten(inputs))

    def check(self, observation: Observation) -> Finding | None:
        """Return a finding about a call, its outputs included."""
        return compare.check_observation(self.exercise, observation)

    def add_writer(self, runner: Runner, observation: Observation, finding: Finding, lane: Lane) -> Finding:
        """Return the finding as it is: there is no kernel whose thread wrote the wrong element."""
        return finding


def call_request(inputs: Sequence[Any]) -> messages.Call:
    """Return the request to call the entry on these inputs."""
    tensors = {
        position: messages.TensorData(dtype_name(value.dtype), list(value.shape), to_bytes(value))
        for position, value in enumerate(inputs)
        if isinstance(value, torch.Tensor)
    }
    return messages.Call(
        arguments=[None if position in tensors else value for position, value in enumerate(inputs)], tensors=tensors
    )


def decode_output(output: messages.TensorData, device: str) -> torch.Tensor:
    """Return an output as a tensor. Raise SubmissionFailed where the worker's code cannot have sent it."""
    return decode_tensor(output.dtype, output.shape, output.content, device)


def decode_tensor(dtype: str, shape: Sequence[int], content: bytes, device: str) -> torch.Tensor:
    """Return a tensor that was sent. Raise SubmissionFailed where its parts do not fit together."""
    try:
        return ground_truth.decode_tensor(dtype, shape, content, device)
    except ground_truth.InvalidTensor:
        raise SubmissionFailed(Finding(Verdict.TAMPERED, "the submission answered in place of the worker")) from None


def process_finding(
    result: messages.CallResult, inputs: tuple[object, ...], overwritten: Sequence[object] = ()
) -> Finding | None:
    """Return a finding about tampering, guard bands or changed inputs, as the submission's process reports them.

    Args:
        result: The report.
        inputs: The inputs as the grader generated them.
        overwritten: The inputs that the call may change.
    """
    # Tampering comes first: a submission that tampers with its process can fake everything below.
    if result.tampered:
        return Finding(Verdict.TAMPERED, result.tampered)
    if result.out_of_bounds:
        return Finding(Verdict.OUT_OF_BOUNDS, f"a kernel {result.out_of_bounds}")
    tensors = [value for value in inputs if isinstance(value, torch.Tensor)]
    if len(result.input_fingerprints) != len(tensors):
        return MUTATED
    overwritten_ids = {id(value) for value in overwritten}
    constant = [
        (fingerprint, value)
        for fingerprint, value in zip(result.input_fingerprints, tensors, strict=True)
        if id(value) not in overwritten_ids
    ]
    expected = fingerprints([storage_bytes(value) for _, value in constant])
    return None if [list(fingerprint) for fingerprint, _ in constant] == expected else MUTATED
