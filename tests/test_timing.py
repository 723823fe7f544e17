"""The statistics by known values and by simulation; the stopwatch, on a GPU, by work whose duration is known."""

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
def test_order_gives_every_contestant_every_place_equally_often(contestants: int) -> None:
    rounds = [implementation_order(index, contestants) for index in range(600)]
    places = Counter((place, who) for turn in rounds for place, who in enumerate(turn))
    assert len(places) == contestants**2
    assert max(places.values()) < 1.15 * 600 / contestants
    assert all(sorted(turn) == list(range(contestants)) for turn in rounds)


def test_order_keeps_in_step_with_no_cycle() -> None:
    first = [implementation_order(index, 2)[0] for index in range(1920)]
    assert all(abs(np.mean(first[phase::period]) - 0.5) < 0.15 for period in range(2, 17) for phase in range(period))


# The ranks of the sign test's intervals as tables give them (Conover, table A3 and section 3.2), counted from 1.
@pytest.mark.parametrize(("count", "rank"), [(6, 1), (9, 2), (20, 6), (25, 8), (50, 18)])
def test_interval_takes_the_ranks_of_the_sign_test(count: int, rank: int) -> None:
    ratios = np.random.default_rng(count).permutation(np.arange(1.0, count + 1))
    found = paired_ratio(list(ratios), [1.0] * count, confidence=0.95)
    assert found.median == (count + 1) / 2
    assert found.low * (1 + RESOLUTION) == pytest.approx(rank)
    assert found.high / (1 + RESOLUTION) == pytest.approx(count + 1 - rank)


def test_ratio_pairs_the_times_of_one_round() -> None:
    drift = [1.0 + index for index in range(24)]
    found = paired_ratio([3 * seconds for seconds in drift], [2 * seconds for seconds in drift])
    assert found.median == 1.5
    assert [found.low, found.high] == pytest.approx([1.497, 1.503], abs=1e-4)


def test_every_look_gets_its_share_of_the_confidence() -> None:
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
def test_ratio_refuses_what_is_no_measurement(baseline: list[float], submission: list[float], finding: str) -> None:
    with pytest.raises(ValueError, match=finding):
        paired_ratio(baseline, submission)


def test_the_least_number_of_rounds_has_an_interval() -> None:
    found = paired_ratio([1.0 + index for index in range(LOOKS[0])], [1.0] * LOOKS[0])
    assert 1.0 < found.low < found.median < found.high < LOOKS[0]


def test_judge_counts_the_gate_itself_as_reached() -> None:
    assert compare_with_gate(Interval(1.1, 1.0, 1.2), 1.0) == "above"
    assert compare_with_gate(Interval(1.1, 1.0, 1.2), 1.2) == "straddles"
    assert compare_with_gate(Interval(1.1, 1.0, 1.2), 1.3) == "below"


def test_settled_wants_every_gate_decided_and_a_narrow_interval() -> None:
    narrow = Interval(1.10, 1.095, 1.105)
    assert is_settled(narrow, [0.9, 1.2])
    assert not is_settled(narrow, [0.9, 1.1])
    assert not is_settled(Interval(1.1, 1.0, 1.2), [0.9])


def independent(rng: np.random.Generator, calls: int) -> np.ndarray:
    return 0.01 * rng.standard_normal(calls)


def heavy_tailed(rng: np.random.Generator, calls: int) -> np.ndarray:
    """No mean and no variance."""
    return np.clip(0.005 * rng.standard_t(1.0, calls), -5, 5)


def two_modes(rng: np.random.Generator, calls: int) -> np.ndarray:
    """As short kernels on an H200: fast or 20 % slower, by chance."""
    return 0.2 * (rng.random(calls) < 0.5) + 0.01 * rng.standard_normal(calls)


