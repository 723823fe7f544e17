"""A launch with what its warps did, in their order, for a chart: of the first case that fails, else of the largest."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kernelpath import words
from kernelpath.course.problem import Case
from kernelpath.device import messages as device_messages
from kernelpath.grading.ground_truth import derive
from kernelpath.grading.kinds import Kind
from kernelpath.grading.submission import Submission
from kernelpath.verdict import Finding
from kernelpath.work.runner import Runner, SubmissionFailed

__all__ = ["NotDrawn", "Recorded", "recorded"]


class NotDrawn(Exception):
    """The submission does not run, so there is no picture of it. The message says how it ended."""


@dataclass(frozen=True)
class Recorded:
    """A launch, the case that made it, and what is wrong with that case, if anything is.

    A launch that a fault or a deadlock ended is recorded up to there.
    """

    case: Case
    launch: device_messages.Drawn
    finding: Finding | None = None


def recorded(
    submission: Submission, kind: Kind, runner: Runner, seed: int, progress: Callable[[str], None]
) -> Recorded:
    """Run the cases in their order, up to the first that fails; the largest once more if none does. Raises NotDrawn."""
    exercise = submission.exercise
    for position, case in enumerate(exercise.cases, start=1):
        progress(f"case {position} of {len(exercise.cases)}")
        finding, launch = _run(kind, runner, case, derive(seed, "picture"))
        if finding is not None and launch is None:
            raise NotDrawn(f"{finding.verdict.value} in case {words.case(case)}: {finding.cause}")
        if finding is not None and launch is not None:
            return Recorded(case, launch, submission.placed(finding))
    progress("the largest case")
    finding, launch = _run(kind, runner, exercise.largest, derive(seed, "picture"))
    if launch is None:
        raise NotDrawn(f"{submission.item.name} launches no kernel, so there is nothing to draw")
    return Recorded(exercise.largest, launch, finding and submission.placed(finding))


def _run(kind: Kind, runner: Runner, case: Case, seed: int) -> tuple[Finding | None, device_messages.Drawn | None]:
    """Run a case. Returns what is wrong with it, and its heaviest launch, or the one that ended in a fault."""
    try:
        runner.ready()
        client = runner.client
        runner.request_machine(device_messages.Record(client), device_messages.Done)
    except SubmissionFailed as stopped:
        return stopped.finding, None
    finding: Finding | None = None
    try:
        finding = kind.judged(kind.call(runner, case, seed))
    except SubmissionFailed as stopped:
        finding = stopped.finding
    try:
        return finding, runner.request_machine(device_messages.Draw(client), device_messages.Drawn)
    except SubmissionFailed as stopped:  # the machine is gone with what it had recorded
        return finding or stopped.finding, None
