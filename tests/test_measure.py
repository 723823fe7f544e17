"""Test the grader's side of a measurement with a fake worker."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, TypeVar

import pytest
import torch

from kernelpath.course import registry
from kernelpath.course.registry import ExerciseRef
from kernelpath.course.spec import Exercise
from kernelpath.grading import grade, measure, multi_gpu, steps, timing
from kernelpath.grading.context import GradingContext
from kernelpath.grading.ground_truth import generate_inputs
from kernelpath.grading.timing_session import TimingSession
from kernelpath.verdict import Finding, Interval, Measurement, Verdict
from kernelpath.work import messages
from kernelpath.work.runner import UNEXPECTED_RESPONSE, SubmissionFailed
from kernelpath.work.tensors import sample, to_bytes

_Response = TypeVar("_Response", bound=messages.WorkerResponse)

BENCH = {"n": 5000}


class Worker:
    """Respond to timing rounds: the submission takes `seconds[0]` and multiplies by `factor` after `from_round` rounds.

    changes_late: the output changes after the call has returned. forged_fields: wrong fields of the output.
    """

    def __init__(
        self,
        exercise: Exercise,
        seconds: Sequence[float],
        factor: float = 2.0,
        from_round: int = 0,
        changes_late: bool = False,
        **forged_fields: Any,
    ) -> None:
        self.exercise = exercise
        self.seconds = seconds
        self.factor = factor
        self.from_round = from_round
        self.changes_late = changes_late
        self.forged_fields = forged_fields
        self.rounds: list[messages.TimeRound] = []

    def request(self, message: messages.WorkerRequest, expected: type[_Response], seconds: float) -> _Response:
        answer: messages.WorkerResponse = messages.TimingReady(secret="", implementations=len(self.seconds))
        if isinstance(message, messages.TimeRound):
            answer = self._round(message)
        assert isinstance(answer, expected)
        return answer

    def _round(self, request: messages.TimeRound) -> messages.RoundTimes:
        self.rounds.append(request)
        (x,) = generate_inputs(self.exercise, BENCH, request.seed, "cpu")
        output = x * (2.0 if len(self.rounds) <= self.from_round else self.factor)
        content = to_bytes(sample(output, request.sample))
        fields = {"dtype": "float32", "shape": list(output.shape), "content": content} | self.forged_fields
        returned = messages.CallResult(
            secret="",
            outputs=[messages.TensorData(**fields)],
            input_fingerprints=[],
            out_of_bounds="",
            operators=[],
            launches=[],
            tampered="",
        )
        seconds = list(self.seconds)
        return messages.RoundTimes(
            secret="", result=returned, seconds=seconds, changed_after_return=self.changes_late, telemetry={}
        )


@pytest.fixture
def exercise(doubling: ExerciseRef) -> Exercise:
    return registry.load(doubling)


def create_session(exercise: Exercise, worker: Worker) -> TimingSession:
    return TimingSession(exercise, BENCH, worker, lambda answer, inputs: None, seed=1, device="cpu")


def test_every_round_has_new_inputs_a_new_sample_and_another_order(exercise: Exercise) -> None:
    worker = Worker(exercise, (1e-3, 2e-3, 1e-3))
    assert create_session(exercise, worker).run(timing.LOOKS, lambda _: None) is None
    first = worker.rounds[: timing.LOOKS[0]]
    assert len(worker.rounds) == timing.LOOKS[0], "a ratio without noise is settled at the first look"
    assert len({message.seed for message in first}) == len({message.sample for message in first}) == len(first)
    assert {message.order[0] for message in first} == {0, 1, 2}


def test_speedup_is_the_time_of_the_baseline_over_that_of_the_submission(exercise: Exercise) -> None:
    timed = create_session(exercise, Worker(exercise, (1e-3, 3e-3, 0.9e-3)))
    timed.run(timing.LOOKS, lambda _: None)
    measured = timed.measurement({"copy": 1e9, "read": 1e9})
    assert measured.speedup.median == pytest.approx(3.0)
    assert measured.of_reference is not None
    assert measured.of_reference.median == pytest.approx(0.9)
    assert measured.compulsory_bytes == 8 * 5000
    assert measured.light_seconds == pytest.approx(40e-6)
    assert measured.share_of_light == pytest.approx(0.04)


def test_without_a_reference_kernel_submission_and_baseline_are_timed(exercise: Exercise) -> None:
    timed = create_session(exercise, Worker(exercise, (1e-3, 3e-3)))
    timed.run(timing.LOOKS, lambda _: None)
    measured = timed.measurement({"copy": 1e9, "read": 1e9})
    assert measured.speedup.median == pytest.approx(3.0)
    assert (measured.of_reference, measured.reference_seconds) == (None, None)


@pytest.mark.parametrize("seconds", [0.0, -1e-3, math.inf, math.nan])
def test_an_impossible_time_is_an_unexpected_response(exercise: Exercise, seconds: float) -> None:
    finding = create_session(exercise, Worker(exercise, (seconds, 1e-3, 1e-3))).run(timing.LOOKS, lambda _: None)
    assert finding == UNEXPECTED_RESPONSE


def test_an_output_that_becomes_wrong_during_timing_is_detected(exercise: Exercise) -> None:
    worker = Worker(exercise, (1e-3, 1e-3, 1e-3), factor=2.001, from_round=7)
    finding = create_session(exercise, worker).run(timing.LOOKS, lambda _: None)
    assert finding is not None
    assert finding.verdict is Verdict.WRONG_VALUES
    assert len(worker.rounds) == 8


@pytest.mark.parametrize(
    ("forged_fields", "verdict"),
    [
        ({"changes_late": True}, Verdict.TAMPERED),
        ({"shape": [4999]}, Verdict.WRONG_SHAPE),
        ({"dtype": "float64"}, Verdict.WRONG_DTYPE),
        ({"dtype": "no_dtype"}, Verdict.WRONG_DTYPE),
    ],
)
def test_a_timed_output_must_have_the_right_shape_and_dtype(
    exercise: Exercise, forged_fields: Any, verdict: Verdict
) -> None:
    finding = create_session(exercise, Worker(exercise, (1e-3, 1e-3), **forged_fields)).run(
        timing.LOOKS, lambda _: None
    )
    assert finding is not None
    assert finding.verdict is verdict


def measurement(seconds: float, speedup: Interval, of_reference: float = 1.0) -> Measurement:
    of_reference_interval = Interval(of_reference, of_reference, of_reference)
    return Measurement({}, seconds, 1.0, 0.5, speedup, of_reference_interval, 1000, 0, 1e-3, {}, 24, "")


@pytest.mark.parametrize(
    ("seconds", "speedup", "verdict"),
    [
        (2e-3, Interval(2.0, 1.9, 2.1), None),
        (2e-3, Interval(1.0, 0.9, 1.1), Verdict.TOO_SLOW),
        (2e-3, Interval(1.5, 1.4, 1.6), Verdict.INCONCLUSIVE),
        (0.5e-3, Interval(9.0, 8.9, 9.1), Verdict.TOO_FAST),
    ],
)
def test_a_speedup_is_compared_with_the_gate(seconds: float, speedup: Interval, verdict: Verdict | None) -> None:
    finding = measure.check_time(measurement(seconds, speedup, of_reference=0.5), min_speedup=1.5)
    assert (finding.verdict if finding else None) is verdict


@pytest.mark.parametrize(
    ("share", "reached", "capability", "says"),
    [
        (0.6, 1.6, (9, 0), ""),
        (0.6, 1.6, (8, 6), ""),
        (0.7, 1.4, (8, 6), "the reference kernel reaches 1.40 on this GPU"),
        (0.9, 1.6, (8, 6), "0.90 times the reference kernel's in the same run"),
        (None, None, (9, 0), ""),
        (None, None, (7, 5), "no gate was measured for sm_75, and there is no reference kernel to compare with"),
    ],
)
def test_a_kernel_does_not_fail_a_gate_that_cannot_be_reached(
    share: float | None, reached: float | None, capability: tuple[int, int], says: str
) -> None:
    """Compare with a gate of 1.5.

    share: the share of the reference kernel's speed. reached: the speedup of the reference kernel.
    """
    slow = dataclasses.replace(
        measurement(2e-3, Interval(1.0, 0.9, 1.1)),
        of_reference=None if share is None else Interval(share, share, share),
        reference_seconds=None if reached is None else 1.0 / reached,
    )
    finding = measure.check_time(slow, 1.5, capability)
    assert finding is not None
    comparison = "1.00 times the baseline's speed, 1.50 required"
    expected = (Verdict.INCONCLUSIVE, f"{comparison}, but {says}") if says else (Verdict.TOO_SLOW, comparison)
    assert (finding.verdict, finding.cause) == expected


class WorkerWithoutMemory:
    """Measure ceilings, then fail with an out-of-memory error when the timing session starts."""

    def __init__(self, by: BaseException) -> None:
        self.by = by

    def request(self, message: messages.WorkerRequest, expected: type[_Response], seconds: float) -> _Response:
        if not isinstance(message, messages.MeasureCeilings):
            raise self.by
        answer = messages.MeasuredCeilings(secret="", ceilings={"copy": 1e12})
        assert isinstance(answer, expected)
        return answer


@pytest.mark.parametrize("item", [item for item in registry.exercises() if item.stars == 3], ids=lambda item: item.name)
def test_the_ceiling_is_that_of_the_dtype_of_the_matrices(item: ExerciseRef) -> None:
    """The dtype that determines the peak rate is the dtype of an input and not that of a loss or a gradient."""
    exercise = registry.load(item)
    if exercise.ceiling_dtype is None:
        return
    dtype = exercise.bench.get("dtype") if exercise.bench else None
    case = exercise.cases[0] if dtype is None else {**exercise.cases[0], "dtype": dtype}
    tensors = (value for value in exercise.inputs(torch.Generator().manual_seed(0), **case) if torch.is_tensor(value))
    dtypes = [str(tensor.dtype).removeprefix("torch.") for tensor in tensors]
    # The matrices are the first inputs, before scales, biases, and statistics.
    if exercise.ceiling_dtype == "float4_e2m1fn_x2":
        assert (dtypes[0], dtypes[1]) == ("uint8", "float8_e4m3fn")
    else:
        assert dtypes[0] == exercise.ceiling_dtype


def test_float32_losses_of_bfloat16_matrices_have_the_ceiling_of_bfloat16() -> None:
    exercise = registry.load(registry.find("linear_cross_entropy"))
    assert set(exercise.tolerance) == {"float32"}
    assert exercise.ceiling_dtype == "bfloat16"


def test_an_exercise_with_few_operations_has_no_ceiling() -> None:
    assert registry.load(registry.find("layernorm")).ceiling_dtype is None


SUBMISSION = SubmissionFailed(Finding(Verdict.CRASHED, "out of memory: CUDA out of memory. Tried to allocate 4.00 GiB"))
BASELINE = SubmissionFailed(Finding(Verdict.UNAVAILABLE, "the baseline failed: CUDA out of memory."))
GRADER = torch.OutOfMemoryError("CUDA out of memory.")


@pytest.mark.parametrize(
    ("by", "gigabytes", "held_against"),
    [
        (SUBMISSION, 16, False),
        (BASELINE, 16, False),
        (GRADER, 16, False),
        (SUBMISSION, 141, True),
        (BASELINE, 141, True),
    ],
)
def test_running_out_of_memory_on_a_small_gpu_is_inconclusive(
    by: BaseException, gigabytes: int, held_against: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    properties = SimpleNamespace(total_memory=gigabytes * 10**9)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda: properties)
    exercise = registry.load(registry.find("vector_add"))

    def run_measurement() -> Finding | None:
        return measure.measure(exercise, WorkerWithoutMemory(by), lambda *_: None, 1, lambda _: None, False, ())[1]

    if held_against:
        with pytest.raises(SubmissionFailed):
            run_measurement()
        return
    finding = run_measurement()
    assert finding is not None
    assert finding.verdict is Verdict.INCONCLUSIVE
    assert finding.cause.startswith("out of memory: the timed case takes 0.8 GB")
    assert finding.cause.endswith("this GPU has 16.0 GB")
    assert finding.step == "{check} --device cpu"


def test_running_out_of_memory_while_profiling_is_inconclusive(monkeypatch: pytest.MonkeyPatch) -> None:
    """The profile is taken at the timed size, before the timing."""

    def full(*_: object) -> None:
        raise SUBMISSION

    monkeypatch.setattr(steps, "check_gpu_kernels", full)
    item = registry.find("vector_add")
    findings = []
    with grade.Session(grade.Job.create(item, item.solution, device="cpu")) as session:
        grading = GradingContext(session.job, session.plan.grader, session.workers, 1, lambda _: None)
        for gigabytes in (6, 141):
            properties = SimpleNamespace(total_memory=gigabytes * 10**9)
            monkeypatch.setattr(torch.cuda, "get_device_properties", lambda properties=properties: properties)
            findings.append(steps.check_gpu_run(grading))
        grading.close()
    small, large = findings
    assert small is not None
    assert small.verdict is Verdict.INCONCLUSIVE
    assert large is SUBMISSION.finding


@pytest.mark.parametrize(
    ("capability", "verdict", "says"),
    [
        ((9, 0), Verdict.TOO_SLOW, ""),
        (
            (8, 0),
            Verdict.INCONCLUSIVE,
            ", but no gate was measured for sm_80, and there is no reference kernel to compare with",
        ),
        (
            (10, 0),
            Verdict.INCONCLUSIVE,
            ", but no gate was measured for sm_100, and there is no reference kernel to compare with",
        ),
    ],
)
def test_the_gate_against_nccl_applies_where_it_was_measured(
    capability: tuple[int, int], verdict: Verdict, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def round_(race: multi_gpu._RankTiming, index: int) -> None:
        for times, seconds in zip(race.seconds, (5e-3, 1e-3), strict=True):
            times.append(seconds)

    monkeypatch.setattr(multi_gpu._RankTiming, "_time_round", round_)
    monkeypatch.setattr(multi_gpu, "_peer_bandwidth", lambda: 1e11)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: capability)
    race = multi_gpu._RankTiming(registry.load(registry.find("all_reduce")), [None, None], seed=1)  # type: ignore[list-item]
    measured, finding = race.run(lambda _: None)
    assert measured is not None
    assert measured.speedup.median == pytest.approx(0.2)
    assert finding is not None
    assert (finding.verdict, finding.cause) == (verdict, f"0.20 times NCCL's speed, 0.50 required{says}")


def test_a_time_near_the_launch_overhead_is_inconclusive() -> None:
    short = dataclasses.replace(measurement(15e-6, Interval(2.0, 1.9, 2.1)), light_seconds=14e-6)
    finding = measure.check_time(short, min_speedup=1.5)
    assert finding is not None
    assert finding.verdict is Verdict.INCONCLUSIVE
    assert "launch overhead" in finding.cause


@pytest.mark.parametrize(
    ("verdict", "of_reference", "expected"),
    [
        (Verdict.PASSED, 0.95, 3),
        (Verdict.PASSED, 0.85, 2),
        (Verdict.TOO_SLOW, 0.95, 1),
        (Verdict.INCONCLUSIVE, 0.95, 1),
        (Verdict.WRONG_VALUES, 0.95, 0),
    ],
)
def test_stars(verdict: Verdict, of_reference: float, expected: int) -> None:
    assert measure.stars(measurement(2e-3, Interval(2, 2, 2), of_reference), verdict, 3) == expected


def test_an_exercise_with_one_star_gives_it_only_for_a_pass() -> None:
    assert measure.stars(None, Verdict.PASSED, 1) == 1
    assert measure.stars(None, Verdict.TOO_SLOW, 1) == 0
    assert measure.stars(None, Verdict.TOO_SLOW, 3) == 1


def test_a_pass_without_a_gpu_has_one_star() -> None:
    assert measure.stars(None, Verdict.PASSED, 3) == 1


def test_the_report_says_why_stars_are_missing(exercise: Exercise) -> None:
    timed = dataclasses.replace(exercise, baseline=exercise.reference, bench=BENCH)
    raced = measurement(2e-3, Interval(2, 2, 2), 1.0)
    withheld = dataclasses.replace(raced, of_reference=None)
    assert measure.stars(withheld, Verdict.PASSED, 3) == 2
    third_star = "the third star: no reference kernel in solutions/ runs on this GPU"
    assert measure.not_measured(timed, withheld) == (third_star,)
    assert measure.not_measured(timed, None) == ("speed: no GPU was used",)
    assert measure.not_measured(timed, raced) == measure.not_measured(exercise, None) == ()
