"""Test the simulated GPU that replays recorded times, on which Triton's own autotuner runs."""

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

SMALL = Size("float16", 16, 4096, 4096)
LARGE = Size("float16", 4096, 4096, 4096)
K_NOT_DIVISIBLE = Size("float16", 64, 2880, 2880)
FEW_ROWS = (16, 64, 128, 4, 8, 3)
MANY_ROWS = (128, 256, 64, 1, 8, 3)
TOO_LARGE = (128, 256, 128, 1, 8, 5)


def connect(*requests: Size) -> tuple[GpuProxy, lab_server.SimulatedGpu]:
    server = lab_server.create_device(lab_server.describe(RecordedGpu("cpu", requests)))
    assert isinstance(server, lab_server.SimulatedGpu)
    proxy = lab_client.create_proxy(LabPart("recorded", "cpu"), server.respond, lambda tensor: None)  # type: ignore[arg-type, return-value]
    assert isinstance(proxy, GpuProxy)
    return proxy, server


def read_usage(server: lab_server.SimulatedGpu) -> recorded.TuningUsage:
    usage = server.report(()).tuning
    assert usage is not None
    return usage


def config(*values: int) -> triton.Config:
    names = ("BLOCK_M", "BLOCK_N", "BLOCK_K", "SPLIT_K")
    return triton.Config(dict(zip(names, values, strict=False)), num_warps=values[4], num_stages=values[5])


def create_kernel() -> Any:
    """Return a kernel of which the simulated GPU uses only the arguments."""

    def accumulate(a, w, c, M, N, K, size_class, BLOCK_M, BLOCK_N, BLOCK_K, SPLIT_K) -> None:  # type: ignore[no-untyped-def]
        pass

    return triton.jit(accumulate)


def serve(gpu: GpuProxy, autotuned_kernel: Any, size_class: Callable[[int], int] = lambda M: M) -> None:
    with gpu.during({}):
        for a, w, c in gpu.requests:
            (m, k), n = a.shape, w.shape[0]

            def grid(meta: dict[str, int], m: int = m, n: int = n) -> tuple[int, int]:
                return triton.cdiv(m, meta["BLOCK_M"]) * triton.cdiv(n, meta["BLOCK_N"]), meta["SPLIT_K"]

            autotuned_kernel[grid](a, w, c, m, n, k, size_class(m))


def autotune(configs: list[triton.Config], key: tuple[str, ...] = ("size_class",), **options: Any) -> Any:
    return triton.autotune(configs, key=list(key), **{"restore_value": ["c"], **options})(create_kernel())


def test_each_key_is_tuned_once_and_gets_the_fastest_configuration() -> None:
    gpu, served = connect(SMALL, LARGE, SMALL, LARGE)
    serve(gpu, autotune([config(*FEW_ROWS), config(*MANY_ROWS)]))
    usage = read_usage(served)
    assert usage.chosen == [list(FEW_ROWS), list(MANY_ROWS)] * 2
    assert usage.slower == [1.0] * 4
    assert (usage.measured, usage.compiled, usage.ledger) == (4, 2, [0, 0, 0, 0])
    record = recorded.recording()
    assert usage.seconds == pytest.approx(2 * record.compile_seconds + 4 * record.bench_seconds)


def test_reusing_the_configuration_of_another_size_is_slower() -> None:
    gpu, served = connect(*[SMALL, LARGE] * (recorded.AVERAGED // 2))
    serve(gpu, autotune([config(*FEW_ROWS), config(*MANY_ROWS)]), lambda M: 0)
    usage = read_usage(served)
    times = recorded.recording().seconds[LARGE]
    index = recorded.recording().configurations.index(FEW_ROWS)
    assert usage.slower[1] == pytest.approx((times[index] or 0) / min(time for time in times if time))
    assert usage.ledger[3] > 100


def test_too_few_requests_have_no_mean_slowdown() -> None:
    """A single size proves nothing, because the configuration of its class can be 22% slower than the best."""
    gpu, served = connect(SMALL, LARGE)
    serve(gpu, autotune([config(*FEW_ROWS), config(*MANY_ROWS)]), lambda M: 0)
    usage = read_usage(served)
    assert usage.slower[1] > 3
    assert usage.ledger == [0, 0, 0, 0]


def test_a_key_that_differs_for_each_call_tunes_a_size_twice() -> None:
    gpu, served = connect(SMALL, SMALL)
    serve(gpu, autotune([config(*FEW_ROWS), config(*MANY_ROWS)], ("a",)))
    assert read_usage(served).ledger == [0, 1, 0, 0]
    assert read_usage(served).first_remeasured == str(SMALL)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"restore_value": None}, "the product was added 5 times"),  # two configurations, twice each, then the launch
        ({"restore_value": None, "reset_to_zero": ["c"]}, "the previous content of c is lost"),
    ],
    ids=["nothing", "zero"],
)
def test_measuring_without_restoring_c_is_reported(options: dict[str, Any], message: str) -> None:
    gpu, served = connect(SMALL, SMALL)
    serve(gpu, autotune([config(*FEW_ROWS), config(*MANY_ROWS)], **options))
    assert read_usage(served).wrongs == 1, "the second call measures nothing"
    assert message in read_usage(served).wrong