def drifting(rng: np.random.Generator, calls: int) -> np.ndarray:
    """A random walk of the clocks, interruptions, and a first place of the round that is slower for long spells."""
    walk = np.cumsum(0.005 * rng.standard_normal(calls))
    spells = np.repeat(rng.choice([0.0, 0.05], calls // 16), 16)
    first = np.arange(calls) % 2 == 0
    moved: np.ndarray = walk + spells * first + 0.005 * rng.standard_normal(calls) + 0.3 * (rng.random(calls) < 0.05)
    return moved


def recurring(rng: np.random.Generator, calls: int) -> np.ndarray:
    """Buffers that come back to slow places every eighth call, in step with who would run first in a rotation."""
    return np.tile([0.0, 0.03, 0.03, 0.0, 0.03, 0.0, 0.0, 0.03], calls // 8) + 0.005 * rng.standard_normal(calls)


@lru_cache
def places() -> np.ndarray:
    """The submission's and the baseline's place in every round."""
    return np.argsort([implementation_order(index, 2) for index in range(LOOKS[-1])], axis=1)


def contest(rng: np.random.Generator, noise: Noise, speedup: float, gate: float) -> tuple[Interval, int]:
    """One grading as the parent conducts it: interval and rounds at the look that settles it."""
    calls = np.exp(noise(rng, 2 * LOOKS[-1])).reshape(-1, 2)
    submission, baseline = np.take_along_axis(calls, places(), axis=1).T
    for look in LOOKS:
        found = paired_ratio(list(speedup * baseline[:look]), list(submission[:look]))
        if is_settled(found, [gate]):
            break
    return found, look


@pytest.mark.parametrize("noise", [independent, heavy_tailed, two_modes, drifting, recurring])
def test_the_same_kernel_twice_is_called_faster_or_slower_in_at_most_one_run_of_a_hundred(noise: Noise) -> None:
    rng = np.random.default_rng(11)
    found = [contest(rng, noise, speedup=1.0, gate=1.0)[0] for _ in range(RUNS)]
    assert sum(interval.low > 1 or interval.high < 1 for interval in found) <= RUNS / 100


@pytest.mark.parametrize("noise", [independent, heavy_tailed])
def test_a_kernel_two_percent_faster_is_found_so(noise: Noise) -> None:
    rng = np.random.default_rng(12)
    sides = Counter(compare_with_gate(contest(rng, noise, speedup=1.02, gate=1.0)[0], 1.0) for _ in range(100))
    assert sides["above"] >= 95


def test_a_clear_case_takes_the_fewest_rounds() -> None:
    rng = np.random.default_rng(13)
    assert contest(rng, lambda rng, calls: 0.002 * rng.standard_normal(calls), 2.0, 1.0)[1] == LOOKS[0]


needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")


@pytest.fixture(scope="module")
def stopwatch() -> Stopwatch:
    return Stopwatch("cuda")


@lru_cache
def cycles_per_millisecond() -> int:
    return int(torch.cuda.get_device_properties(0).clock_rate)


def spin(milliseconds: float) -> None:
    """Keep the current stream busy for so long."""
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
def test_work_of_a_thread_that_goes_on_after_the_call_counts(stopwatch: Stopwatch) -> None:
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
def test_every_call_begins_with_a_cold_cache(stopwatch: Stopwatch) -> None:
    x = torch.randn(1 << 22, device="cuda")
    launches = 50
    warm = stopwatch.median(stopwatch.graph(lambda _: x.sum(), launches)) / launches
    assert stopwatch.median(x.sum) > 1.1 * warm


@on_gpu
def test_round_runs_in_the_order_given_and_returns_the_outputs(stopwatch: Stopwatch) -> None:
    seen: list[str] = []

    def slow() -> None:
        seen.append("a")
        spin(0.1)

    def quick() -> int:
        seen.append("b")
        return 7

    seconds, outputs = stopwatch.round([slow, quick])
    assert seen == ["a", "b"]
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
def test_telemetry_is_in_its_units(stopwatch: Stopwatch) -> None:
    found = stopwatch.telemetry()
    if not found:
        pytest.skip("this machine has no NVML")
    assert 100 < found["sm_mhz"] < 5000
    assert 100 < found["memory_mhz"] < 20_000
    assert 5 < found["watts"] < 2000
    assert 10 < found["celsius"] < 110
