"""A round of a race, without a GPU: what it proves of hundreds of tensors, and what that costs."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from kernelpath.course import registry
from kernelpath.course.inputs import generate_inputs
from kernelpath.course.problems import adam
from kernelpath.grading.graders.results import process_finding
from kernelpath.grading.provenance import MUTATED
from kernelpath.grading.timing_session import TimingSession
from kernelpath.verdict import Finding, Verdict
from kernelpath.work import messages
from kernelpath.work.call import GuardedCall
from kernelpath.work.dispatch_monitor import AuditLog
from kernelpath.work.tamper_check import SubmissionThread
from kernelpath.work.timing_rounds import RoundTimer, can_run

_Answer = TypeVar("_Answer", bound=messages.WorkerResponse)
Entry = Callable[..., None]

EXERCISE = registry.load(registry.find("adam"))
AUDIT_LOG, THREAD = AuditLog(), SubmissionThread()


class Clock:
    """Calls and does not time. late: what a GPU still does after the entry has returned."""

    device = torch.device("cpu")

    def __init__(self, late: Callable[[], object] = lambda: None) -> None:
        self._late = late

    def round(self, calls: Sequence[Callable[[], object]]) -> tuple[list[float], list[object]]:
        return [1e-3] * len(calls), [call() for call in calls]

    def wait(self) -> None:
        self._late()

    def telemetry(self) -> dict[str, float]:
        return {}


class Race:
    """Asks for rounds as `Contest` does; its worker is in this process."""

    def __init__(self, entry: Entry, tensors: int = 7, clock: Clock | None = None) -> None:
        case = adam.case("vectors", tensors)
        self.given: list[tuple[Any, ...]] = []

        def observed(*inputs: Any) -> None:
            self.given.append(tuple(one.clone() if isinstance(one, torch.Tensor) else one for one in inputs))
            entry(*inputs)

        self._rounds = RoundTimer(
            EXERCISE, case, [observed, adam.one_by_one, observed], clock or Clock(), self._prepared
        )
        self.calls: list[GuardedCall] = []
        self.contest = TimingSession(EXERCISE, case, self, self._conduct, seed=1, device="cpu")

    def _prepared(self, drawn: Sequence[Any]) -> GuardedCall:
        self.calls.append(GuardedCall("adamw", drawn, Clock.device, THREAD, AUDIT_LOG, True, EXERCISE))
        return self.calls[-1]

    @staticmethod
    def _conduct(returned: messages.CallResult, inputs: tuple[object, ...]) -> Finding | None:
        return process_finding(returned, inputs, EXERCISE.overwritten(inputs))

    def request(self, message: messages.WorkerRequest, expected: type[_Answer], seconds: float) -> _Answer:
        answer: messages.WorkerResponse = messages.TimingReady(secret="", implementations=3)
        if isinstance(message, messages.TimeRound):
            answer = self._rounds.time_round(message, str)
        assert isinstance(answer, expected)
        return answer

    def run(self, rounds: int = 3) -> Finding | None:
        return self.contest.run([rounds], lambda _: None)


@pytest.fixture(autouse=True)
def _few_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three of them have no interval."""
    monkeypatch.setattr("kernelpath.grading.timing.is_settled", lambda *_: True)
    monkeypatch.setattr(TimingSession, "speedup", None)


def bits(inputs: Sequence[Any]) -> list[object]:
    return [one.tolist() if isinstance(one, torch.Tensor) else one for one in inputs]


def test_all_contestants_of_a_round_are_given_what_the_grader_draws_and_nothing_of_each_other() -> None:
    race = Race(adam.one_by_one)
    assert race.run(2) is None
    first, second = race.given[:2], race.given[2:]
    for given in (first, second):
        assert bits(given[0]) == bits(given[1])
    assert bits(first[0]) != bits(second[0]), "new inputs in every round"
    storages = {one.data_ptr() for call in race.calls[:3] for one in call.inputs if isinstance(one, torch.Tensor)}
    assert len(storages) == 3 * 4 * 7


def skipping(index: int) -> Entry:
    def entry(steps: Sequence[int], *others: Any) -> None:
        inputs = (steps, *others)
        kept = [one[index].clone() for one in adam.lists(steps, others[5:])]
        adam.one_by_one(*inputs)
        for one, value in zip(adam.lists(steps, others[5:]), kept, strict=True):
            one[index].copy_(value)

    return entry


