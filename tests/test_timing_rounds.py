"""Test a timing round without a GPU: how it verifies hundreds of tensors, and how many launches the checks cost."""

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

_Response = TypeVar("_Response", bound=messages.WorkerResponse)
Entry = Callable[..., None]

EXERCISE = registry.load(registry.find("adam"))
AUDIT_LOG = AuditLog()
THREAD = SubmissionThread()


class UntimedClock:
    """Call the contestants without timing them.

    late: stands for the work that a GPU still does after the entry has returned.
    """

    device = torch.device("cpu")

    def __init__(self, late: Callable[[], object] = lambda: None) -> None:
        self._late = late

    def round(self, calls: Sequence[Callable[[], object]]) -> tuple[list[float], list[object]]:
        return [1e-3] * len(calls), [call() for call in calls]

    def wait(self) -> None:
        self._late()

    def telemetry(self) -> dict[str, float]:
        return {}


class InProcessTimer:
    """Run a `TimingSession` whose worker is in this process."""

    def __init__(self, entry: Entry, tensors: int = 7, clock: UntimedClock | None = None) -> None:
        case = adam.case("vectors", tensors)
        self.received_inputs: list[tuple[Any, ...]] = []

        def record_inputs(*inputs: Any) -> None:
            self.received_inputs.append(
                tuple(tensor.clone() if isinstance(tensor, torch.Tensor) else tensor for tensor in inputs)
            )
            entry(*inputs)

        self._rounds = RoundTimer(
            EXERCISE, case, [record_inputs, adam.one_by_one, record_inputs], clock or UntimedClock(), self._prepare_call
        )
        self.calls: list[GuardedCall] = []
        self.timing_session = TimingSession(EXERCISE, case, self, self._check_provenance, seed=1, device="cpu")

    def _prepare_call(self, inputs: Sequence[Any]) -> GuardedCall:
        self.calls.append(GuardedCall("adamw", inputs, UntimedClock.device, THREAD, AUDIT_LOG, True, EXERCISE))
        return self.calls[-1]

    @staticmethod
    def _check_provenance(returned: messages.CallResult, inputs: tuple[object, ...]) -> Finding | None:
        return process_finding(returned, inputs, EXERCISE.overwritten(inputs))

    def request(self, message: messages.WorkerRequest, expected: type[_Response], seconds: float) -> _Response:
        response: messages.WorkerResponse = messages.TimingReady(secret="", implementations=3)
        if isinstance(message, messages.TimeRound):
            response = self._rounds.time_round(message, str)
        assert isinstance(response, expected)
        return response

    def run(self, rounds: int = 3) -> Finding | None:
        return self.timing_session.run([rounds], lambda _: None)


