"""Test the comparison of the launches in a profiler's trace with those of the PTX machine, without a GPU."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
import triton

from kernelpath.course import registry
from kernelpath.course.problem import Case
from kernelpath.device import gpu
from kernelpath.device.messages import LaunchEntry
from kernelpath.grading import launches
from kernelpath.grading.cpu_shadow import CpuShadow
from kernelpath.grading.job import Job
from kernelpath.grading.launches import GpuLaunch, InvalidTrace, compare_with_machine, parse_trace
from kernelpath.grading.workers import Workers
from kernelpath.verdict import Verdict
from kernelpath.work import messages
from warpcheck.frontends.tuning import Chosen, Tuned
from warpcheck.target import SM_80

ADD = LaunchEntry(
    kernel="_Z10vector_addIfEvPKT_S2_PS0_i",
    code="0",
    grid=(132, 1, 1),
    block=(256, 1, 1),
    shared=1024,
    arguments=(),
    host=(),
)
ADDED = GpuLaunch("void vector_add<float>(float const*, float const*, float*, int)", (132, 1, 1), (256, 1, 1), 1024)


def kernel_event(
    name: str, correlation: int, grid: tuple[int, ...] = (132, 1, 1), shared: int = 1024
) -> dict[str, object]:
    """Return the trace event of a kernel as Kineto writes it."""
    return {
        "ph": "X",
        "cat": "kernel",
        "name": name,
        "pid": 0,
        "tid": 7,
        "ts": 4480685344763.043 - correlation,
        "dur": 2.305,
        "args": {
            "External id": 0,
            "queued": 0,
            "device": 0,
            "context": 1,
            "stream": 7,
            "correlation": correlation,
            "registers per thread": 16,
            "shared memory": shared,
            "blocks per SM": 1.0,
            "warps per SM": 8.0,
            "grid": list(grid),
            "block": [256, 1, 1],
            "est. achieved occupancy %": 12,
        },
    }


def trace(*events: dict[str, object]) -> bytes:
    other_events: list[dict[str, object]] = [
        {"ph": "M", "name": "process_name", "ts": 1.5, "pid": 1, "tid": 0, "args": {"name": "python"}},
        {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "ts": 1.5, "args": {"cbid": 211}},
        {"ph": "X", "cat": "gpu_memset", "name": "Memset (Device)", "ts": 1.5, "args": {"bytes": 4, "correlation": 3}},
        {"ph": "i", "name": "Record Window End", "ts": 2.5, "s": "g"},
    ]
    return json.dumps({"schemaVersion": 1, "deviceProperties": [], "traceEvents": [*other_events, *events]}).encode()


def test_a_trace_lists_kernels_in_launch_order() -> None:
    fill = "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>>(int)"
    gpu_launches = parse_trace(trace(kernel_event("second", 9), kernel_event(fill, 2), kernel_event(ADDED.name, 5)))
    assert [gpu_launch.name for gpu_launch in gpu_launches] == [fill, ADDED.name, "second"]
    assert gpu_launches[1] == ADDED


def test_kernel_names_are_demangled() -> None:
    assert launches.demangle(ADD.kernel) == ADDED.name
    assert launches.demangle(ADDED.name) == ADDED.name
    assert launches.demangle("add_kernel") == "add_kernel"


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"[]",
        b'{"traceEvents": 1}',
        b'{"traceEvents": [{"cat": "kernel", "name": "k", "args": {"grid": [1]}}]}',
        b'{"traceEvents": [{"cat": "kernel", "name": "k", "args": 5}]}',
        b"\xff",
        b"[" * 100_000,
    ],
)
def test_malformed_traces_are_rejected(text: bytes) -> None:
    with pytest.raises(InvalidTrace):
        parse_trace(text)


@pytest.mark.parametrize(
    ("gpu", "message"),
    [
        ((ADDED,), ""),
        ((msgspec.structs.replace(ADDED, shared=1024 + 4224),), ""),
        ((), "on the GPU launch 1: nothing more; on the machine void vector_add<float>"),
        ((ADDED, ADDED), "on the GPU launch 2: void vector_add<float>"),
        ((msgspec.structs.replace(ADDED, grid=(8, 1, 1)),), "grid (8, 1, 1), block (256, 1, 1) and 1024 bytes"),
        ((msgspec.structs.replace(ADDED, block=(128, 1, 1)),), "block (128, 1, 1)"),
        ((msgspec.structs.replace(ADDED, shared=512),), "512 bytes of shared memory"),
        ((msgspec.structs.replace(ADDED, shared=1024 + 48 * 1024 + 16),), "50192 bytes of shared memory"),
        ((msgspec.structs.replace(ADDED, name="void vector_add<double>(double const*)"),), "vector_add<double>"),
    ],
)
def test_the_finding_names_the_first_launch_that_differs(gpu: tuple[GpuLaunch, ...], message: str) -> None:
    finding = compare_with_machine(gpu, [ADD], "cuda")
    assert (finding is None) == (message == "")
    if finding is not None:
        assert finding.verdict is Verdict.NOT_YOUR_KERNEL
        assert message in finding.cause
        other_grid = [gpu_launch for gpu_launch in gpu if gpu_launch.grid != ADDED.grid]
        assert ("get_device_properties" in finding.cause) == bool(other_grid)


def test_fill_kernels_of_torch_are_ignored() -> None:
    fill = msgspec.structs.replace(ADDED, name="void at::native::vectorized_elementwise_kernel<4>(int)")
    assert compare_with_machine([fill, ADDED], [ADD], "cuda") is None


def test_a_kernel_of_the_submission_may_be_in_a_namespace_of_torch() -> None:
    gpu_launch = msgspec.structs.replace(ADDED, name="at::add(float*)")
    assert compare_with_machine([gpu_launch], [msgspec.structs.replace(ADD, kernel="_ZN2at3addEPf")], "cuda") is None


def test_names_mangled_by_python_compilers_match() -> None:
    gpu_launch = msgspec.structs.replace(ADDED, name="kernel_cutlass_copy_kernel_tensorptrf32_0")
    entry = msgspec.structs.replace(ADD, kernel="copy_kernel")
    assert compare_with_machine([gpu_launch], [entry], "cute") is None
    assert compare_with_machine([gpu_launch], [entry], "cuda") is not None
    assert compare_with_machine([gpu_launch], [msgspec.structs.replace(entry, kernel="add_kernel")], "cute") is not None


def test_shared_memory_chosen_by_triton_is_not_compared() -> None:
    assert compare_with_machine([msgspec.structs.replace(ADDED, shared=0)], [ADD], "triton") is None


# The following tests run the PTX machine. The configuration or the grid of these submissions depends on the GPU.

HEAD = """
import torch
import triton
import triton.language as tl
"""

KERNEL = """
@triton.jit
def add(x, y, out, n, BLOCK: tl.constexpr):
    place = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = place < n
    tl.store(out + place, tl.load(x + place, mask=inside) + tl.load(y + place, mask=inside), mask=inside)