def test_the_fastest_configuration_may_compute_wrong_results() -> None:
    gpu, served = connect(K_NOT_DIVISIBLE)
    serve(gpu, autotune([config(64, 64, 128, 1, 8, 5), config(64, 64, 64, 1, 8, 5)]))
    assert read_usage(served).chosen == [[64, 64, 128, 1, 8, 5]]
    assert "K is not a multiple of BLOCK_K=128 times SPLIT_K=1" in read_usage(served).wrong


def test_a_configuration_with_too_much_shared_memory_is_skipped_and_cannot_be_launched() -> None:
    gpu, served = connect(SMALL)
    serve(gpu, autotune([config(*TOO_LARGE), config(*FEW_ROWS)]))
    assert read_usage(served).chosen == [list(FEW_ROWS)]
    assert (read_usage(served).compiled, read_usage(served).measured) == (2, 1)
    with pytest.raises(OutOfResources, match=f"Hardware limit: {MAX_SHARED}"):
        serve(connect(SMALL)[0], autotune([config(*TOO_LARGE)]))


def test_a_configuration_outside_the_search_space_is_refused() -> None:
    with pytest.raises(ValueError, match=r"BLOCK_M=32 .* is not in the space"):
        serve(connect(SMALL)[0], autotune([config(32, 64, 64, 1, 4, 3)]))


@pytest.mark.parametrize(
    ("grid", "message"), [((63, 4), "63 programs for 64 tiles of 16 x 64"), ((64, 1), "1 programs for each tile")]
)
def test_a_grid_that_is_too_small_is_reported(grid: tuple[int, int], message: str) -> None:
    gpu, served = connect(SMALL)
    ((a, w, c),) = gpu.requests
    with gpu.during({}):
        create_kernel()[grid](a, w, c, 16, 4096, 4096, 0, 16, 64, 128, 4, num_warps=8, num_stages=3)
    assert message in read_usage(served).wrong


def test_launches_during_a_benchmark_do_not_count_as_results() -> None:
    _, served = connect(SMALL)
    launch = messages.LaunchRecorded(
        operands=(0, 1, 2), sizes=(16, 4096, 4096), configuration=FEW_ROWS, grid=(64, 4, 1)
    )
    for message in (messages.Bench(begins=True), launch, messages.Bench(begins=False)):
        served.respond(message)
    assert read_usage(served).wrong.endswith("the product was not added to c")
    served.respond(launch)
    assert "2 times" in read_usage(served).wrong


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
def test_forged_requests_are_refused(forged: Any) -> None:
    _, served = connect(SMALL)
    with pytest.raises(InvalidRequest):
        served.respond(forged)


@pytest.mark.parametrize("operands", [(0, 1, 5), (0, 4, 2), (1, 2, 0), (-3, -2, 2), (6, 7, 8)], ids=repr)
def test_operands_of_different_requests_are_refused(operands: tuple[int, int, int]) -> None:
    _, served = connect(SMALL, LARGE)
    with pytest.raises((ValueError, InvalidRequest)):
        served.respond(
            messages.LaunchRecorded(operands=operands, sizes=(16, 4096, 4096), configuration=FEW_ROWS, grid=(64, 4, 1))
        )


def test_patches_of_triton_are_undone_after_the_call() -> None:
    def read_attributes() -> Iterator[Any]:
        return (vars(owner)[name] for owner, name in attributes)

    attributes = ((JITFunction, "run"), (Autotuner, "do_bench"), (triton.testing, "do_bench"))
    before = [*read_attributes()]
    names = {"timer": triton.testing.do_bench}
    gpu, _ = connect(SMALL)
    with gpu.during(names):
        assert not any(original is current for original, current in zip(before, read_attributes(), strict=True))
        assert names["timer"] == gpu.do_bench
    assert all(original is current for original, current in zip(before, read_attributes(), strict=True))
    assert names["timer"] is before[2]


def test_kernels_on_real_tensors_still_run() -> None:
    @triton.jit
    def count(x):  # type: ignore[no-untyped-def]
        triton.language.store(x, 7)

    x = torch.zeros(1, dtype=torch.int32)
    with connect(SMALL)[0].during({"triton": triton}):
        count[(1,)](x)
    assert x.item() == 7


def test_the_recording_has_a_time_for_each_configuration_that_fits() -> None:
    record = recorded.recording()
    assert len(record.configurations) == 144
    for size, times in record.seconds.items():
        for seconds, nbytes in zip(times, record.shared[size.dtype], strict=True):
            assert (seconds is None) == (nbytes > MAX_SHARED)
            assert seconds is None or 5e-6 < seconds < 0.02
    by_layer = itertools.groupby(record.seconds, lambda size: (size.dtype, size.N, size.K))
    assert all(record.best(a) < 1.3 * record.best(b) for _, sizes in by_layer for a, b in itertools.pairwise(sizes))
