"""Record a launch with the events of its warps in order, for a chart.

The launch is of the first case that fails, or of the largest case if none does.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kernelpath import words
from kernelpath.course.problem import Case
from kernelpath.device import messages as device_messages
from kernelpath.grading.ground_truth import derive_seed
from kernelpath.grading.job import Job
from kernelpath.grading.kinds import Kind
from kernelpath.verdict import Finding
from kernelpath.work.runner import Runner, SubmissionFailed

__all__ = ["NothingToDraw", "RecordedLaunch", "record_launch"]


class NothingToDraw(Exception):
    """The submission does not run or launches nothing, so there is no picture. The message says why."""


@dataclass(frozen=True)
class RecordedLaunch:
    """A launch, the case that made it, and what is wrong with that case, if anything is.

    A launch that a fault or a deadlock ended is recorded up to its end.
    """

    case: Case
    launch: device_messages.LaunchProfile
    finding: Finding | None = None


def record_launch(job: Job, kind: Kind, runner: Runner, seed: int, progress: Callable[[str], None]) -> RecordedLaunch:
    """Run the cases in order up to the first that fails; run the largest again if none does.

    Raises:
        NothingToDraw: The case that fails launched nothing.
    """
    exercise = job.exercise
    seed = derive_seed(seed, "picture")
    for number, case in enumerate(exercise.cases, start=1):
        progress(f"case {number} of {len(exercise.cases)}")
        finding, launch = _run_recorded(kind, runner, case, seed)
        if finding is not None and launch is None:
            raise NothingToDraw(f"{finding.verdict.value} in case {words.case(case)}: {finding.cause}")
        if finding is not None and launch is not None:
            return RecordedLaunch(case, launch, job.locate(finding))
    progress("the largest case")
    finding, launch = _run_recorded(kind, runner, exercise.largest, seed)
    if launch is None:
        raise NothingToDraw(f"{job.item.name} launches no kernel, so there is nothing to draw")
    return RecordedLaunch(exercise.largest, launch, finding and job.locate(finding))


def _run_recorded(
    kind: Kind, runner: Runner, case: Case, seed: int
) -> tuple[Finding | None, device_messages.LaunchProfile | None]:
    """Run a case. Return what is wrong with it, and its heaviest launch, or the launch that ended in a fault."""
    try:
        runner.ready()
        client = runner.client
        runner.request_machine(device_messages.RecordEvents(client), device_messages.Done)
    except SubmissionFailed as error:
        return error.finding, None
    finding: Finding | None = None
    try:
        finding = kind.check(kind.call(runner, case, seed))
    except SubmissionFailed as error:
        finding = error.finding
    try:
        return finding, runner.request_machine(device_messages.GetLaunchProfile(client), device_messages.LaunchProfile)
    except SubmissionFailed as error:  # the machine is gone with the events that it had recorded
        return finding or error.finding, None
