"""What a GPU ran is compared with what the PTX machine ran: from a profiler's trace, without a GPU."""

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


def event(name: str, correlation: int, grid: tuple[int, ...] = (132, 1, 1), shared: int = 1024) -> dict[str, object]:
    """A kernel as Kineto writes it."""
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
    others: list[dict[str, object]] = [
        {"ph": "M", "name": "process_name", "ts": 1.5, "pid": 1, "tid": 0, "args": {"name": "python"}},
        {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "ts": 1.5, "args": {"cbid": 211}},
        {"ph": "X", "cat": "gpu_memset", "name": "Memset (Device)", "ts": 1.5, "args": {"bytes": 4, "correlation": 3}},
        {"ph": "i", "name": "Record Window End", "ts": 2.5, "s": "g"},
    ]
    return json.dumps({"schemaVersion": 1, "deviceProperties": [], "traceEvents": [*others, *events]}).encode()


def test_a_trace_tells_kernels_in_the_order_of_their_launches() -> None:
    fill = "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>>(int)"
    found = parse_trace(trace(event("second", 9), event(fill, 2), event(ADDED.name, 5)))
    assert [one.name for one in found] == [fill, ADDED.name, "second"]
    assert found[1] == ADDED


def test_names_are_the_same_mangled_and_read() -> None:
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
def test_what_is_no_trace_is_said_to_be_none(text: bytes) -> None:
    with pytest.raises(InvalidTrace):
        parse_trace(text)


@pytest.mark.parametrize(
    ("gpu", "said"),
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
def test_the_first_launch_that_differs_is_named(gpu: tuple[GpuLaunch, ...], said: str) -> None:
    finding = compare_with_machine(gpu, [ADD], "cuda")
    assert (finding is None) == (said == "")
    if finding is not None:
        assert finding.verdict is Verdict.NOT_YOUR_KERNEL
        assert said in finding.cause
        other_grid = [one for one in gpu if one.grid != ADDED.grid]
        assert ("get_device_properties" in finding.cause) == bool(other_grid)


def test_what_torch_launches_to_fill_memory_is_left_out() -> None:
    fill = msgspec.structs.replace(ADDED, name="void at::native::vectorized_elementwise_kernel<4>(int)")
    assert compare_with_machine([fill, ADDED], [ADD], "cuda") is None


def test_a_kernel_may_stand_in_a_namespace_of_torchs() -> None:
    here = msgspec.structs.replace(ADDED, name="at::add(float*)")
    assert compare_with_machine([here], [msgspec.structs.replace(ADD, kernel="_ZN2at3addEPf")], "cuda") is None


def test_a_python_compiler_makes_more_of_a_name() -> None:
    here = msgspec.structs.replace(ADDED, name="kernel_cutlass_copy_kernel_tensorptrf32_0")
    note = msgspec.structs.replace(ADD, kernel="copy_kernel")
    assert compare_with_machine([here], [note], "cute") is None
    assert compare_with_machine([here], [note], "cuda") is not None
    assert compare_with_machine([here], [msgspec.structs.replace(note, kernel="add_kernel")], "cute") is not None


def test_a_compilers_shared_memory_is_its_own() -> None:
    assert compare_with_machine([msgspec.structs.replace(ADDED, shared=0)], [ADD], "triton") is None


# Against the machine itself: a submission whose configuration, or whose grid, follows from what a GPU has decided

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


class Machine:
    """The machine beside a GPU that there is not, for a submission to vector_add_triton."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._open: list[tuple[CpuShadow, Workers]] = []

    def run(self, source: str, *others: Case) -> CpuShadow:
        file = self._folder / "submission.py"
        file.write_text(source)
        item = registry.find("vector_add_triton")
        exercise = registry.load(item)
        job = Job(item, exercise, file, "cuda", SM_80, item.root)
        workers = Workers(job)
        workers.copy_submission()
        beside = CpuShadow(job, workers, seed=1)
        self._open.append((beside, workers))
        beside.start(CASE, others)
        return beside

    def close(self) -> None:
        for beside, workers in self._open:
            beside.close()
            workers.close()


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    monkeypatch.setattr(gpu, "properties", lambda: {"name": "a GPU", "multi_processor_count": 132})
    made = Machine(tmp_path)
    yield made
    made.close()


def profiled(grid: int, *tuned: Tuned) -> messages.ProfileResult:
    args = event("add", 1, (grid, 1, 1))["args"]
    assert isinstance(args, dict)
    seen = {**event("add", 1, (grid, 1, 1)), "args": {**args, "block": [128, 1, 1]}}
    return messages.ProfileResult(
        secret="", kernels={"add": 1e-6}, launches=["add"], trace=trace(seen), chosen=Chosen(tuned), workspace=0
    )


def of_block(block: int) -> Tuned:
    """What Triton on a GPU tells of having chosen this block for CASE."""
    key = repr((CASE["n"], *["torch.float32"] * 3))
    return Tuned("add", key, str(triton.Config({"BLOCK": block})))


@pytest.mark.parametrize(("block", "grid"), [(256, 40), (512, 20), (1024, 10)])
def test_an_autotuned_kernel_runs_as_the_gpu_chose(machine: Machine, block: int, grid: int) -> None:
    beside = machine.run(AUTOTUNED, SMALL)
    assert beside.check_gpu_launches(profiled(grid, of_block(block))) is None
    observation, finding = beside.wait_for_counters()
    assert finding is None
    assert observation is not None
    assert observation.outputs[0].numel() == 10_000
    assert observation.traffic


def test_a_configuration_excuses_no_other_grid(machine: Machine) -> None:
    finding = machine.run(AUTOTUNED).check_gpu_launches(profiled(41, of_block(256)))
    assert finding is not None
    assert finding.verdict is Verdict.NOT_YOUR_KERNEL
    assert "add with grid (41, 1, 1)" in finding.cause


def test_a_grid_may_follow_from_the_gpus_multiprocessors(machine: Machine) -> None:
    assert machine.run(PERSISTENT).check_gpu_launches(profiled(2 * 132)) is None


def test_a_fault_of_another_case_than_the_largest_is_told_with_it(machine: Machine) -> None:
    _, finding = machine.run(WITHOUT_MASK, SMALL).wait_for_counters()
    assert finding is not None
    assert finding.verdict is Verdict.OUT_OF_BOUNDS
    assert finding.cause.startswith("at n=33 offset=1: ")
