"""Define what a grader is: it calls a submission's entry, and observes and checks the call.

Each kind of exercise has a grader in a module here, which `grading/by_kind.py` chooses. Graders share functions
(`results`, `machine`), and none of them inherits from another.
"""

from __future__ import annotations

from typing import Protocol

from kernelpath.course.inputs import PLAIN, InputMode
from kernelpath.course.problem import Case
from kernelpath.grading.provenance import Observation
from kernelpath.grading.workers import ProcessSetup
from kernelpath.verdict import Finding
from kernelpath.work import messages
from kernelpath.work.runner import Runner


class Grader(Protocol):
    """Calls an entry on a case, observes the call, and checks the observation.

    Attributes:
        setup: The processes that run the submission.
        needs_shadow_run: Whether a second process with other values must launch the same.
    """

    setup: ProcessSetup
    needs_shadow_run: bool

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

    def add_writer(self, runner: Runner, observation: Observation, finding: Finding) -> Finding:
        """Return the finding with the thread and the line that wrote the wrong element, where these are known."""