"""

AUTOTUNED = f"""{HEAD}
CONFIGURATIONS = [triton.Config({{"BLOCK": block}}, num_warps=4) for block in (256, 512, 1024)]

@triton.autotune(CONFIGURATIONS, key=["n"]){KERNEL}
def vector_add(x, y):
    out = torch.empty_like(x)
    add[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](x, y, out, x.numel())
    return out
"""

PERSISTENT = f"""{HEAD}
@triton.jit
def add(x, y, out, n, BLOCK: tl.constexpr):
    for tile in range(tl.program_id(0), tl.cdiv(n, BLOCK), tl.num_programs(0)):
        place = tile.to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
        inside = place < n
        tl.store(out + place, tl.load(x + place, mask=inside) + tl.load(y + place, mask=inside), mask=inside)

def vector_add(x, y):
    out = torch.empty_like(x)
    blocks = 2 * torch.cuda.get_device_properties(x.device).multi_processor_count
    assert blocks == 2 * triton.runtime.driver.active.utils.get_device_properties(0)["multiprocessor_count"]
    add[(blocks,)](x, y, out, x.numel(), BLOCK=32)
    return out
"""

WITHOUT_MASK = f"""{HEAD}{KERNEL}
@triton.jit
def careless(x, y, out, n, BLOCK: tl.constexpr):
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + place, tl.load(x + place) + tl.load(y + place), mask=place < n)

