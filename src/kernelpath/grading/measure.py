"""The grader's side of a measurement: asks the worker for rounds, checks every timed output, decides."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import torch

from kernelpath.course.problem import arguments
from kernelpath.course.spec import Exercise
from kernelpath.grading import gate, multi_gpu, roofline, timing
from kernelpath.grading.timing_session import Conduct, Contest, RequestSender
from kernelpath.verdict import Finding, Measurement, Verdict
from kernelpath.work import confine, messages
from kernelpath.work.runner import SubmissionFailed

LAUNCH_BOUND_SECONDS = 20e-6
"""The time of a kernel faster than this says little about the kernel."""

ENOUGH = 75 << 30
"""Bytes of memory that hold every timed case with all its contestants: an H100 has 79 GiB."""

COMPUTE_BOUND = 10.0
"""Operations per byte from which arithmetic, not memory, may bound a kernel on any GPU of the course."""

UNCONFINED = confine.missing_protections()
"""What a report says where the kernel does not hold it."""

_SETUP_SECONDS = 120.0


def measure(
    exercise: Exercise,
    runner: RequestSender,
    conduct: Conduct,
    seed: int,
    progress: Callable[[str], None],
    bench: bool,
    reference: Sequence[Path],
) -> tuple[Measurement | None, Finding | None]:
    """Time the bench case. bench: take every look, for the narrowest interval. Needs a GPU. Raises SubmissionFailed."""
    assert exercise.bench is not None
    dtype = _product_dtype(exercise)
    measured_here = runner.request(messages.MeasureCeilings(dtype=dtype), messages.MeasuredCeilings, _SETUP_SECONDS)
    contest = Contest(exercise, exercise.bench, runner, conduct, seed, reference)
    looks = timing.LOOKS[-1:] if bench else timing.LOOKS
    try:
        finding = contest.run(looks, progress)
    except torch.OutOfMemoryError:
        return None, _too_large(exercise)
    except SubmissionFailed as stopped:
        if finding := beyond_memory(exercise, stopped):
            return None, finding
        raise
    if finding is not None:
        return None, finding
    measured = contest.measurement(measured_here.ceilings, dtype)
    return measured, check_time(measured, exercise.min_speedup, torch.cuda.get_device_capability())


def beyond_memory(exercise: Exercise, stopped: SubmissionFailed) -> Finding | None:
    """What to say of an end at the timed case that a small GPU does not hold; None for any other end."""
    lacks = exercise.bench is not None and "out of memory" in stopped.finding.cause and _memory() < ENOUGH
    return _too_large(exercise) if lacks else None


def _too_large(exercise: Exercise) -> Finding:
    """Whoever asked for the memory that there is not, it says nothing about a kernel."""
    assert exercise.bench is not None
    gigabytes = exercise.compulsory_bytes(**exercise.bench) / 1e9
    beside = f"the timed case takes {gigabytes:.1f} GB, and as much again for each contestant and the grader"
    cause = f"out of memory: {beside}; this GPU has {_memory() / 1e9:.1f} GB"
    return Finding(Verdict.INCONCLUSIVE, cause, then="kp check {name} --device cpu")


def _memory() -> int:
    return int(torch.cuda.get_device_properties().total_memory)


def _product_dtype(exercise: Exercise) -> str | None:
    """The dtype of the matrix product to compare with, if the bench case has many operations per byte; else None."""
    assert exercise.bench is not None
    flops = exercise.flops(**exercise.bench) if exercise.flops else 0
    if flops < COMPUTE_BOUND * exercise.compulsory_bytes(**exercise.bench):
        return None
    return str(exercise.bench.get("dtype", next(iter(exercise.tolerance))))


def check_time(
    measured: Measurement, min_speedup: float, capability: tuple[int, int] = gate.GATED[0]
) -> Finding | None:
    """TOO_FAST, TOO_SLOW or INCONCLUSIVE, with the numbers; None when the gate is passed. capability: of the GPU."""
    if roofline.too_fast(measured.seconds, measured.light_seconds):
        cause = (
            f"{measured.seconds * 1e6:.1f} µs, but {measured.compulsory_bytes / 1e6:,.1f} MB take"
            f" {measured.light_seconds * 1e6:.1f} µs at this machine's ceiling"
        )
        return Finding(Verdict.TOO_FAST, cause)
    if measured.seconds < LAUNCH_BOUND_SECONDS:
        took = f"{measured.seconds * 1e6:.1f} µs is mostly launch overhead"
        return Finding(Verdict.INCONCLUSIVE, f"{took}; the declaration needs a larger bench case for this GPU")
    return gate.check_speedup(measured, min_speedup, capability)


def stars(measured: Measurement | None, verdict: Verdict, most: int) -> int:
    """One for a right result within the traffic limits, two for the minimum speedup, three for gate.THIRD_STAR.

    most: those that there are; what has one alone gives it for a pass.
    """
    if verdict in (Verdict.TOO_SLOW, Verdict.INCONCLUSIVE):
        return int(most > 1)
    if not verdict.passed:
        return 0
    if measured is None:
        return 1
    return 2 + int(measured.of_reference is not None and measured.of_reference.median >= gate.THIRD_STAR)


def not_measured(
    exercise: Exercise, measured: Measurement | None, verdict: Verdict, timed: bool = True
) -> tuple[str, ...]:
    """What keeps a pass from its second or third star, in words. timed: whether a GPU would have been timed."""
    if verdict.passed and exercise.kind == "distributed":
        return () if measured else multi_gpu.not_measured(exercise)
    if not verdict.passed or exercise.baseline is None:
        return ()
    if not timed:
        return ("speed: no time was taken",)
    if measured is None:
        limits = (f"{arguments(case)}: too long for the PTX machine, no GPU was used" for case in exercise.gpu_limits)
        return (*limits, "speed: no GPU was used")
    return () if measured.of_reference else ("the third star: no reference kernel in solutions/ runs on this GPU",)
