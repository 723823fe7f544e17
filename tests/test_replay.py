"""Test the replay of a step from host calls and GPU activities, and the simulated steps of `bottlenecks`."""

from __future__ import annotations

import random

import pytest

from kernelpath.course.traces import TraceFile, recordings, replay
from kernelpath.course.traces.replay import PAGEABLE, SYNCHRONIZE, Call


def create_launch(work: float, cost: float, duration: float, name: str = "gemm", blocks: int = 1000) -> Call:
    return Call("cudaLaunchKernel", work, cost, activity=name, duration=duration, blocks=blocks)


def test_a_slow_host_determines_the_span() -> None:
    # Each kernel starts when its call ends, 10 µs after the previous kernel, and the last kernel takes 2 µs.
    assert replay.span([create_launch(0, 5, 2)] + [create_launch(5, 5, 2)] * 3) == 5 + 3 * 10 + 2


def test_a_slow_gpu_determines_the_span() -> None:
    assert replay.span([create_launch(0, 5, 100)] + [create_launch(5, 5, 100)] * 3) == 5 + 4 * 100


def test_a_synchronization_waits_for_all_launches() -> None:
    calls = [create_launch(0, 5, 100), Call(SYNCHRONIZE, 1, 0, waits=True), create_launch(2, 5, 1)]
    assert [item.end for item in replay.run(calls)] == [5, 105, 112]
    assert replay.span(replay.change(calls, ["async"], 132)) == 106


def test_a_pageable_copy_blocks_host_and_gpu_and_a_prefetch_does_not() -> None:
    copy = Call("cudaMemcpyAsync", 0, 0, waits=True, activity=PAGEABLE, duration=50, bytes=9)
    calls = [copy, create_launch(1, 5, 10)]
    assert replay.span(calls) == 50 + 1 + 5 + 10
    assert replay.span(replay.change(calls, ["prefetch"], 132)) == 1 + 5 + 10


def test_a_chain_ends_at_every_other_call() -> None:
    simple = create_launch(1, 2, 3, "vectorized_elementwise_kernel")
    event_record = Call("cudaEventRecord", 1, 1)
    assert replay.chains([simple, simple, event_record, simple, create_launch(1, 2, 3), simple, simple, simple]) == [
        [0, 1],
        [5, 6, 7],
    ]


def test_a_fused_chain_takes_as_long_as_its_longest_kernel_and_one_launch() -> None:
    names = ("elementwise a", "elementwise b", "elementwise c")
    calls = [create_launch(1, 2, duration, name) for name, duration in zip(names, (10, 30, 20), strict=True)]
    (fused,) = replay.change(calls, ["fusion"], 132)
    assert (fused.activity, fused.duration, fused.cost) == ("elementwise a", 30, 2)


def test_a_kernel_with_few_blocks_takes_its_share_of_the_multiprocessors() -> None:
    calls = [create_launch(0, 1, 100, blocks=33), create_launch(0, 1, 100, blocks=132)]
    assert [call.duration for call in replay.change(calls, ["split"], 132)] == [25, 100]


@pytest.mark.parametrize("profile", replay.PROFILES)
def test_a_simulated_trace_is_parsed_correctly(profile: str) -> None:
    calls, multiprocessors = replay.read(replay.simulate(random.Random(profile), profile, 30))
    rng = random.Random(profile)
    rng.choice(range(4))  # `simulate` draws the number of multiprocessors first
    simulated_calls = replay._draw_calls(rng, profile, 30, multiprocessors)
    assert len(calls) == len(simulated_calls)
    assert replay.span(calls) == pytest.approx(replay.span(simulated_calls), rel=1e-6)
    for name in replay.CHANGES:
        spans = [replay.span(replay.change(version, [name], 132)) for version in (calls, simulated_calls)]
        assert spans[0] == pytest.approx(spans[1], rel=1e-5), name


def test_each_change_is_the_most_profitable_of_some_profile() -> None:
    best = {
        replay.of(TraceFile("trace.json", replay.simulate(random.Random(seed), profile, 40)))["bottlenecks"][0]  # type: ignore[index]
        for profile in replay.PROFILES
        for seed in range(8)
    }
    assert best == set(replay.CHANGES)


def test_the_replay_of_the_recorded_block_has_the_recorded_duration() -> None:
    """Without a profiler, an H200 gains 1.16× from a CUDA graph, 1.06× from not reading the loss (w05b_profile.md)."""
    calls, multiprocessors = replay.read(recordings.read("block", recordings.TRACE))
    span = replay.span(calls)
    assert span == pytest.approx(9015, rel=0.01)
    gains = {name: span / replay.span(replay.change(calls, [name], multiprocessors)) for name in replay.CHANGES}
    assert gains["graph"] == pytest.approx(1.16, rel=0.02)
    assert gains["async"] == pytest.approx(1.06, rel=0.02)
