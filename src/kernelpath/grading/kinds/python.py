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
from kernelpath.grading import compare, truth
from kernelpath.grading.conduct import MUTATED, Evidence
from kernelpath.verdict import Complaint, Verdict
from kernelpath.work import messages
from kernelpath.work.runner import Runner, Stopped
from kernelpath.work.tensors import dtype_name, fingerprints, to_bytes, whole_storage


class Python:
    """Runs in the submission's process."""

    on_machine = twin = False

    def __init__(self, exercise: Exercise, device: str) -> None:
        self.exercise, self.device = exercise, device

    def call(
        self, runner: Runner, case: Case, seed: int, *, variety: InputMode = PLAIN, order: int = 0, label: str = ""
    ) -> Evidence:
        inputs = truth.generate_inputs(self.exercise, case, seed, self.device, variety)
        returned = runner.ask(self._request(inputs, case, seed, variety), messages.Returned)
        return Evidence(
            inputs=inputs,
            outputs=[told_tensor(one.dtype, one.shape, one.content, self.device) for one in returned.outputs],
            complaint=self.conduct(returned, inputs),
            operators=returned.operators,
        )

    def _request(self, inputs: Sequence[Any], case: Case, seed: int, variety: InputMode) -> messages.Asked:
        """What the submission's process is asked for."""
        return sent(inputs)

    def conduct(self, returned: messages.Returned, inputs: tuple[object, ...]) -> Complaint | None:
        """What the submission did besides giving outputs."""
        return seen(returned, inputs, self.exercise.overwritten(inputs))

    def judged(self, evidence: Evidence) -> Complaint | None:
        return compare.judged(self.exercise, evidence)

    def with_writer(self, runner: Runner, evidence: Evidence, complaint: Complaint, lane: Lane) -> Complaint:
        return complaint


def sent(inputs: Sequence[Any]) -> messages.Call:
    """The request to call the entry on these inputs."""
    tensors = {
        place: messages.Output(dtype_name(value.dtype), list(value.shape), to_bytes(value))
        for place, value in enumerate(inputs)
        if isinstance(value, torch.Tensor)
    }
    return messages.Call(
        arguments=[None if place in tensors else one for place, one in enumerate(inputs)], tensors=tensors
    )


def told_tensor(dtype: str, shape: Sequence[int], content: bytes, on: str) -> torch.Tensor:
    """An output as it was told. Raises Stopped where no worker of ours can have told it."""
    try:
        return truth.tensor_of(dtype, shape, content, on)
    except truth.NoTensor:
        raise Stopped(Complaint(Verdict.TAMPERED, "the submission answered in place of the worker")) from None


def seen(
    returned: messages.Returned, inputs: tuple[object, ...], overwritten: Sequence[object] = ()
) -> Complaint | None:
    """Tampering, guard bands and inputs, as the submission's process tells of them. overwritten: inputs that it may."""
    if returned.tampered:
        return Complaint(Verdict.TAMPERED, returned.tampered)
    if returned.out_of_bounds:
        return Complaint(Verdict.OUT_OF_BOUNDS, f"a kernel {returned.out_of_bounds}")
    tensors = [value for value in inputs if isinstance(value, torch.Tensor)]
    if len(returned.inputs_seen) != len(tensors):
        return MUTATED
    mine = {id(value) for value in overwritten}
    kept = [(seen, value) for seen, value in zip(returned.inputs_seen, tensors, strict=True) if id(value) not in mine]
    drawn = fingerprints([whole_storage(value) for _, value in kept])
    return None if [list(seen) for seen, _ in kept] == drawn else MUTATED