def vector_add(x, y):
    out = torch.empty_like(x)
    kernel = add if x.numel() >= 1024 else careless
    kernel[(triton.cdiv(x.numel(), 256),)](x, y, out, x.numel(), BLOCK=256)
    return out
"""

CASE = {"n": 10_000, "offset": 0}
SMALL = {"n": 33, "offset": 1}


class ShadowRunner:
    """Run submissions to vector_add_triton on the PTX machine as the shadow of a simulated GPU."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._open: list[tuple[CpuShadow, Workers]] = []

    def run(self, source: str, *smaller_cases: Case) -> CpuShadow:
        file = self._folder / "submission.py"
        file.write_text(source)
        item = registry.find("vector_add_triton")
        exercise = registry.load(item)
        job = Job(item, exercise, file, "cuda", SM_80, item.root)
        workers = Workers(job)
        workers.copy_submission()
        shadow = CpuShadow(job, workers, seed=1)
        self._open.append((shadow, workers))
        shadow.start(CASE, smaller_cases)
        return shadow

    def close(self) -> None:
        for shadow, workers in self._open:
            shadow.close()
            workers.close()


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ShadowRunner]:
    monkeypatch.setattr(gpu, "properties", lambda: {"name": "a GPU", "multi_processor_count": 132})
    runner = ShadowRunner(tmp_path)
    yield runner
    runner.close()


def profile_result(grid: int, *tuned: Tuned) -> messages.ProfileResult:
    args = kernel_event("add", 1, (grid, 1, 1))["args"]
    assert isinstance(args, dict)
    gpu_event = {**kernel_event("add", 1, (grid, 1, 1)), "args": {**args, "block": [128, 1, 1]}}
    return messages.ProfileResult(
        secret="", kernels={"add": 1e-6}, launches=["add"], trace=trace(gpu_event), chosen=Chosen(tuned), workspace=0
    )


def tuned_block(block: int) -> Tuned:
    """Return the record of Triton's autotuner after it chose this block size for CASE on a GPU."""
    key = repr((CASE["n"], *["torch.float32"] * 3))
    return Tuned("add", key, str(triton.Config({"BLOCK": block})))


@pytest.mark.parametrize(("block", "grid"), [(256, 40), (512, 20), (1024, 10)])
def test_the_machine_uses_the_configuration_that_the_gpu_chose(machine: ShadowRunner, block: int, grid: int) -> None:
    shadow = machine.run(AUTOTUNED, SMALL)
    assert shadow.check_gpu_launches(profile_result(grid, tuned_block(block))) is None
    observation, finding = shadow.wait_for_counters()
    assert finding is None
    assert observation is not None
    assert observation.outputs[0].numel() == 10_000
    assert observation.traffic


def test_a_chosen_configuration_does_not_excuse_another_grid(machine: ShadowRunner) -> None:
    finding = machine.run(AUTOTUNED).check_gpu_launches(profile_result(41, tuned_block(256)))
    assert finding is not None
    assert finding.verdict is Verdict.NOT_YOUR_KERNEL
    assert "add with grid (41, 1, 1)" in finding.cause


def test_the_grid_may_depend_on_the_number_of_multiprocessors(machine: ShadowRunner) -> None:
    assert machine.run(PERSISTENT).check_gpu_launches(profile_result(2 * 132)) is None


def test_a_fault_in_a_smaller_case_is_reported_with_the_case(machine: ShadowRunner) -> None:
    _, finding = machine.run(WITHOUT_MASK, SMALL).wait_for_counters()
    assert finding is not None
    assert finding.verdict is Verdict.OUT_OF_BOUNDS
    assert finding.cause.startswith("at n=33 offset=1: ")
