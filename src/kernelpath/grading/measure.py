"""The grader's side of a measurement: asks the worker for rounds, checks every timed output, decides."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import torch

from kernelpath.course.problem import arguments
from kernelpath.course.spec import Exercise
from kernelpath.grading import across, roofline, timing
from kernelpath.grading.contest import Asker, Conduct, Contest
from kernelpath.verdict import Complaint, Measurement, Verdict
from kernelpath.work import confine, messages

THIRD_STAR = 0.9
"""The share of the reference kernel's speed, in the same run, that earns the third star."""

GATED = ((9, 0),)
"""Compute capabilities of the GPUs, H100 and H200, on which every `min_speedup` was chosen.

Elsewhere the same kernels may gain less over the same baseline, and the reference kernel tells what can be reached.
"""

LAUNCH_BOUND_SECONDS = 20e-6
"""The time of a kernel faster than this says little about the kernel."""

COMPUTE_BOUND = 10.0
"""Operations per byte from which arithmetic, not memory, may bound a kernel on any GPU of the course."""

UNCONFINED = confine.not_held()
"""What a report says where the kernel does not hold it."""

_SETUP_SECONDS = 120.0


def measure(
    exercise: Exercise,
    runner: Asker,
    conduct: Conduct,
    seed: int,
    progress: Callable[[str], None],
    bench: bool,
    reference: Sequence[Path],
) -> tuple[Measurement | None, Complaint | None]:
    """Time the bench case. bench: take every look, for the narrowest interval. Needs a GPU."""
    assert exercise.bench is not None
    dtype = _product_dtype(exercise)
    measured_here = runner.ask(messages.Ceilings(dtype=dtype), messages.Measured, _SETUP_SECONDS)
    contest = Contest(exercise, exercise.bench, runner, conduct, seed, reference)
    looks = timing.LOOKS[-1:] if bench else timing.LOOKS
    complaint = contest.run(looks, progress)
    if complaint is not None:
        return None, complaint
    measured = contest.measurement(measured_here.ceilings, dtype)
    return measured, time_complaint(measured, exercise.min_speedup, torch.cuda.get_device_capability())


def _product_dtype(exercise: Exercise) -> str | None:
    """The dtype of the matrix product to compare with, if the bench case has many operations per byte; else None."""
    assert exercise.bench is not None
    flops = exercise.flops(**exercise.bench) if exercise.flops else 0
    if flops < COMPUTE_BOUND * exercise.compulsory_bytes(**exercise.bench):
        return None
    return str(exercise.bench.get("dtype", next(iter(exercise.tolerance))))


def time_complaint(
    measured: Measurement, min_speedup: float, capability: tuple[int, int] = GATED[0]
) -> Complaint | None:
    """TOO_FAST, TOO_SLOW or INCONCLUSIVE, with the numbers; None when the gate is passed. capability: of the GPU."""
    if roofline.too_fast(measured.seconds, measured.light_seconds):
        cause = (
            f"{measured.seconds * 1e6:.1f} µs, but {measured.compulsory_bytes / 1e6:,.1f} MB take"
            f" {measured.light_seconds * 1e6:.1f} µs at this machine's ceiling"
        )
        return Complaint(Verdict.TOO_FAST, cause)
    if measured.seconds < LAUNCH_BOUND_SECONDS:
        took = f"{measured.seconds * 1e6:.1f} µs is mostly launch overhead"
        return Complaint(Verdict.INCONCLUSIVE, f"{took}; the declaration needs a larger bench case for this GPU")
    side = timing.judge(measured.speedup, min_speedup)
    if side == "above":
        return None
    found = f"{measured.speedup.median:.2f} times the baseline's speed, {min_speedup:.2f} required"
    if side == "straddles":
        interval = f"between {measured.speedup.low:.2f} and {measured.speedup.high:.2f}"
        return Complaint(Verdict.INCONCLUSIVE, f"{found}; after {measured.rounds} rounds it lies {interval}")
    if unfair := _unfair(measured, min_speedup, capability):
        return Complaint(Verdict.INCONCLUSIVE, f"{found}, but {unfair}", then="kp bench {name}")
    return Complaint(Verdict.TOO_SLOW, found)


def _unfair(measured: Measurement, min_speedup: float, capability: tuple[int, int]) -> str:
    """Why a gate says nothing about a kernel below it; empty where it does.

    A gate is fair where the reference kernel passes it in the same run, and a kernel near the reference's speed is not
    too slow whatever it is compared with.
    """
    of_reference, seconds = measured.of_reference, measured.reference_seconds
    if of_reference is None or seconds is None:
        if capability in GATED:
            return ""
        major, minor = capability
        return f"no gate was measured for sm_{major}{minor}, and there is no reference kernel to compare with"
    if of_reference.median >= THIRD_STAR:
        return f"{of_reference.median:.2f} times the reference kernel's in the same run"
    reached = measured.baseline_seconds / seconds
    return f"the reference kernel reaches {reached:.2f} on this GPU" if reached < min_speedup else ""


def stars(measured: Measurement | None, verdict: Verdict, most: int) -> int:
    """One for a right result within the traffic limits, two for the minimum speedup, three for THIRD_STAR.

    most: those that there are; what has one alone gives it for a pass.
    """
    if verdict in (Verdict.TOO_SLOW, Verdict.INCONCLUSIVE):
        return int(most > 1)
    if not verdict.passed:
        return 0
    if measured is None:
        return 1
    return 2 + int(measured.of_reference is not None and measured.of_reference.median >= THIRD_STAR)


def not_measured(exercise: Exercise, measured: Measurement | None, verdict: Verdict) -> tuple[str, ...]:
    """What keeps a pass from its second or third star, in words."""
    if verdict.passed and exercise.kind == "distributed":
        return () if measured else across.not_measured(exercise)
    if not verdict.passed or exercise.baseline is None:
        return ()
    if measured is None:
        limits = (f"{arguments(case)}: too long for the PTX machine, no GPU was used" for case in exercise.gpu_limits)
        return (*limits, "speed: no GPU was used")
    return () if measured.of_reference else ("the third star: no reference kernel in solutions/ runs on this GPU",)
