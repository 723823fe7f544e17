"""Exercises that launch nothing that is graded: layouts, formulas. The result alone counts.

The submission's process is sent the inputs: what draws them stands beside what knows the right results. An exercise
with a simulated device is of the kind lab.
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
    """Runs in the submission's process."""

    on_machine = twin = False

    def __init__(self, exercise: Exercise, device: str) -> None:
        self.exercise, self.device = exercise, device

    def call(
        self, runner: Runner, case: Case, seed: int, *, variety: InputMode = PLAIN, order: int = 0, label: str = ""
    ) -> Observation:
        inputs = ground_truth.generate_inputs(self.exercise, case, seed, self.device, variety)
        returned = runner.request(self._request(inputs, case, seed, variety), messages.CallResult)
        return Observation(
            inputs=inputs,
            outputs=[told_tensor(one.dtype, one.shape, one.content, self.device) for one in returned.outputs],
            finding=self.conduct(returned, inputs),
            operators=returned.operators,
        )

    def _request(self, inputs: Sequence[Any], case: Case, seed: int, variety: InputMode) -> messages.WorkerRequest:
        """What the submission's process is asked for."""
        return sent(inputs)

    def conduct(self, returned: messages.CallResult, inputs: tuple[object, ...]) -> Finding | None:
        """What the submission did besides giving outputs."""
        return seen(returned, inputs, self.exercise.overwritten(inputs))

    def judged(self, observation: Observation) -> Finding | None:
        return compare.judged(self.exercise, observation)

    def with_writer(self, runner: Runner, observation: Observation, finding: Finding, lane: Lane) -> Finding:
        return finding


def sent(inputs: Sequence[Any]) -> messages.Call:
    """The request to call the entry on these inputs."""
    tensors = {
        place: messages.TensorData(dtype_name(value.dtype), list(value.shape), to_bytes(value))
        for place, value in enumerate(inputs)
        if isinstance(value, torch.Tensor)
    }
    return messages.Call(
        arguments=[None if place in tensors else one for place, one in enumerate(inputs)], tensors=tensors
    )


def told_tensor(dtype: str, shape: Sequence[int], content: bytes, on: str) -> torch.Tensor:
    """An output as it was told. Raises SubmissionFailed where no worker of ours can have told it."""
    try:
        return ground_truth.tensor_of(dtype, shape, content, on)
    except ground_truth.NoTensor:
        raise SubmissionFailed(Finding(Verdict.TAMPERED, "the submission answered in place of the worker")) from None


def seen(
    returned: messages.CallResult, inputs: tuple[object, ...], overwritten: Sequence[object] = ()
) -> Finding | None:
    """Tampering, guard bands and inputs, as the submission's process tells of them. overwritten: inputs that it may."""
    if returned.tampered:
        return Finding(Verdict.TAMPERED, returned.tampered)
    if returned.out_of_bounds:
        return Finding(Verdict.OUT_OF_BOUNDS, f"a kernel {returned.out_of_bounds}")
    tensors = [value for value in inputs if isinstance(value, torch.Tensor)]
    if len(returned.input_fingerprints) != len(tensors):
        return MUTATED
    mine = {id(value) for value in overwritten}
    kept = [
        (seen, value) for seen, value in zip(returned.input_fingerprints, tensors, strict=True) if id(value) not in mine
    ]
    drawn = fingerprints([storage_bytes(value) for _, value in kept])
    return None if [list(seen) for seen, _ in kept] == drawn else MUTATED
