"""Grade submissions. This process holds the worker and the clock, compares and decides, and imports no submission."""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from kernelpath import words
from kernelpath.course.labs.fabric import Log
from kernelpath.course.problem import Case
from kernelpath.course.registry import ExerciseRef
from kernelpath.device import messages as device_messages
from kernelpath.grading import devices, launch_recording, measure, network
from kernelpath.grading.by_kind import plan_grading
from kernelpath.grading.context import GradingContext, Progress, Step
from kernelpath.grading.devices import Device
from kernelpath.grading.job import Job
from kernelpath.grading.launch_recording import CountedCall, NothingToDraw, RecordedLaunch
from kernelpath.grading.workers import Workers
from kernelpath.packages import versions
from kernelpath.verdict import Finding, NetworkTraffic, Report, Verdict
from kernelpath.work.runner import Usage


def grade_in_steps(context: GradingContext, steps: Sequence[Step]) -> Report:
    """Take the steps in order, end the processes, and return the report. The first finding is the verdict."""
    finding: Finding | None = None
    for step in steps:
        finding = step(context)
        if finding is not None:
            break
    # Only now have the processes printed everything, which the report quotes.
    context.close()
    job = context.job
    verdict = finding.verdict if finding else Verdict.PASSED
    file = job.display_path(finding.file) if finding else ""
    next_step = finding.step if finding else verdict.then
    return Report(
        exercise=job.item.path_id,
        title=job.item.title,
        submission=job.display_path(str(job.submission)),
        device=devices.device_name(job.device, job.target),
        seed=context.seed,
        verdict=verdict,
        cause=words.shown(finding.cause) if finding else "",
        file=file,
        line=finding.line if finding else 0,
        stars=measure.stars(context.measurement, verdict, job.item.stars),
        next_step=next_step.format(
            file=file or job.file_to_fix(verdict), name=job.item.name, seed=context.seed, check=job.command
        ),
        not_measured=(
            *context.speed_not_measured,
            *job.substitutions,
            *_describe_missing_counters(context, verdict),
            *context.not_measured,
            *measure.MISSING_PROTECTIONS,
        ),
        cases=tuple(case.result for case in context.graded),
        traffic=context.counters.traffic if context.counters else (),
        instructions=context.counters.instructions if context.counters else (),
        network=_network_traffic(context),
        measurement=context.measurement,
        printed=context.runner.printed,
        versions=versions(),
        graded=context.copy.digests,
        seconds=time.monotonic() - context.start,
        compile_seconds=context.runner.compile_seconds,
    )


def _describe_missing_counters(context: GradingContext, verdict: Verdict) -> tuple[str, ...]:
    """Say why there are no counters where the PTX machine could not count beside the GPU."""
    # On a GPU, a second grading on the PTX machine counts; it has its own reasons.
    if context.cpu_shadow is not None:
        return context.cpu_shadow.not_measured
    return (context.missing_counters,) if context.missing_counters and verdict is not Verdict.UNAVAILABLE else ()


def _network_traffic(context: GradingContext) -> tuple[NetworkTraffic, ...]:
    """Return the traffic between the ranks of each case that returned."""
    logs = [(case.result.case, case.observation.log) for case in context.graded if case.observation is not None]
    links = context.job.exercise.network.links
    return tuple(network.measure_traffic(case, log, links) for case, log in logs if log is not None)


__all__ = ["Device", "Job", "NothingToDraw", "Progress", "Session", "Usage", "grade", "versions"]


