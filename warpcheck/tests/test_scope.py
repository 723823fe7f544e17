"""Test scopes: the faults that they find, the reports, and that they restore what they replace."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
import warnings
from typing import Any

import pytest
import torch
import triton
import triton.language as tl

import warpcheck
from warpcheck import frontends
from warpcheck.errors import FaultKind
from warpcheck.monitor import LaunchMonitor, ScopeSettings

INDEPENDENT = "__global__ void kernel(int* x) {\n    x[threadIdx.x] = 1;\n}\n"
SHIFT = """
__global__ void kernel(int* x) {
    __shared__ int tile[64];
    tile[threadIdx.x] = threadIdx.x;
    BARRIER
    x[threadIdx.x] = tile[63 - threadIdx.x];
}
"""
FLAG = """
__global__ void kernel(int* x) {
    if (blockIdx.x == 0) x[0] = 1;
    if (blockIdx.x == 1) x[1] = atomicAdd(x + 2, 0) == 0 ? 7 : 8;
    if (blockIdx.x == 0) atomicAdd(x + 2, 1);
}
"""


@triton.jit  # type: ignore[untyped-decorator]
def double_kernel(x, out, n, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, 2 * tl.load(x + i, mask=i < n), mask=i < n)


def cuda_kernel(source: str) -> Any:
    return warpcheck.cuda.kernel(source, "kernel")


def launch(source: str, *, threads: int = 64, blocks: int = 1) -> torch.Tensor:
    x = torch.zeros(64, dtype=torch.int32)
    cuda_kernel(source)[blocks, threads](x)
    return x


def read_state() -> dict[str, Any]:
    """Return everything outside of warpcheck that a scope replaces."""
    return {
        "driver": dict(vars(triton.runtime.driver)),
        "empty": torch.empty,
        "new_empty": torch.Tensor.new_empty,
        "properties": torch.cuda.get_device_properties,
        "device": torch.cuda.current_device,
        "jit": triton.runtime.jit.JITFunction._do_compile,
        "tuner": triton.runtime.autotuner.Autotuner.run,
        "formatwarning": warnings.formatwarning,
        "environment": os.environ.get("TRITON_INTERPRET"),
    }


def test_a_scope_restores_what_it_replaces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    before = read_state()
    with warpcheck.gpu("sm_90a"):
        assert read_state() != before
        assert torch.cuda.get_device_properties().major == 9
        assert torch.cuda.get_device_properties().multi_processor_count == 132
        assert triton.runtime.driver.active.get_current_target().arch == 90
    assert read_state() == before


def test_a_scope_is_restored_after_an_exception() -> None:
    before = read_state()
    with pytest.raises(ZeroDivisionError), warpcheck.gpu():
        print(1 // 0)
    assert read_state() == before
    with warpcheck.gpu():  # the next scope can begin
        pass


def test_a_process_has_one_scope_at_a_time() -> None:
    errors: list[RuntimeError] = []

    def enter() -> None:
        try:
            with warpcheck.gpu():
                pass
        except RuntimeError as error:
            errors.append(error)

    with warpcheck.gpu():
        enter()
        # A scope is global to the process, so another thread can't enter a second one either.
        thread = threading.Thread(target=enter)
        thread.start()
        thread.join()
    assert len(errors) == 2


def test_a_triton_kernel_runs_and_is_counted() -> None:
    def double(x: torch.Tensor) -> torch.Tensor:
        out = torch.empty_like(x)
        double_kernel[(triton.cdiv(x.numel(), 256),)](x, out, x.numel(), BLOCK=256)
        return out

    x = torch.arange(1000.0)
    report = warpcheck.run(double, x)
    (record,) = report.launches
    assert report.result.equal(2 * x)
    assert (record.language, record.kernel) == ("triton", "double_kernel")
    assert record.line("tl.store").global_store_bytes == 4000


@pytest.mark.parametrize("schedules", ["forward", "reverse", "all", [warpcheck.Schedule.STRIDED, "reverse"]])
def test_a_race_is_found_in_every_schedule(schedules: Any) -> None:
    with pytest.raises(warpcheck.Race, match="no barrier between them"):
        warpcheck.run(launch, SHIFT.replace("BARRIER", ""), schedules=schedules)
    report = warpcheck.run(launch, SHIFT.replace("BARRIER", "__syncthreads();"), schedules=schedules)
    assert report.result.tolist() == [*range(63, -1, -1)]


def test_a_result_that_depends_on_the_order_is_a_warning() -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert warpcheck.run(launch, FLAG, blocks=2, threads=1).launches
        assert not caught
        report = warpcheck.run(launch, FLAG, blocks=2, threads=1, schedules="all")
    assert any("when its blocks and warps run in the opposite order" in str(warning.message) for warning in caught)
    assert report.result[1] == 8, "the results are those of the forward order"


def test_a_fault_has_its_location_and_schedule() -> None:
    with pytest.raises(warpcheck.OutOfBounds) as caught:
        warpcheck.run(launch, INDEPENDENT, threads=96, schedules=[warpcheck.Schedule.REVERSE])
    fault = caught.value
    assert (fault.kind, fault.kernel, fault.line) == (FaultKind.OUT_OF_BOUNDS, "kernel", 2)
    assert fault.schedule == warpcheck.Schedule.REVERSE
    assert fault.thread[0] >= 64


def test_a_fault_that_the_program_swallows_is_in_the_report() -> None:
    with warpcheck.gpu() as report:
        with contextlib.suppress(Exception):
            launch(INDEPENDENT, threads=96)
        launch(INDEPENDENT)
    assert [type(fault) for fault in report.faults] == [warpcheck.OutOfBounds]
    assert len(report.launches) == 1


@pytest.mark.parametrize("checked", [True, False])
def test_reads_of_torch_empty_are_faults_unless_allowed(checked: bool) -> None:
    kernel = cuda_kernel("__global__ void kernel(int* x) {\n    x[0] = x[1];\n}\n")
    with warpcheck.gpu(uninitialized=checked) as report:
        x = torch.empty(2, dtype=torch.int32)
        with contextlib.suppress(warpcheck.Uninitialized):
            kernel[1, 1](x)
    assert [type(fault) for fault in report.faults] == [warpcheck.Uninitialized] * checked


def test_run_can_allow_reads_of_torch_empty() -> None:
    kernel = cuda_kernel("__global__ void kernel(int* x) {\n    x[0] = x[1];\n}\n")

    def program() -> None:
        kernel[1, 1](torch.empty(2, dtype=torch.int32))

    with pytest.raises(warpcheck.Uninitialized):
        warpcheck.run(program)
    assert not warpcheck.run(program, uninitialized=False).faults


@pytest.mark.parametrize(
    ("bounds", "length", "is_fault"),
    [("tensor", 60, False), ("tensor", 61, True), ("allocation", 64, False), ("allocation", 65, True)],
)
def test_bounds_are_those_of_the_tensor_or_of_its_allocation(bounds: Any, length: int, is_fault: bool) -> None:
    kernel = cuda_kernel("__global__ void kernel(int* x, int n) {\n    if (threadIdx.x < n) x[threadIdx.x] = 1;\n}\n")
    view = torch.zeros(64, dtype=torch.int32)[:60]
    with warpcheck.gpu(bounds=bounds) as report, contextlib.suppress(warpcheck.OutOfBounds):
        kernel[1, 96](view, length)
    assert [type(fault) for fault in report.faults] == [warpcheck.OutOfBounds] * is_fault


def test_bounds_before_a_view_in_the_middle_of_its_allocation() -> None:
    kernel = cuda_kernel("__global__ void kernel(int* x) {\n    x[-4] = 1;\n}\n")
    memory = torch.zeros(64, dtype=torch.int32)
    with pytest.raises(warpcheck.OutOfBounds):
        warpcheck.run(kernel[1, 1], memory[4:])
    warpcheck.run(kernel[1, 1], memory[4:], bounds="allocation")
    assert memory[0] == 1


def test_unknown_bounds_are_an_error() -> None:
    with (
        pytest.raises(ValueError, match="there are no bounds 'view': choose from tensor, allocation"),
        warpcheck.gpu(
            bounds="view"  # type: ignore[arg-type]
        ),
    ):
        pass


def test_run_raises_a_fault_that_the_function_swallows() -> None:
    racy = warpcheck.cuda.kernel(SHIFT.replace("BARRIER", ""), "kernel")
    correct = warpcheck.cuda.kernel(INDEPENDENT, "kernel")

    def program(x: torch.Tensor) -> None:
        with contextlib.suppress(Exception):
            racy[1, 64](x)
        correct[1, 64](x)

    with pytest.raises(warpcheck.Race):
        warpcheck.run(program, torch.zeros(64, dtype=torch.int32))


def test_a_launch_on_a_gpu_is_an_error() -> None:
    launched = frontends.Launched("cuda", "fill", "cuda:0", ())
    with warpcheck.gpu(), pytest.raises(ValueError, match="fill ran on cuda:0 and was not checked"):
        frontends.record(launched)


def test_running_a_function_without_launches_is_an_error() -> None:
    with pytest.raises(ValueError, match="launched no kernel: nothing was checked"):
        warpcheck.run(torch.zeros, 3)


def test_a_line_is_found_by_a_part_of_its_text() -> None:
    (record,) = warpcheck.run(launch, INDEPENDENT).launches
    assert record.line("x[threadIdx.x]") is record.line(2) is record.lines[2]
    for key in ("y[", 99, "x"):
        with pytest.raises(LookupError):
            record.line(key)
    assert "x[threadIdx.x] = 1;" in str(record)


def test_events_are_recorded_only_with_a_timeline() -> None:
    source = SHIFT.replace("BARRIER", "__syncthreads();")
    assert warpcheck.run(launch, source).launches[0].timeline == []
    kinds = {event.kind for event in warpcheck.run(launch, source, timeline=True).launches[0].timeline}
    assert {warpcheck.EventKind.RUN, warpcheck.EventKind.EXIT} <= kinds


@pytest.mark.parametrize(
    ("arguments", "error"),
    [({"arch": "sm_60"}, KeyError), ({"schedules": "random"}, ValueError), ({"schedules": ["random"]}, ValueError)],
)
def test_an_unknown_architecture_or_schedule_is_an_error(arguments: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error), warpcheck.gpu(**arguments):
        pass


def test_a_monitor_records_the_architecture_of_a_nested_scope() -> None:
    monitor = LaunchMonitor(ScopeSettings.parse("sm_80"))
    monitor.open()
    try:
        with monitor.using(None), pytest.raises(warpcheck.OutOfBounds):
            warpcheck.run(launch, INDEPENDENT, threads=96, arch="sm_90a")
    finally:
        monitor.close()
    assert [recorded.arch for recorded in monitor.take_errors()] == ["sm_90a"]


def test_each_kind_of_fault_has_a_public_class() -> None:
    for kind in FaultKind:
        fault = warpcheck.Fault(kind, "message", "kernel", "file", 1, (0, 0, 0), (0, 0, 0))
        assert type(fault) is not warpcheck.Fault
        assert type(fault).__name__ in warpcheck.__all__
        assert fault.kind is kind


def test_importing_warpcheck_imports_no_heavy_package() -> None:
    assert len(warpcheck.__all__) <= 30
    assert all(hasattr(warpcheck, name) for name in warpcheck.__all__)
    code = "import sys, warpcheck; print(*{'torch', 'triton', 'numpy', 'llvmlite', 'cutlass'} & sys.modules.keys())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""