@pytest.fixture(autouse=True)
def _few_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Skip the statistics: three rounds are too few for an interval."""
    monkeypatch.setattr("kernelpath.grading.timing.is_settled", lambda *_: True)
    monkeypatch.setattr(TimingSession, "speedup", None)


def bits(inputs: Sequence[Any]) -> list[object]:
    return [tensor.tolist() if isinstance(tensor, torch.Tensor) else tensor for tensor in inputs]


def test_contestants_of_a_round_receive_equal_inputs_in_separate_memory() -> None:
    race = InProcessTimer(adam.one_by_one)
    assert race.run(2) is None
    first = race.received_inputs[:2]
    second = race.received_inputs[2:]
    for received_inputs in (first, second):
        assert bits(received_inputs[0]) == bits(received_inputs[1])
    assert bits(first[0]) != bits(second[0]), "new inputs in every round"
    storages = {
        tensor.data_ptr() for call in race.calls[:3] for tensor in call.inputs if isinstance(tensor, torch.Tensor)
    }
    assert len(storages) == 3 * 4 * 7


def skip_update_of(index: int) -> Entry:
    def entry(steps: Sequence[int], *tensors: Any) -> None:
        inputs = (steps, *tensors)
        original_values = [tensors_of_kind[index].clone() for tensors_of_kind in adam.lists(steps, tensors[5:])]
        adam.one_by_one(*inputs)
        for tensors_of_kind, value in zip(adam.lists(steps, tensors[5:]), original_values, strict=True):
            tensors_of_kind[index].copy_(value)

    return entry


@pytest.mark.parametrize("index", [0, 3, 6])
def test_a_single_tensor_that_is_not_updated_is_detected(index: int) -> None:
    finding = InProcessTimer(skip_update_of(index)).run()
    assert finding is not None
    assert finding.verdict is Verdict.WRONG_VALUES


class FirstResultReplayer:
    """Compute correct results in the first round and return them again in every later round."""

    def __init__(self) -> None:
        self._results: list[torch.Tensor] = []

    def __call__(self, *inputs: Any) -> None:
        overwritten = adam.updated(*inputs)
        if not self._results:
            adam.one_by_one(*inputs)
            self._results = [tensor.clone() for tensor in overwritten]
        for tensor, result in zip(overwritten, self._results, strict=True):
            tensor.copy_(result)


def test_replaying_the_results_of_an_earlier_round_is_detected() -> None:
    race = InProcessTimer(FirstResultReplayer())
    finding = race.run()
    assert finding is not None
    assert finding.verdict is Verdict.WRONG_VALUES
    assert len(race.timing_session.seconds[0]) == 2


@pytest.mark.parametrize("index", [0, 6])
def test_a_modified_gradient_is_detected(index: int) -> None:
    def entry(*inputs: Any) -> None:
        adam.one_by_one(*inputs)
        adam.lists(inputs[0], inputs[6:])[1][index][-1:].mul_(-1.0)

    assert InProcessTimer(entry).run() == MUTATED


@pytest.mark.parametrize("index", [0, 20])
def test_an_output_that_changes_after_the_clock_has_stopped_is_detected(index: int) -> None:
    outputs: list[torch.Tensor] = []

    def entry(*inputs: Any) -> None:
        adam.one_by_one(*inputs)
        outputs[:] = adam.updated(*inputs)

    finding = InProcessTimer(entry, clock=UntimedClock(lambda: outputs[index].add_(1.0))).run()
    assert finding is not None
    assert finding.verdict is Verdict.TAMPERED


# Operators that launch nothing on a GPU.
VIEWS = {"view", "slice", "as_strided", "split", "split_with_sizes", "unbind", "select", "detach", "empty", "set_"}


class OperatorCounter(TorchDispatchMode):
    def __init__(self, counts: Counter[str]) -> None:
        TorchDispatchMode.__init__(self)
        self._counts = counts

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        self._counts[func.overloadpacket.__name__] += 1
        return func(*args, **(kwargs or {}))


def test_synchronizations_of_a_round_do_not_grow_with_the_number_of_tensors() -> None:
    """Checking each tensor separately took 100 launches and 9 synchronizations, and GPT-2 has 592 tensors here."""

    def count_operators(tensors: int) -> Counter[str]:
        race, counts = (
            InProcessTimer(adam.one_by_one, tensors),
            Counter[str](),
        )  # the entry is correct, so that no magnitudes are computed
        with OperatorCounter(counts):
            assert race.run(1) is None
        return counts

    few = count_operators(8)
    many = count_operators(24)
    assert few["_local_scalar_dense"] == many["_local_scalar_dense"] <= 8
    launches = [sum(count for name, count in counts.items() if name not in VIEWS) for counts in (few, many)]
    contestants = 3  # each launches _fused_adamw_
    assert (launches[1] - launches[0]) / (4 * 16) < 20 + contestants


class GcWatchingClock(UntimedClock):
    """Record how many young objects the garbage collector tracks when the clock starts."""

    def __init__(self) -> None:
        super().__init__()
        self.young: list[int] = []

    def round(self, calls: Sequence[Callable[[], object]]) -> tuple[list[float], list[object]]:
        self.young.append(gc.get_count()[0])
        return super().round(calls)


def test_no_garbage_collection_is_due_when_the_clock_starts() -> None:
    clock = GcWatchingClock()
    gc.disable()  # workers disable the garbage collector, too
    try:
        assert InProcessTimer(adam.one_by_one, tensors=200, clock=clock).run() is None
    finally:
        gc.enable()
    assert clock.young
    assert max(clock.young) < gc.get_threshold()[0] / 2


def test_a_reference_kernel_that_the_gpu_cannot_launch_is_not_timed() -> None:
    def too_large(*_: Any) -> None:
        raise ValueError("147456 bytes of shared memory exceed the 101376 of a block on sm_86")

    received_inputs: list[tuple[Any, ...]] = []
    case = adam.case("vectors", 7)
    assert can_run(lambda *inputs: received_inputs.append(inputs), EXERCISE, case, UntimedClock.device)
    assert [len(inputs) for inputs in received_inputs] == [len(generate_inputs(EXERCISE, case, 0, UntimedClock.device))]
    assert not can_run(too_large, EXERCISE, case, UntimedClock.device)
