"""Call and observe a submission's entry, with one module for each kind of exercise."""

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
    """Calls an entry on a case, observes the call, and checks the observation."""

    on_machine: bool
    """True where kernels run in a process of the grader's, which sees everything that a submission launches."""

    needs_shadow_run: bool
    """True where a second process with other values must launch the same."""

    def call(
        self, runner: Runner, case: Case, seed: int, *, variety: InputMode = PLAIN, order: int = 0, label: str = ""
    ) -> Observation:
        """Call the entry on inputs generated from the seed.

        Args:
            runner: The submission.
            case: The arguments of the exercise's generator of inputs.
            seed: Generates the inputs.
            variety: The mode of the inputs.
            order: The order of warps and blocks on the PTX machine; see device.messages.Begin.
            label: Names the call on the PTX machine; see device.messages.Begin.

        Raises:
            SubmissionFailed: The call did not return.
        """

    def check_process(self, result: messages.CallResult, inputs: tuple[object, ...]) -> Finding | None:
        """Return a finding about what the submission did in its own process besides returning outputs."""

    def check(self, observation: Observation) -> Finding | None:
        """Return a finding about a call, its outputs included."""

    def add_writer(self, runner: Runner, observation: Observation, finding: Finding, lane: Lane) -> Finding:
        """Return the finding with the thread and the line that wrote the wrong element, where these are known."""


def kind_of(exercise: Exercise, device: str) -> Kind:
    """Return the kind of an exercise on "cpu" or "cuda". Raise NotImplementedError for a kind without a grader."""
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
