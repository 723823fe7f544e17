"""Test the simulated machine of the regression gate: its times, its limits, and its bounds on event counts."""

from __future__ import annotations

import math
import statistics
from fractions import Fraction
from typing import cast

import pytest
import torch

from kernelpath.course.labs.ci_machine import CALLS_AT_MOST, SYMPTOMS, Change, CiMachine, most_compatible
from kernelpath.device import lab_client, lab_messages, lab_server
from kernelpath.device.elements import InvalidRequest
from kernelpath.device.messages import LabPart, TensorRef

CHANGES = (Change(1e-3, 1.0), Change(1e-4, 1.02, tuple(SYMPTOMS)))


def exact_tail(trials: int, rate: Fraction, count: int) -> Fraction:
    """Return the chance of more than `count` events."""
    return sum(
        (math.comb(trials, events) * rate**events * (1 - rate) ** (trials - events))
        for events in range(count + 1, trials + 1)
    )  # type: ignore[return-value]


@pytest.mark.parametrize("trials", [150, 300])
@pytest.mark.parametrize("rate", [Fraction(1, 100), Fraction(1, 20)])
def test_the_bound_is_the_smallest_count_that_is_rarely_exceeded(trials: int, rate: Fraction) -> None:
    bound = most_compatible(trials, float(rate), 1e-6)
    assert exact_tail(trials, rate, bound) <= Fraction(1, 10**6) < exact_tail(trials, rate, bound - 1)


def _no_tensor(tensor: torch.Tensor) -> TensorRef:
    raise AssertionError("a regression gate must send no tensor")


def test_the_proxy_returns_the_same_times() -> None:
    machine = CiMachine("cpu", 5, CHANGES)
    remote_machine = CiMachine("cpu", 5, CHANGES)
    device = lab_server.create_device(lab_server.describe(remote_machine))
    send = cast(lab_client.Send, device.respond)  # its type admits the messages of all devices
    proxy = lab_client.create_proxy(LabPart("ci_machine", "cpu"), send, _no_tensor)
    for change, order in ((1, "ABBA"), (0, "B"), (1, "BBA" * 50)):
        assert proxy(change, order) == machine(change, order)  # type: ignore[operator]


def test_times_do_not_depend_on_how_calls_are_split() -> None:
    order = "ABBA" * (CALLS_AT_MOST // 4)
    split = CiMachine("cpu", 5, CHANGES)
    parts = split(1, order[:7]) + split(0, "A") + split(1, order[7:])
    assert parts[:7] + parts[8:] == CiMachine("cpu", 5, CHANGES)(1, order)


def test_the_versions_differ_only_by_the_ratio() -> None:
    old = CiMachine("cpu", 5, CHANGES)(1, "A" * CALLS_AT_MOST)
    new = CiMachine("cpu", 5, CHANGES)(1, "B" * CALLS_AT_MOST)
    assert [b / a for a, b in zip(old, new, strict=True)] == pytest.approx([1.02] * CALLS_AT_MOST)


def mean_slowdown(trouble: str, calls: range) -> float:
    """Return the mean slowdown of these calls, over 200 changes that share no random numbers."""
    machine = CiMachine("cpu", 3, [Change(1.0, 1.0, (trouble,) if trouble else ())] * 200)
    times = [machine(change, "A" * CALLS_AT_MOST) for change in range(200)]
    return statistics.fmean(row[call] for row in times for call in calls)


@pytest.mark.parametrize(
    ("trouble", "calls", "expected"),
    [
        ("", range(CALLS_AT_MOST), 1.0),
        ("cold", range(40), 3.0),
        ("cold", range(40, CALLS_AT_MOST), 1.0),
        ("throttling", range(CALLS_AT_MOST), 1 + 0.15 / 2),
        ("interruptions", range(CALLS_AT_MOST), 1 + 9 / 25),
        # On average, a neighbor is active for 10 of 50 calls, and slows these by 35%.
        ("neighbors", range(100, CALLS_AT_MOST), 1 + 0.35 * 10 / 50),
    ],
)
def test_troubles_cost_what_the_statement_says(trouble: str, calls: range, expected: float) -> None:
    assert mean_slowdown(trouble, calls) == pytest.approx(expected, rel=0.015)


def test_drift_goes_both_ways() -> None:
    machine = CiMachine("cpu", 3, [Change(1.0, 1.0, ("drift",))] * 100)
    ends = [statistics.fmean(machine(change, "A" * CALLS_AT_MOST)[-20:]) for change in range(100)]
    assert {round(end, 1) for end in ends} == {0.9, 1.1}
    assert 25 < sum(end > 1 for end in ends) < 75


def test_odd_calls_differ_from_even_ones() -> None:
    machine = CiMachine("cpu", 3, [Change(1.0, 1.0, ("alternation",))] * 100)
    times = [machine(change, "A" * CALLS_AT_MOST) for change in range(100)]
    ratios = {round(statistics.fmean(row[1::2]) / statistics.fmean(row[::2]), 2) for row in times}
    assert ratios == {0.97, 1.03}


def test_a_change_has_a_limit_of_calls() -> None:
    machine = CiMachine("cpu", 5, CHANGES)
    machine(0, "AB" * (CALLS_AT_MOST // 2))
    machine(1, "A")
    with pytest.raises(ValueError, match="more than 400 calls of one change"):
        machine(0, "A")


@pytest.mark.parametrize(("change", "order"), [(2, "A"), (-1, "A"), (0, "AbBA")])
def test_wrong_requests_are_refused(change: int, order: str) -> None:
    with pytest.raises(ValueError, match=r"there is no change|an order consists of A and B"):
        CiMachine("cpu", 5, CHANGES)(change, order)


def test_messages_of_other_devices_are_refused() -> None:
    device = lab_server.create_device(lab_server.describe(CiMachine("cpu", 5, CHANGES)))
    with pytest.raises(InvalidRequest):
        device.respond(lab_messages.Timing("clock"))
