"""Record launches, the events of their warps, and the steps of ranks, for charts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kernelpath import words
from kernelpath.course.labs.fabric import Log
from kernelpath.course.problem import Case
from kernelpath.device import messages as device_messages
from kernelpath.grading.context import GradingContext
from kernelpath.grading.graders.kernel_on_machine import KernelOnMachine
from kernelpath.grading.ground_truth import derive_seed
from kernelpath.grading.provenance import Observation
from kernelpath.line_counters import CallCounts
from kernelpath.verdict import Finding
from kernelpath.work.runner import Runner, SubmissionFailed, Usage
from warpcheck.events import Event


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


@dataclass(frozen=True)
class CountedCall:
    """The largest case: its heaviest launch, and the counts of all its launches."""

    case: Case
    launch: device_messages.LaunchProfile
    counts: CallCounts


def heaviest_launch(context: GradingContext, runner: Runner) -> device_messages.LaunchProfile:
    """Return the launch of the largest case that executed most instructions.

    Raises:
        SubmissionFailed: The case fails.
        Usage: Nothing is launched.
    """
    _call_largest(context, runner)
    return _get_heaviest_launch(context, runner)


def _call_largest(context: GradingContext, runner: Runner) -> Observation:
    return KernelOnMachine(context.job).call(runner, context.largest, derive_seed(context.seed, "picture"))


def _get_heaviest_launch(context: GradingContext, runner: Runner) -> device_messages.LaunchProfile:
    """Return the heaviest launch of the call that the machine ran last. Raises Usage if there is none."""
    launch = runner.request_machine(device_messages.GetLaunchProfile(runner.client), device_messages.LaunchProfile)
    if launch is None:
        raise Usage(_describe_no_launch(context))
    return launch


def recorded_events(context: GradingContext, runner: Runner) -> Sequence[Event]:
    """Return the events of the heaviest launch of the largest case.

    Raises:
        SubmissionFailed: The case fails.
        Usage: Nothing is launched.
    """
    runner.ready()
    runner.request_machine(device_messages.RecordEvents(runner.client), device_messages.Acknowledged)
    return heaviest_launch(context, runner).events


def record_heaviest_launch(context: GradingContext) -> device_messages.LaunchProfile:
    """Return the heaviest launch of the largest case.

    Raises:
        NothingToDraw: The case fails.
        Usage: Nothing is launched.
    """
    context.progress("running on the PTX machine")
    try:
        return heaviest_launch(context, context.runner)
    except SubmissionFailed as error:
        raise _nothing_to_draw(error.finding) from None


def record_call(context: GradingContext) -> CountedCall:
    """Run the largest case, and return its heaviest launch with the counts of all launches.

    Raises:
        NothingToDraw: The case fails.
        Usage: Nothing is launched.
    """
    context.progress("running on the PTX machine")
    try:
        observation = _call_largest(context, context.runner)
    except SubmissionFailed as error:
        raise _nothing_to_draw(error.finding) from None
    if observation.finding is not None:
        raise _nothing_to_draw(observation.finding)
    launch = _get_heaviest_launch(context, context.runner)
    elements = sum(output.numel() for output in observation.outputs)
    counts = CallCounts.of_lines(elements, observation.traffic, observation.instructions)
    return CountedCall(context.largest, launch, counts)


def record_launch(context: GradingContext) -> RecordedLaunch:
    """Run the cases in order up to the first that fails; run the largest again if none does.

    Raises:
        NothingToDraw: The case that fails launched nothing.
    """
    job = context.job
    cases = job.exercise.cases
    for number, case in enumerate(cases, start=1):
        context.progress(f"case {number} of {len(cases)}")
        finding, launch = _run_recorded(context, case)
        if finding is not None and launch is None:
            raise NothingToDraw(f"{finding.verdict.value} in case {words.case(case)}: {finding.cause}")
        if finding is not None and launch is not None:
            return RecordedLaunch(case, launch, job.locate(finding))
    # No case failed, so the largest one shows the most.
    context.progress("the largest case")
    finding, launch = _run_recorded(context, context.largest)
    if launch is None:
        raise NothingToDraw(_describe_no_launch(context))
    return RecordedLaunch(context.largest, launch, job.locate(finding))


def record_logs(context: GradingContext, cases: Sequence[Case]) -> list[Log]:
    """Return the steps of several ranks in each of these cases. Raise NothingToDraw where a case fails."""
    logs: list[Log] = []
    for case in cases:
        context.progress(f"case {words.case(case)}")
        try:
            # The seed of a picture differs from those of graded calls, which stay unknown to the submission.
            observation = context.grader.call(context.runner, case, derive_seed(context.seed, "picture"))
        except SubmissionFailed as error:
            raise _nothing_to_draw(error.finding) from None
        if observation.finding is not None:
            raise _nothing_to_draw(observation.finding)
        assert observation.log is not None
        logs.append(observation.log)
    return logs


def _nothing_to_draw(finding: Finding) -> NothingToDraw:
    return NothingToDraw(f"{finding.verdict.value}: {finding.cause}")


def _describe_no_launch(context: GradingContext) -> str:
    return f"{context.job.item.name} launches no kernel, so there is nothing to draw"


def _run_recorded(context: GradingContext, case: Case) -> tuple[Finding | None, device_messages.LaunchProfile | None]:
    """Run a case. Return what is wrong with it, and its heaviest launch, or the launch that ended in a fault."""
    grader = context.grader
    runner = context.runner
    try:
        runner.ready()
        client = runner.client
        runner.request_machine(device_messages.RecordEvents(client), device_messages.Acknowledged)
    except SubmissionFailed as error:
        return error.finding, None
    finding: Finding | None = None
    try:
        # The check can fail although the call returned, for example because values are wrong.
        finding = grader.check(grader.call(runner, case, derive_seed(context.seed, "picture")))
    except SubmissionFailed as error:
        finding = error.finding
    try:
        return finding, runner.request_machine(device_messages.GetLaunchProfile(client), device_messages.LaunchProfile)
    except SubmissionFailed as error:  # the machine is gone with the events that it had recorded
        return finding or error.finding, None