def grade(
    item: ExerciseRef,
    submission: Path,
    *,
    device: Device = "auto",
    seed: int | None = None,
    report_progress: Progress | None = None,
    bench: bool = False,
    brief: bool = False,
    timed: bool = True,
    recording: Path | None = None,
    arch: str | None = None,
    command: str | None = None,
) -> Report:
    """Grade the Python file `submission` as the exercise `item`.

    Args:
        item, submission, device, recording, arch, command: See `Job.create`.
        seed: Generates sizes and inputs. None stands for a fresh seed.
        report_progress: Called with a description of each step.
        bench: Whether to take every round of a measurement.
        brief: Whether to stop at the case that decides on the verdict, and not to search for a pattern in the failing
            cases.
        timed: Whether to measure the speed, on a GPU.

    Raises:
        Usage: The device or the recording does not fit the exercise, or there is no file.
        spec.DeclarationError: The exercise's declaration is wrong.
    """
    job = Job.create(item, submission, device=device, recording=recording, arch=arch, command=command)
    with Session(job) as session:
        return session(seed=seed, report_progress=report_progress, bench=bench, brief=brief, timed=timed)


class Session:
    """Grades a job as often as it is called, each time in a fresh worker. It is a context manager.

    Args:
        job: The job.
        warm: Whether to start the next worker before it is needed.
    """

    def __init__(self, job: Job, *, warm: bool = False) -> None:
        self.job = job
        self.plan = plan_grading(job)
        self.workers = Workers(job)
        self._warm = warm
        self._prepare()

    def __call__(
        self,
        *,
        seed: int | None = None,
        report_progress: Progress | None = None,
        bench: bool = False,
        brief: bool = False,
        timed: bool = True,
    ) -> Report:
        """Grade the file as it is now. See `grade`."""
        if not self.job.submission.exists():
            raise Usage(f"there is no file {self.job.submission}; `kp reset {self.job.item.name}` restores the stub")
        # From the operating system, so that no submission can predict the seed, and with it the inputs.
        seed = random.SystemRandom().randrange(1 << 32) if seed is None else seed
        try:
            with self._begin(seed, report_progress, brief=brief, bench=bench, timed=timed) as context:
                return grade_in_steps(context, self.plan.steps)
        finally:
            self._prepare()

    def heaviest_launch(
        self, *, seed: int = 0, report_progress: Progress | None = None
    ) -> device_messages.LaunchProfile:
        """Return the launch of the largest case that executed most instructions.

        It has the counters by line, and the addresses of one warp. This needs device="cpu".

        Raises:
            Usage: The submission launches nothing.
            NothingToDraw: The submission fails.
        """
        with self._begin(seed, report_progress) as context:
            return launch_recording.record_heaviest_launch(context)

    def record_call(self, *, seed: int = 0, report_progress: Progress | None = None) -> CountedCall:
        """Return the heaviest launch of the largest case, and the counts of all its launches.

        This needs device="cpu".

        Raises:
            Usage: The submission launches nothing.
            NothingToDraw: The submission fails.
        """
        with self._begin(seed, report_progress) as context:
            return launch_recording.record_call(context)

    def record_launch(self, *, seed: int = 0, report_progress: Progress | None = None) -> RecordedLaunch:
        """Return a launch with the events of the warps of its first block.

        The launch is of the first case that fails, or of the largest case if none does. This needs device="cpu".

        Raises:
            NothingToDraw: Nothing is launched.
        """
        with self._begin(seed, report_progress) as context:
            return launch_recording.record_launch(context)

    def logs(self, cases: Sequence[Case], *, seed: int = 0, report_progress: Progress | None = None) -> list[Log]:
        """Return the steps of the ranks of an exercise on several ranks in each of these cases.

        Raises:
            NothingToDraw: A case fails.
        """
        with self._begin(seed, report_progress) as context:
            return launch_recording.record_logs(context, cases)

    @contextlib.contextmanager
    def _begin(self, seed: int, report_progress: Progress | None, **options: bool) -> Iterator[GradingContext]:
        """Begin a grading in fresh processes, which end with it. The options are those of GradingContext."""
        progress = report_progress or (lambda _: None)
        context = GradingContext(self.job, self.plan.grader, self.workers, seed, progress, **options)
        try:
            yield context
        finally:
            context.close()

    def _prepare(self) -> None:
        if self._warm:
            grader = self.plan.grader
            # The shadow run has a process of its own, which has not seen the inputs of the first.
            self.workers.prepare(grader.setup, 2 if grader.needs_shadow_run else 1)

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self.workers.close()
