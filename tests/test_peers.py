"""Test benchmarks/peers.py: its cases are cases of the exercises, and peers accept their inputs.

A failing contestant does not affect the others. The timing itself needs a GPU.
"""

from __future__ import annotations

import inspect
import json
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from kernelpath.course import registry

sys.path.insert(0, "benchmarks")

import peers

RACES = list(peers.races())
ON_THE_CPU = ("eager", "cublas", "_int_mm")


@pytest.mark.parametrize("race", RACES, ids=lambda race: race.exercises[0])
def test_contestants_take_the_inputs_of_every_case(race: peers.Race) -> None:
    exercises = [registry.load(registry.find(name)) for name in race.exercises]
    assert race.cases
    for exercise in exercises:
        for case in race.cases:
            inspect.signature(exercise.problem.inputs).bind(None, **case)
            assert exercise.problem.compulsory_bytes(**case) > 0
    problem = exercises[0].problem
    inputs = problem.inputs(torch.Generator().manual_seed(1), **problem.cases[0])
    for kernel in filter(inspect.isfunction, race.peers.values()):
        inspect.signature(kernel).bind(*inputs)


@pytest.mark.parametrize(
    ("race", "name"),
    [
        pytest.param(race, name, id=f"{race.exercises[0]}-{name}")
        for race in RACES
        for name in race.peers
        if name in ON_THE_CPU and race.exercises[0] != "fp8_gemm"  # torch._scaled_mm with blocks needs a GPU
    ],
)
def test_an_operator_of_pytorch_computes_the_same(race: peers.Race, name: str) -> None:
    problem = registry.load(registry.find(race.exercises[0])).problem
    inputs = problem.inputs(torch.Generator().manual_seed(1), **problem.cases[0])
    out, expected = (peers.first_output(x).double() for x in (race.peers[name](*inputs), problem.reference(*inputs)))
    if name == "_int_mm":  # only our kernel takes scales
        expected = inputs[0].double() @ inputs[1].double().T
    torch.testing.assert_close(out, expected, rtol=0.02, atol=0.02 * expected.square().mean().sqrt().item())


class Clock:
    """Call the contestants on the CPU in place of the stopwatch."""

    device = torch.device("cpu")

    def round(self, calls: Sequence[Callable[[], object]]) -> tuple[list[float], list[object]]:
        outputs = [call() for call in calls]
        return [1e-3] * len(calls), outputs


@pytest.fixture(autouse=True)
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: None)
    monkeypatch.setattr(peers, "entry", lambda name: torch.add)
    monkeypatch.setattr(peers, "absent", {})


def run_with(path: Path, cases: int = 1, resume: bool = False, until: float = 1e30, **kernels: peers.Kernel) -> None:
    """Race torch.add with other kernels in some cases, and record the results."""
    race = peers.Race(("vector_add",), [{"n": 8 + index, "offset": 0} for index in range(cases)], kernels)
    recorder = peers.Recorder(path, resume=resume)
    for result in peers.run(race, Clock(), recorder=recorder, until=until):  # type: ignore[arg-type]
        recorder.add(result, {"sm_mhz": 1980.0})
    recorder.save()


def test_a_contestant_that_raises_is_absent_and_the_others_are_timed(tmp_path: Path) -> None:
    def failing(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        raise OSError("no library")

    run_with(tmp_path / "peers.json", failing=failing, wrong=torch.sub, right=torch.add)
    content = json.loads((tmp_path / "peers.json").read_text())
    (row,) = content["peers"]
    assert set(row["ratios"]) == {"right", "copy"}
    assert set(row["elapsed_ratios"]) == {"right", "copy"}
    assert content["absent"]["failing: vector_add n=8 offset=0"] == "OSError: no library"
    assert content["absent"]["wrong: vector_add n=8 offset=0"].startswith("AssertionError: Tensor-likes are not close")
    assert content["telemetry"] == {"sm_mhz": 1980.0}


def test_a_resumed_run_skips_what_ended_the_process(tmp_path: Path) -> None:
    path = tmp_path / "peers.json"
    calls = []

    def ending(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        calls.append(json.loads(path.read_text())["absent"])
        raise SystemExit

    with pytest.raises(SystemExit):
        run_with(path, ending=ending)
    label = "ending: vector_add n=8 offset=0"
    assert calls == [{label: peers.INTERRUPTED}]
    run_with(path, resume=True, ending=ending, right=torch.add)
    content = json.loads(path.read_text())
    assert len(calls) == 1
    assert set(content["peers"][0]["ratios"]) == {"right", "copy"}
    assert content["absent"] == {label: peers.INTERRUPTED}


def test_a_resumed_run_times_only_what_is_missing(tmp_path: Path) -> None:
    path = tmp_path / "peers.json"
    lengths = []

    def counting(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        lengths.append(len(x))
        return x + y

    run_with(path, counting=counting)
    run_with(path, cases=2, until=0.0, counting=counting, resume=True)
    assert set(lengths) == {8}
    assert json.loads(path.read_text())["absent"] == {"vector_add n=9 offset=0": "not begun in the time given"}
    lengths.clear()
    run_with(path, cases=2, counting=counting, resume=True)
    assert set(lengths) == {9}
    content = json.loads(path.read_text())
    assert [row["case"] for row in content["peers"]] == ["n=8 offset=0", "n=9 offset=0"]
    assert content["absent"] == {}


def test_a_slow_first_call_ends_and_costs_its_time_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers, "FIRST_CALL", 0.05)
    calls = []

    def slow(x: Any, y: Any) -> Any:
        calls.append(len(x))
        time.sleep(60)

    run_with(tmp_path / "peers.json", cases=2, slow=slow)
    assert calls == [8]
    content = json.loads((tmp_path / "peers.json").read_text())
    assert len(content["peers"]) == 2
    assert "took more than" in content["absent"]["slow: vector_add n=8 offset=0"]


@pytest.mark.parametrize(
    ("wrong", "error", "accepted"),
    [(0, 0.0, True), (9, 0.4, True), (9, 0.6, False), (11, 0.1, False), (1000, 0.03, True)],
)
def test_few_elements_may_be_off_by_half_of_their_root_mean_square(wrong: int, error: float, accepted: bool) -> None:
    outcome = peers.Outcome(in_place=False)
    expected = torch.tensor([1.0, -1.0]).repeat(500)
    outcome.compare(expected)
    out = expected.clone()
    out[:wrong] *= 1 - error - 0.04  # the relative tolerance is added to the absolute one
    if accepted:
        outcome.compare(out if wrong < 1000 else expected * (1 - error))
    else:
        with pytest.raises(AssertionError):
            outcome.compare(out)
