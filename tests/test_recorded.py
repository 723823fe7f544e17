"""The GPU that answers with recorded times: Triton's own autotuner runs on it, and what it does there is known."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import triton
import triton.testing
from triton.runtime.autotuner import Autotuner
from triton.runtime.errors import OutOfResources
from triton.runtime.jit import JITFunction

from kernelpath.course.labs import recorded
from kernelpath.course.labs.recorded import RecordedGpu, Size
from kernelpath.device import lab_client, lab_server
from kernelpath.device import lab_messages as messages
from kernelpath.device.elements import InvalidRequest
from kernelpath.device.lab_tuning import MAX_SHARED, GpuProxy
from kernelpath.device.messages import LabPart
from warpcheck.frontends import triton as lane

lane.activate("cpu")

SMALL, LARGE = Size("float16", 16, 4096, 4096), Size("float16", 4096, 4096, 4096)
ODD = Size("float16", 64, 2880, 2880)
FEW_ROWS, MANY_ROWS = (16, 64, 128, 4, 8, 3), (128, 256, 64, 1, 8, 3)
TOO_LARGE = (128, 256, 128, 1, 8, 5)


def connected(*requests: Size) -> tuple[GpuProxy, lab_server.SimulatedGpu]:
    served = lab_server.create_device(lab_server.describe(RecordedGpu("cpu", requests)))
    assert isinstance(served, lab_server.SimulatedGpu)
    proxy = lab_client.create_proxy(LabPart("recorded", "cpu"), served.respond, lambda tensor: None)  # type: ignore[arg-type, return-value]
    assert isinstance(proxy, GpuProxy)
    return proxy, served


def spent(served: lab_server.SimulatedGpu) -> recorded.TuningUsage:
    found = served.report(()).tuning
    assert found is not None
    return found


def config(*values: int) -> triton.Config:
    names = ("BLOCK_M", "BLOCK_N", "BLOCK_K", "SPLIT_K")
    return triton.Config(dict(zip(names, values, strict=False)), num_warps=values[4], num_stages=values[5])


def kernel() -> Any:
    """Only its arguments count."""

    def accumulate(a, w, c, M, N, K, size_class, BLOCK_M, BLOCK_N, BLOCK_K, SPLIT_K) -> None:  # type: ignore[no-untyped-def]
        pass

    return triton.jit(accumulate)


def serve(gpu: GpuProxy, tuned: Any, size_class: Callable[[int], int] = lambda M: M) -> None:
    with gpu.during({}):
        for a, w, c in gpu.requests:
            (m, k), n = a.shape, w.shape[0]

            def grid(meta: dict[str, int], m: int = m, n: int = n) -> tuple[int, int]:
                return triton.cdiv(m, meta["BLOCK_M"]) * triton.cdiv(n, meta["BLOCK_N"]), meta["SPLIT_K"]

            tuned[grid](a, w, c, m, n, k, size_class(m))


def tuned(configs: list[triton.Config], key: tuple[str, ...] = ("size_class",), **options: Any) -> Any:
    return triton.autotune(configs, key=list(key), **{"restore_value": ["c"], **options})(kernel())


def test_the_fastest_is_found_once_for_each_key() -> None:
    gpu, served = connected(SMALL, LARGE, SMALL, LARGE)
    serve(gpu, tuned([config(*FEW_ROWS), config(*MANY_ROWS)]))
    found = spent(served)
    assert found.chosen == [list(FEW_ROWS), list(MANY_ROWS)] * 2
    assert found.slower == [1.0] * 4
    assert (found.measured, found.compiled, found.ledger) == (4, 2, [0, 0, 0, 0])
    record = recorded.recording()
    assert found.seconds == pytest.approx(2 * record.compile_seconds + 4 * record.bench_seconds)


def test_what_was_found_for_another_size_is_slower() -> None:
    gpu, served = connected(*[SMALL, LARGE] * (recorded.AVERAGED // 2))
    serve(gpu, tuned([config(*FEW_ROWS), config(*MANY_ROWS)]), lambda M: 0)
    found = spent(served)
    times = recorded.recording().seconds[LARGE]
    place = recorded.recording().configurations.index(FEW_ROWS)
    assert found.slower[1] == pytest.approx((times[place] or 0) / min(time for time in times if time))
    assert found.ledger[3] > 100


def test_a_day_of_few_requests_has_no_mean() -> None:
    """A single size may be the one for which the configuration of its class is 22 % slower than the best."""
    gpu, served = connected(SMALL, LARGE)
    serve(gpu, tuned([config(*FEW_ROWS), config(*MANY_ROWS)]), lambda M: 0)
    found = spent(served)
    assert found.slower[1] > 3
    assert found.ledger == [0, 0, 0, 0]


def test_a_key_of_its_own_for_each_call_tunes_a_size_twice() -> None:
    gpu, served = connected(SMALL, SMALL)
    serve(gpu, tuned([config(*FEW_ROWS), config(*MANY_ROWS)], ("a",)))
    assert spent(served).ledger == [0, 1, 0, 0]
    assert spent(served).first_remeasured == str(SMALL)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"restore_value": None}, "the product was added 5 times"),  # two configurations, twice each, then the launch
        ({"restore_value": None, "reset_to_zero": ["c"]}, "the previous content of c is lost"),
    ],
    ids=["nothing", "zero"],
)
def test_measuring_that_is_not_undone_shows_in_c(options: dict[str, Any], said: str) -> None:
    gpu, served = connected(SMALL, SMALL)
    serve(gpu, tuned([config(*FEW_ROWS), config(*MANY_ROWS)], **options))
    assert spent(served).wrongs == 1, "the second call measures nothing"
    assert said in spent(served).wrong


def test_the_fastest_may_be_wrong() -> None:
    gpu, served = connected(ODD)
    serve(gpu, tuned([config(64, 64, 128, 1, 8, 5), config(64, 64, 64, 1, 8, 5)]))
    assert spent(served).chosen == [[64, 64, 128, 1, 8, 5]]
    assert "K is not a multiple of BLOCK_K=128 times SPLIT_K=1" in spent(served).wrong


def test_what_does_not_fit_is_passed_over_and_cannot_be_launched() -> None:
    gpu, served = connected(SMALL)
    serve(gpu, tuned([config(*TOO_LARGE), config(*FEW_ROWS)]))
    assert spent(served).chosen == [list(FEW_ROWS)]
    assert (spent(served).compiled, spent(served).measured) == (2, 1)
    with pytest.raises(OutOfResources, match=f"Hardware limit: {MAX_SHARED}"):
        serve(connected(SMALL)[0], tuned([config(*TOO_LARGE)]))


def test_a_configuration_outside_of_the_space_is_refused() -> None:
    with pytest.raises(ValueError, match=r"BLOCK_M=32 .* is not in the space"):
        serve(connected(SMALL)[0], tuned([config(32, 64, 64, 1, 4, 3)]))


@pytest.mark.parametrize(
    ("grid", "said"), [((63, 4), "63 programs for 64 tiles of 16 x 64"), ((64, 1), "1 programs for each tile")]
)
def test_a_grid_that_is_too_small_leaves_something_out(grid: tuple[int, int], said: str) -> None:
    gpu, served = connected(SMALL)
    ((a, w, c),) = gpu.requests
    with gpu.during({}):
        kernel()[grid](a, w, c, 16, 4096, 4096, 0, 16, 64, 128, 4, num_warps=8, num_stages=3)
    assert said in spent(served).wrong


def test_a_result_that_was_only_measured_is_no_result() -> None:
    _, served = connected(SMALL)
    ask = messages.LaunchRecorded(operands=(0, 1, 2), sizes=(16, 4096, 4096), configuration=FEW_ROWS, grid=(64, 4, 1))
    for one in (messages.Bench(begins=True), ask, messages.Bench(begins=False)):
        served.respond(one)
    assert spent(served).wrong.endswith("the product was not added to c")
    served.respond(ask)
    assert "2 times" in spent(served).wrong


@pytest.mark.parametrize(
    "forged",
    [
        messages.Move(what="zero", matrix=3),
        messages.Move(what="clone", matrix=-1),
        messages.Move(what="copy", matrix=7, target=0),
        messages.GetLedger(status=0),
    ],
    ids=repr,
)
def test_what_no_client_asks_for_is_refused(forged: Any) -> None:
    _, served = connected(SMALL)
    with pytest.raises(InvalidRequest):
        served.respond(forged)


@pytest.mark.parametrize("operands", [(0, 1, 5), (0, 4, 2), (1, 2, 0), (-3, -2, 2), (6, 7, 8)], ids=repr)
def test_operands_are_those_of_one_request(operands: tuple[int, int, int]) -> None:
    _, served = connected(SMALL, LARGE)
    with pytest.raises((ValueError, InvalidRequest)):
        served.respond(
            messages.LaunchRecorded(operands=operands, sizes=(16, 4096, 4096), configuration=FEW_ROWS, grid=(64, 4, 1))
        )


def test_triton_is_as_it_was_after_the_call() -> None:
    def now() -> Iterator[Any]:
        return (vars(owner)[name] for owner, name in places)

    places = ((JITFunction, "run"), (Autotuner, "do_bench"), (triton.testing, "do_bench"))
    before = [*now()]
    names = {"timer": triton.testing.do_bench}
    gpu, _ = connected(SMALL)
    with gpu.during(names):
        assert not any(one is other for one, other in zip(before, now(), strict=True))
        assert names["timer"] == gpu.do_bench
    assert all(one is other for one, other in zip(before, now(), strict=True))
    assert names["timer"] is before[2]


def test_tensors_are_launched_where_they_are() -> None:
    @triton.jit
    def count(x):  # type: ignore[no-untyped-def]
        triton.language.store(x, 7)

    x = torch.zeros(1, dtype=torch.int32)
    with connected(SMALL)[0].during({"triton": triton}):
        count[(1,)](x)
    assert x.item() == 7


def test_the_record_has_a_time_for_what_fits() -> None:
    record = recorded.recording()
    assert len(record.configurations) == 144
    for size, times in record.seconds.items():
        for seconds, nbytes in zip(times, record.shared[size.dtype], strict=True):
            assert (seconds is None) == (nbytes > MAX_SHARED)
            assert seconds is None or 5e-6 < seconds < 0.02
    by_layer = itertools.groupby(record.seconds, lambda size: (size.dtype, size.N, size.K))
    assert all(record.best(a) < 1.3 * record.best(b) for _, sizes in by_layer for a, b in itertools.pairwise(sizes))
