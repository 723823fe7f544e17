"""Test the timing statistics with known values and simulations, and the stopwatch on a GPU with known durations."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
import pytest
import torch

from kernelpath.grading.timing import (
    LOOKS,
    RESOLUTION,
    compare_with_gate,
    implementation_order,
    is_settled,
    paired_ratio,
)
from kernelpath.verdict import Interval
from kernelpath.work.stopwatch import Stopwatch

RUNS = 1500

Noise = Callable[[np.random.Generator, int], np.ndarray]


@pytest.mark.parametrize("contestants", [2, 3])
def test_every_contestant_runs_equally_often_at_every_place(contestants: int) -> None:
    rounds = [implementation_order(index, contestants) for index in range(600)]
    implementation_places = Counter((place, contestant) for order in rounds for place, contestant in enumerate(order))
    assert len(implementation_places) == contestants**2
    assert max(implementation_places.values()) < 1.15 * 600 / contestants
    assert all(sorted(order) == list(range(contestants)) for order in rounds)


def test_the_order_has_no_period() -> None:
    first = [implementation_order(index, 2)[0] for index in range(1920)]
    assert all(abs(np.mean(first[phase::period]) - 0.5) < 0.15 for period in range(2, 17) for phase in range(period))


# The ranks of the sign test's intervals as tables give them (Conover, table A3 and section 3.2), counted from 1.
@pytest.mark.parametrize(("count", "rank"), [(6, 1), (9, 2), (20, 6), (25, 8), (50, 18)])
def test_the_interval_has_the_ranks_of_the_sign_test(count: int, rank: int) -> None:
    ratios = np.random.default_rng(count).permutation(np.arange(1.0, count + 1))
    interval = paired_ratio(list(ratios), [1.0] * count, confidence=0.95)
    assert interval.median == (count + 1) / 2
    assert interval.low * (1 + RESOLUTION) == pytest.approx(rank)
    assert interval.high / (1 + RESOLUTION) == pytest.approx(count + 1 - rank)


def test_the_ratio_pairs_the_times_of_each_round() -> None:
    drift = [1.0 + index for index in range(24)]
    interval = paired_ratio([3 * seconds for seconds in drift], [2 * seconds for seconds in drift])
    assert interval.median == 1.5
    assert [interval.low, interval.high] == pytest.approx([1.497, 1.503], abs=1e-4)


def test_the_confidence_is_corrected_for_the_number_of_looks() -> None:
    times = list(np.random.default_rng(3).lognormal(0, 0.1, 96))
    corrected = paired_ratio(times, [1.0] * 96)
    assert corrected == paired_ratio(times, [1.0] * 96, confidence=1 - 0.01 / len(LOOKS))
    assert corrected.low < paired_ratio(times, [1.0] * 96, confidence=0.95).low


@pytest.mark.parametrize(
    ("baseline", "submission", "finding"),
    [
        ([1.0] * 24, [1.0] * 23, "24 baseline times are paired with 23"),
        ([1.0] * 24, [1.0] * 23 + [0.0], "not a positive"),
        ([1.0] * 23 + [float("nan")], [1.0] * 24, "not a positive"),
        ([1.0] * 5, [1.0] * 5, "5 rounds are too few"),
        ([], [], "0 rounds are too few"),
    ],
)
def test_the_ratio_refuses_invalid_times(baseline: list[float], submission: list[float], finding: str) -> None:
    with pytest.raises(ValueError, match=finding):
        paired_ratio(baseline, submission)


def test_the_smallest_number_of_rounds_has_an_interval() -> None:
    interval = paired_ratio([1.0 + index for index in range(LOOKS[0])], [1.0] * LOOKS[0])
    assert 1.0 < interval.low < interval.median < interval.high < LOOKS[0]


def test_a_speedup_equal_to_the_gate_counts_as_reached() -> None:
    assert compare_with_gate(Interval(1.1, 1.0, 1.2), 1.0) == "above"
    assert compare_with_gate(Interval(1.1, 1.0, 1.2), 1.2) == "straddles"
    assert compare_with_gate(Interval(1.1, 1.0, 1.2), 1.3) == "below"


def test_timing_is_settled_by_a_narrow_interval_that_contains_no_gate() -> None:
    narrow = Interval(1.10, 1.095, 1.105)
    assert is_settled(narrow, [0.9, 1.2])
    assert not is_settled(narrow, [0.9, 1.1])
    assert not is_settled(Interval(1.1, 1.0, 1.2), [0.9])


def independent(rng: np.random.Generator, calls: int) -> np.ndarray:
    return 0.01 * rng.standard_normal(calls)


def heavy_tailed(rng: np.random.Generator, calls: int) -> np.ndarray:
    """Return noise with a Cauchy distribution, which has neither mean nor variance."""
    return np.clip(0.005 * rng.standard_t(1.0, calls), -5, 5)


def two_modes(rng: np.random.Generator, calls: int) -> np.ndarray:
    """Return noise like that of short kernels on an H200, which are randomly fast or 20% slower."""
    return 0.2 * (rng.random(calls) < 0.5) + 0.01 * rng.standard_normal(calls)


def drifting(rng: np.random.Generator, calls: int) -> np.ndarray:
    """Return a random walk of the clocks with interruptions and long periods in which the first place is slower."""
    walk = np.cumsum(0.005 * rng.standard_normal(calls))
    spells = np.repeat(rng.choice([0.0, 0.05], calls // 16), 16)
    first = np.arange(calls) % 2 == 0
    slowdowns: np.ndarray = (
        walk + spells * first + 0.005 * rng.standard_normal(calls) + 0.3 * (rng.random(calls) < 0.05)
    )
    return slowdowns


def recurring(rng: np.random.Generator, calls: int) -> np.ndarray:
    """Return noise of buffers that are slow with a period of eight calls, in phase with a simple rotation."""
    return np.tile([0.0, 0.03, 0.03, 0.0, 0.03, 0.0, 0.0, 0.03], calls // 8) + 0.005 * rng.standard_normal(calls)


@lru_cache
def implementation_places() -> np.ndarray:
    """Return the places of the submission and the baseline in every round."""
    return np.argsort([implementation_order(index, 2) for index in range(LOOKS[-1])], axis=1)


def simulate_session(rng: np.random.Generator, noise: Noise, speedup: float, gate: float) -> tuple[Interval, int]:
    """Simulate a timing session and return the interval and the number of rounds at the look that settles it."""
    calls = np.exp(noise(rng, 2 * LOOKS[-1])).reshape(-1, 2)
    submission, baseline = np.take_along_axis(calls, implementation_places(), axis=1).T
    for look in LOOKS:
        interval = paired_ratio(list(speedup * baseline[:look]), list(submission[:look]))
        if is_settled(interval, [gate]):
            break
    return interval, look


@pytest.mark.parametrize("noise", [independent, heavy_tailed, two_modes, drifting, recurring])
def test_equal_kernels_are_called_different_in_at_most_one_percent_of_runs(noise: Noise) -> None:
    rng = np.random.default_rng(11)
    intervals = [simulate_session(rng, noise, speedup=1.0, gate=1.0)[0] for _ in range(RUNS)]
    assert sum(interval.low > 1 or interval.high < 1 for interval in intervals) <= RUNS / 100


@pytest.mark.parametrize("noise", [independent, heavy_tailed])
def test_a_kernel_that_is_two_percent_faster_is_detected(noise: Noise) -> None:
    rng = np.random.default_rng(12)
    sides = Counter(compare_with_gate(simulate_session(rng, noise, speedup=1.02, gate=1.0)[0], 1.0) for _ in range(100))
    assert sides["above"] >= 95


def test_a_clear_difference_takes_the_fewest_rounds() -> None:
    rng = np.random.default_rng(13)
    assert simulate_session(rng, lambda rng, calls: 0.002 * rng.standard_normal(calls), 2.0, 1.0)[1] == LOOKS[0]


needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")


@pytest.fixture(scope="module")
def stopwatch() -> Stopwatch:
    return Stopwatch("cuda")


@lru_cache
def cycles_per_millisecond() -> int:
    return int(torch.cuda.get_device_properties(0).clock_rate)


def spin(milliseconds: float) -> None:
    """Keep the current stream busy for a duration."""
    torch.cuda._sleep(int(milliseconds * cycles_per_millisecond()))


def on_gpu(test: Callable[..., None]) -> Callable[..., None]:
    marked: Callable[..., None] = pytest.mark.gpu(needs_gpu(test))
    return marked


@on_gpu
@pytest.mark.parametrize("milliseconds", [0.05, 1.0])
@pytest.mark.parametrize("priority", [None, 0, -1])
def test_work_on_any_stream_counts(stopwatch: Stopwatch, milliseconds: float, priority: int | None) -> None:
    stream = torch.cuda.default_stream() if priority is None else torch.cuda.Stream(priority=priority)

    def call() -> None:
        with torch.cuda.stream(stream):
            spin(milliseconds)

    assert stopwatch.median(call) == pytest.approx(milliseconds * 1e-3, rel=0.2)


@on_gpu
@pytest.mark.parametrize("host_seconds", [50e-6, 600e-6])
def test_launch_overhead_does_not_count(stopwatch: Stopwatch, host_seconds: float) -> None:
    assert stopwatch.median(lambda: time.sleep(host_seconds)) < 5e-6


@on_gpu
def test_time_on_the_host_beyond_a_launch_counts(stopwatch: Stopwatch) -> None:
    assert stopwatch.median(lambda: time.sleep(20e-3)) > 10e-3


@on_gpu
def test_work_of_a_thread_that_outlives_the_call_counts(stopwatch: Stopwatch) -> None:
    side = torch.cuda.Stream()

    def later() -> None:
        time.sleep(500e-6)
        with torch.cuda.stream(side):
            spin(5.0)

    def call() -> None:
        threading.Thread(target=later).start()
        spin(1.0)

    assert stopwatch.median(call, rounds=5) > 3e-3


@on_gpu
def test_every_call_starts_with_a_cold_cache(stopwatch: Stopwatch) -> None:
    x = torch.randn(1 << 22, device="cuda")
    launches = 50
    warm = stopwatch.median(stopwatch.graph(lambda _: x.sum(), launches)) / launches
    assert stopwatch.median(x.sum) > 1.1 * warm


@on_gpu
def test_a_round_runs_in_the_given_order_and_returns_the_outputs(stopwatch: Stopwatch) -> None:
    order: list[str] = []

    def slow() -> None:
        order.append("a")
        spin(0.1)

    def quick() -> int:
        order.append("b")
        return 7

    seconds, outputs = stopwatch.round([slow, quick])
    assert order == ["a", "b"]
    assert outputs == [None, 7]
    assert seconds[0] > 50e-6 > seconds[1]


@on_gpu
def test_graph_runs_every_input_set_at_each_replay(stopwatch: Stopwatch) -> None:
    sets = [torch.full((1000,), float(index), device="cuda") for index in range(4)]
    replay = stopwatch.graph(lambda index: sets[index % 4] * 2, launches=8)
    sets[3].fill_(10.0)
    (seconds,), outputs = stopwatch.round([replay])
    graphed: Any = outputs[0]
    assert [float(output[0]) for output in graphed] == [0.0, 2.0, 4.0, 20.0, 0.0, 2.0, 4.0, 20.0]
    assert 8 * 0.5e-6 < seconds < 8 * 20e-6


@on_gpu
def test_telemetry_has_the_stated_units(stopwatch: Stopwatch) -> None:
    telemetry = stopwatch.telemetry()
    if not telemetry:
        pytest.skip("this machine has no NVML")
    assert 100 < telemetry["sm_mhz"] < 5000
    assert 100 < telemetry["memory_mhz"] < 20_000
    assert 5 < telemetry["watts"] < 2000
    assert 10 < telemetry["celsius"] < 110
