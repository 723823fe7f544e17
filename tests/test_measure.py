"""The grader's side of a measurement, against a worker that is made up."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
import torch

from kernelpath.course import registry
from kernelpath.course.registry import Item
from kernelpath.course.spec import Exercise, Traffic
from kernelpath.grading import compare, measure, timing
from kernelpath.grading.truth import draw_inputs
from kernelpath.verdict import Complaint, Interval, LineTraffic, Measurement, Verdict

BENCH = {"n": 5000}


class Worker:
    """Answers rounds: the submission takes `seconds[0]`, and multiplies by `factor` from round `from_round` on."""

    def __init__(self, exercise: Exercise, seconds: Sequence[float], factor: float = 2.0, from_round: int = 0) -> None:
        self.exercise, self.seconds, self.factor, self.from_round = exercise, seconds, factor, from_round
        self.rounds: list[Mapping[str, Any]] = []

    def ask(self, message: Mapping[str, Any], _: float) -> tuple[dict[str, Any], list[bytes]]:
        if message["do"] == "contest":
            return {"contestants": len(self.seconds)}, []
        self.rounds.append(message)
        (x,) = draw_inputs(self.exercise, BENCH, message["seed"], "cpu")
        output = x * (2.0 if len(self.rounds) <= self.from_round else self.factor)
        told = {"dtype": "float32", "shape": list(output.shape)}
        answer = {"outputs": [told], "seconds": list(self.seconds), "late": False, "telemetry": {}}
        return answer, [compare.raw_bytes(compare.sample(output, message["sample"])).numpy().tobytes()]


@pytest.fixture
def exercise(doubling: Item) -> Exercise:
    return registry.load(doubling)


def contest(exercise: Exercise, worker: Worker) -> measure.Contest:
    return measure.Contest(exercise, BENCH, worker.ask, lambda answer, inputs: None, seed=1, device="cpu")


def test_every_round_has_new_inputs_a_new_sample_and_another_order(exercise: Exercise) -> None:
    worker = Worker(exercise, (1e-3, 2e-3, 1e-3))
    assert contest(exercise, worker).run(timing.LOOKS, lambda _: None) is None
    first = worker.rounds[: timing.LOOKS[0]]
    assert len(worker.rounds) == timing.LOOKS[0], "a ratio without noise is settled at the first look"
    assert len({message["seed"] for message in first}) == len({message["sample"] for message in first}) == len(first)
    assert {message["order"][0] for message in first} == {0, 1, 2}


def test_speedup_is_the_baselines_time_over_the_submissions(exercise: Exercise) -> None:
    timed = contest(exercise, Worker(exercise, (1e-3, 3e-3, 0.9e-3)))
    timed.run(timing.LOOKS, lambda _: None)
    measured = timed.measurement({"copy": 1e9, "read": 1e9})
    assert measured.speedup.median == pytest.approx(3.0)
    assert measured.of_reference is not None
    assert measured.of_reference.median == pytest.approx(0.9)
    assert measured.bytes_moved == 8 * 5000
    assert measured.light_seconds == pytest.approx(40e-6)
    assert measured.share_of_light == pytest.approx(0.04)


def test_without_the_reference_kernel_the_rest_is_timed(exercise: Exercise) -> None:
    timed = contest(exercise, Worker(exercise, (1e-3, 3e-3)))
    timed.run(timing.LOOKS, lambda _: None)
    measured = timed.measurement({"copy": 1e9, "read": 1e9})
    assert measured.speedup.median == pytest.approx(3.0)
    assert (measured.of_reference, measured.reference_seconds) == (None, None)


def test_an_output_that_turns_wrong_while_timed_is_noticed(exercise: Exercise) -> None:
    worker = Worker(exercise, (1e-3, 1e-3, 1e-3), factor=2.001, from_round=7)
    complaint = contest(exercise, worker).run(timing.LOOKS, lambda _: None)
    assert complaint is not None
    assert complaint.verdict is Verdict.WRONG_VALUES
    assert len(worker.rounds) == 8


def measurement(seconds: float, speedup: Interval, of_reference: float = 1.0) -> Measurement:
    same = Interval(of_reference, of_reference, of_reference)
    return Measurement({}, seconds, 1.0, 1.0, speedup, same, 1000, 0, 1e-3, {}, 24, "")


@pytest.mark.parametrize(
    ("seconds", "speedup", "verdict"),
    [
        (2e-3, Interval(2.0, 1.9, 2.1), None),
        (2e-3, Interval(1.0, 0.9, 1.1), Verdict.TOO_SLOW),
        (2e-3, Interval(1.5, 1.4, 1.6), Verdict.INCONCLUSIVE),
        (0.5e-3, Interval(9.0, 8.9, 9.1), Verdict.TOO_FAST),
    ],
)
def test_the_gate(seconds: float, speedup: Interval, verdict: Verdict | None) -> None:
    complaint = measure.time_complaint(measurement(seconds, speedup), min_speedup=1.5)
    assert (complaint.verdict if complaint else None) is verdict


def test_a_time_that_is_launch_overhead_decides_nothing() -> None:
    short = dataclasses.replace(measurement(15e-6, Interval(2.0, 1.9, 2.1)), light_seconds=14e-6)
    complaint = measure.time_complaint(short, min_speedup=1.5)
    assert complaint is not None
    assert complaint.verdict is Verdict.INCONCLUSIVE
    assert "launch overhead" in complaint.cause


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
    assert measure.stars(measurement(2e-3, Interval(2, 2, 2), of_reference), verdict) == expected


def test_a_pass_without_a_gpu_has_one_star() -> None:
    assert measure.stars(None, Verdict.PASSED) == 1


def test_what_keeps_a_pass_from_more_stars_is_said(exercise: Exercise) -> None:
    def said(exercise: Exercise, measured: Measurement | None, verdict: Verdict = Verdict.PASSED) -> tuple[str, ...]:
        return measure.not_measured(exercise, measured, verdict)

    timed = dataclasses.replace(exercise, baseline=exercise.reference, bench=BENCH)
    raced = measurement(2e-3, Interval(2, 2, 2), 1.0)
    withheld = dataclasses.replace(raced, of_reference=None)
    assert measure.stars(withheld, Verdict.PASSED) == 2
    assert said(timed, withheld) == ("the third star: there is no reference kernel in solutions/",)
    assert said(timed, None) == ("speed: no GPU was used",)
    assert said(timed, raced) == said(exercise, None) == said(timed, withheld, Verdict.TOO_SLOW) == ()


def load(number: int, memory: str = "a", **counts: int) -> LineTraffic:
    return LineTraffic("k.cu", number, "load from", memory, **counts)


def complaint_of(lines: Sequence[LineTraffic], limits: Traffic, compulsory: int = 1) -> Complaint | None:
    return measure.traffic_complaint(lines, limits, compulsory, {"m": 8, "n": 4})


def test_the_worst_access_of_a_line_is_named_with_what_would_do() -> None:
    lines = [
        load(3, requests=10, sectors=40, ideal_sectors=40),
        load(4, requests=10, sectors=320, ideal_sectors=40),
        load(4, "b", requests=10, sectors=10, ideal_sectors=40),
    ]
    complaint = complaint_of(lines, Traffic(sectors=1.5))
    assert complaint is not None
    assert (complaint.line, complaint.file) == (4, "k.cu")
    assert complaint.cause == "line 4, load from a: 32 sectors per request, 4 would do"


def test_vector_loads_are_not_punished_for_their_width() -> None:
    assert complaint_of([load(3, requests=10, sectors=160, ideal_sectors=160)], Traffic(sectors=1.0)) is None


def test_a_tail_may_be_uncoalesced() -> None:
    body = load(3, requests=1000, sectors=4000, ideal_sectors=4000)
    tail = load(9, requests=3, sectors=3, ideal_sectors=1)
    assert complaint_of([body, tail], Traffic(sectors=1.3)) is None


def test_many_small_scattered_accesses_count_together() -> None:
    lines = [load(n, requests=1, sectors=8, ideal_sectors=1) for n in range(60)]
    assert complaint_of(lines, Traffic(sectors=1.3)) is not None


def test_bank_conflicts_are_named() -> None:
    loads = load(8, requests=1, sectors=4, ideal_sectors=4)
    lines = [loads, load(9, "shared memory", requests=4, wavefronts=128, ideal_wavefronts=4)]
    complaint = complaint_of(lines, Traffic(bank_conflicts=0.5))
    assert complaint is not None
    assert complaint.cause == "line 9, load from shared memory: 32 wavefronts per request, 1 would do"


def test_bytes_over_compulsory() -> None:
    lines = [load(1, requests=1, sectors=10, ideal_sectors=10), load(2, requests=1, sectors=90, ideal_sectors=90)]
    assert complaint_of(lines, Traffic(bytes=1.5), compulsory=3200) is None
    complaint = complaint_of(lines, Traffic(bytes=1.5), compulsory=1600)
    assert complaint is not None
    assert complaint.line == 2
    assert complaint.cause == (
        "at m=8 n=4: 3,200 bytes moved, at most 2,400 are allowed (1,600 would do if nothing were moved twice);"
        " most in line 2, load from a"
    )


def test_the_sample_is_drawn_from_everywhere() -> None:
    values = compare.sample(torch.arange(100_000), seed=3)
    assert values.min() < 1000
    assert values.max() > 99_000
