"""Control a measurement from the grader's side: request rounds, check every timed output, and decide."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import torch

from kernelpath.course.problem import arguments
from kernelpath.course.spec import Exercise
from kernelpath.grading import gate, roofline, timing
from kernelpath.grading.timing_session import CheckProcess, RequestSender, TimingSession
from kernelpath.verdict import Finding, Measurement, Verdict
from kernelpath.work import confine, messages
from kernelpath.work.runner import SubmissionFailed

# A time below this is mostly launch overhead, and says little about the kernel.
LAUNCH_BOUND_SECONDS = 20e-6

# Bytes of memory that hold every timed case with all its implementations. An H100 has 79 GiB.
SUFFICIENT_MEMORY = 75 << 30

# Sentences for a report about the protections that this kernel lacks.
MISSING_PROTECTIONS = confine.missing_protections()

_SETUP_SECONDS = 120.0


def measure(
    exercise: Exercise,
    runner: RequestSender,
    check_process: CheckProcess,
    seed: int,
    progress: Callable[[str], None],
    bench: bool,
    reference: Sequence[Path],
) -> tuple[Measurement | None, Finding | None]:
    """Time the bench case on a GPU.

    Args:
        exercise: The exercise.
        runner: Sends requests to the submission's process.
        check_process: Returns a finding about what the submission did in its process.
        seed: Generates the inputs.
        progress: Called with a description of each step.
        bench: Whether to take every look, for the narrowest interval.
        reference: The reference kernel's files.

    Raises:
        SubmissionFailed: A request failed.
    """
    assert exercise.bench is not None
    dtype = exercise.ceiling_dtype
    # The ceilings are measured in each grading, because clocks and other processes change them, too.
    response = runner.request(messages.MeasureCeilings(dtype=dtype), messages.MeasuredCeilings, _SETUP_SECONDS)
    session = TimingSession(exercise, exercise.bench, runner, check_process, seed, reference)
    looks = timing.LOOKS[-1:] if bench else timing.LOOKS
    try:
        finding = session.run(looks, progress)
    # This is the grader, which computes inputs and truth on the same GPU. Where the submission's process runs out of
    # memory, SubmissionFailed is raised.
    except torch.OutOfMemoryError:
        return None, _memory_shortage(exercise)
    except SubmissionFailed as error:
        if finding := memory_finding(exercise, error):
            return None, finding
        raise
    if finding is not None:
        return None, finding
    measurement = session.measurement(response.ceilings, dtype)
    return measurement, check_time(measurement, exercise.min_speedup, torch.cuda.get_device_capability())


def memory_finding(exercise: Exercise, error: SubmissionFailed) -> Finding | None:
    """Return a finding where a small GPU's memory does not hold the timed case; None for any other error."""
    is_shortage = (
        exercise.bench is not None and "out of memory" in error.finding.cause and _memory() < SUFFICIENT_MEMORY
    )
    return _memory_shortage(exercise) if is_shortage else None


def _memory_shortage(exercise: Exercise) -> Finding:
    """Return a finding that says nothing about the kernel, whichever implementation requested the memory."""
    assert exercise.bench is not None
    gigabytes = exercise.compulsory_bytes(**exercise.bench) / 1e9
    requirement = f"the timed case takes {gigabytes:.1f} GB, and as much again for each timed kernel and for the grader"
    cause = f"out of memory: {requirement}; this GPU has {_memory() / 1e9:.1f} GB"
    return Finding(Verdict.INCONCLUSIVE, cause, then="{check} --device cpu")


def _memory() -> int:
    return int(torch.cuda.get_device_properties().total_memory)


def check_time(
    measurement: Measurement, min_speedup: float, capability: tuple[int, int] = gate.GATED[0]
) -> Finding | None:
    """Return TOO_FAST, TOO_SLOW or INCONCLUSIVE with the numbers; None where the gate is passed.

    `capability` is the GPU's compute capability.
    """
    # Before the gate: a time that physics excludes is no speedup, whatever the baseline takes.
    if roofline.too_fast(measurement.seconds, measurement.light_seconds):
        cause = (
            f"{measurement.seconds * 1e6:.1f} µs, but {measurement.compulsory_bytes / 1e6:,.1f} MB take"
            f" {measurement.light_seconds * 1e6:.1f} µs at this GPU's measured ceiling"
        )
        return Finding(Verdict.TOO_FAST, cause)
    if measurement.seconds < LAUNCH_BOUND_SECONDS:
        cause = f"{measurement.seconds * 1e6:.1f} µs is mostly launch overhead"
        return Finding(Verdict.INCONCLUSIVE, f"{cause}; the declaration needs a larger bench case for this GPU")
    return gate.check_speedup(measurement, min_speedup, capability)


def stars(measurement: Measurement | None, verdict: Verdict, max_stars: int) -> int:
    """Return the stars: one for a right result within the limits, two for the minimum speedup, three for THIRD_STAR.

    `max_stars` is the number of stars of the exercise. An exercise with a single star gives it for a pass.
    """
    if verdict in (Verdict.TOO_SLOW, Verdict.INCONCLUSIVE):
        return int(max_stars > 1)
    if not verdict.passed:
        return 0
    if measurement is None:
        return 1
    return 2 + int(measurement.of_reference is not None and measurement.of_reference.median >= gate.THIRD_STAR)


def not_measured(exercise: Exercise, measurement: Measurement | None, timed: bool = True) -> tuple[str, ...]:
    """Say what keeps a pass from its second or third star. `timed` says whether a GPU would have been timed."""
    if exercise.baseline is None:
        return ()
    if not timed:
        return ("speed: no time was taken",)
    if measurement is None:
        limits = (f"{arguments(case)}: too long for the PTX machine, no GPU was used" for case in exercise.gpu_limits)
        return (*limits, "speed: no GPU was used")
    return () if measurement.of_reference else ("the third star: no reference kernel in solutions/ runs on this GPU",)
