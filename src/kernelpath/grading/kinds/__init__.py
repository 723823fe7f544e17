"""How a call of each kind of exercise is made and observed: a module per kind."""

from __future__ import annotations

from typing import Protocol

from kernelpath.course.inputs import PLAIN, InputMode
from kernelpath.course.problem import Case
from kernelpath.course.registry import Lane
from kernelpath.course.spec import Exercise
from kernelpath.grading.kinds.distributed import Distributed
from kernelpath.grading.kinds.kernel import Kernel
from kernelpath.grading.kinds.lab import Lab
from kernelpath.grading.kinds.operator import Operator
from kernelpath.grading.kinds.python import Python
from kernelpath.grading.kinds.trace import Trace
from kernelpath.grading.provenance import Observation
from kernelpath.verdict import Finding
from kernelpath.work import messages
from kernelpath.work.runner import Runner


class Kind(Protocol):
    """Calls an entry on a case and gathers the evidence."""

    on_machine: bool
    """Whether the device is a process of ours, which sees what a submission has it do."""

    twin: bool
    """Whether a second process with other values must launch the same there."""

    def call(
        self, runner: Runner, case: Case, seed: int, *, variety: InputMode = PLAIN, order: int = 0, label: str = ""
    ) -> Observation:
        """Call the entry on inputs drawn from the seed. order, label: for the PTX machine; see device.messages.Begin.

        Raises runner.SubmissionFailed.
        """

    def conduct(self, returned: messages.CallResult, inputs: tuple[object, ...]) -> Finding | None:
        """What the submission did in its own process besides giving outputs."""

    def judged(self, observation: Observation) -> Finding | None:
        """What is wrong with a call, its outputs included."""

    def with_writer(self, runner: Runner, observation: Observation, finding: Finding, lane: Lane) -> Finding:
        """The finding with the thread and the line that wrote the wrong element, where that is known."""


def kind_of(exercise: Exercise, device: str) -> Kind:
    """How to call this exercise's entry on "cpu" or "cuda". Raises NotImplementedError for a kind without grader."""
    if exercise.kind == "kernel":
        return Kernel(exercise, device)
    if exercise.kind in ("operator", "library"):
        return Operator(exercise, device)
    if exercise.kind == "python":
        return Python(exercise, device)
    if exercise.kind == "lab":
        return Lab(exercise, device)
    if exercise.kind == "trace":
        return Trace(exercise, device)
    if exercise.kind == "distributed":
        return Distributed(exercise, device)
    raise NotImplementedError(f"exercises of kind {exercise.kind} are not graded yet")