@pytest.mark.parametrize("index", [0, 3, 6])
def test_one_tensor_that_stays_as_it_was_is_noticed(index: int) -> None:
    finding = Race(skipping(index)).run()
    assert finding is not None
    assert finding.verdict is Verdict.WRONG_VALUES


class Remembering:
    """Right in its first round, of which it gives the results in all others."""

    def __init__(self) -> None:
        self._results: list[torch.Tensor] = []

    def __call__(self, *inputs: Any) -> None:
        overwritten = adam.updated(*inputs)
        if not self._results:
            adam.one_by_one(*inputs)
            self._results = [one.clone() for one in overwritten]
        for one, result in zip(overwritten, self._results, strict=True):
            one.copy_(result)


def test_the_results_of_an_earlier_round_are_wrong() -> None:
    race = Race(Remembering())
    finding = race.run()
    assert finding is not None
    assert finding.verdict is Verdict.WRONG_VALUES
    assert len(race.contest.seconds[0]) == 2


@pytest.mark.parametrize("index", [0, 6])
def test_a_changed_gradient_is_noticed(index: int) -> None:
    def entry(*inputs: Any) -> None:
        adam.one_by_one(*inputs)
        adam.lists(inputs[0], inputs[6:])[1][index][-1:].mul_(-1.0)

    assert Race(entry).run() == MUTATED


@pytest.mark.parametrize("index", [0, 20])
def test_an_output_that_changes_after_the_clock_has_stopped_is_noticed(index: int) -> None:
    kept: list[torch.Tensor] = []

    def entry(*inputs: Any) -> None:
        adam.one_by_one(*inputs)
        kept[:] = adam.updated(*inputs)

    finding = Race(entry, clock=Clock(lambda: kept[index].add_(1.0))).run()
    assert finding is not None
    assert finding.verdict is Verdict.TAMPERED


# Operators that launch nothing on a GPU.
VIEWS = {"view", "slice", "as_strided", "split", "split_with_sizes", "unbind", "select", "detach", "empty", "set_"}


class Counting(TorchDispatchMode):
    def __init__(self, counts: Counter[str]) -> None:
        TorchDispatchMode.__init__(self)
        self._seen = counts

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        self._seen[func.overloadpacket.__name__] += 1
        return func(*args, **(kwargs or {}))


def test_a_round_waits_as_often_for_many_tensors_as_for_few_and_launches_little_for_each() -> None:
    """They were 100 launches and 9 waits for each tensor, of which GPT-2 has 592 with gradients and moments."""

    def counted(tensors: int) -> Counter[str]:
        race, counts = (
            Race(adam.one_by_one, tensors),
            Counter[str](),
        )  # right, so that no magnitudes are computed
        with Counting(counts):
            assert race.run(1) is None
        return counts

    few, many = counted(8), counted(24)
    assert few["_local_scalar_dense"] == many["_local_scalar_dense"] <= 8
    launches = [sum(count for name, count in counts.items() if name not in VIEWS) for counts in (few, many)]
    contestants = 3  # each launches _fused_adamw_
    assert (launches[1] - launches[0]) / (4 * 16) < 20 + contestants


class Waiting(Clock):
    """Notes how many objects Python's next collection has to look at when the clock starts."""

    def __init__(self) -> None:
        super().__init__()
        self.young: list[int] = []

    def round(self, calls: Sequence[Callable[[], object]]) -> tuple[list[float], list[object]]:
        self.young.append(gc.get_count()[0])
        return super().round(calls)


def test_no_collection_is_due_when_the_clock_starts() -> None:
    clock = Waiting()
    gc.disable()  # as in a worker
    try:
        assert Race(adam.one_by_one, tensors=200, clock=clock).run() is None
    finally:
        gc.enable()
    assert clock.young
    assert max(clock.young) < gc.get_threshold()[0] / 2


def test_a_reference_kernel_that_the_gpu_cannot_launch_does_not_race() -> None:
    def too_large(*_: Any) -> None:
        raise ValueError("147456 bytes of shared memory exceed the 101376 of a block on sm_86")

    given: list[tuple[Any, ...]] = []
    case = adam.case("vectors", 7)
    assert can_run(lambda *inputs: given.append(inputs), EXERCISE, case, Clock.device)
    assert [len(one) for one in given] == [len(generate_inputs(EXERCISE, case, 0, Clock.device))]
    assert not can_run(too_large, EXERCISE, case, Clock.device)
