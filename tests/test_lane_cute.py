"""Test the CuTe lane: compilation, launch arguments, the cache, and the message for each misuse."""

# The DSL traces kernels instead of running them, and during tracing its names differ from their declarations.
# mypy: disable-error-code="name-defined, union-attr, index, attr-defined"

from __future__ import annotations

import ctypes
import importlib.util
import inspect
import struct
import sys
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import cutlass
import cutlass.cute as cute
import pytest
import torch
from cutlass._mlir_helpers import op
from cutlass.base_dsl.compiler import Compiler
from cutlass.cute.nvgpu import cpasync
from cutlass.memory import SmemAllocator

from kernelpath.verdict import Verdict
from kernelpath.work.exception_findings import classify_exception
from warpcheck import backend, frontends, simt, simulated_gpu
from warpcheck.backend import LaunchResult
from warpcheck.frontends import cute as lane
from warpcheck.frontends import cute_host
from warpcheck.frontends.cute_places import remember_places
from warpcheck.target import SM_90A


@cute.kernel
def scale_kernel(x: cute.Tensor, out: cute.Tensor, factor: cutlass.Float32, threads: cutlass.Constexpr) -> None:
    i = cute.arch.block_idx()[0] * threads + cute.arch.thread_idx()[0]
    if i < cute.size(x):
        out[i] = (x[i] * factor).to(out.element_type)


@cute.jit
def scale(x: cute.Tensor, out: cute.Tensor, factor: cutlass.Float32, threads: cutlass.Constexpr[int]) -> None:
    blocks = cute.ceil_div(cute.size(x), threads)
    scale_kernel(x, out, factor, threads).launch(grid=[blocks, 1, 1], block=[threads, 1, 1])


@cute.kernel
def fill_kernel(out: cute.Tensor) -> None:
    row, _, _ = cute.arch.block_idx()
    column, _, _ = cute.arch.thread_idx()
    if column < out.shape[1]:
        out[row, column] = cutlass.Float32(row * 100 + column)


@cute.jit
def fill(out: cute.Tensor) -> None:
    fill_kernel(out).launch(grid=[out.shape[0], 1, 1], block=[32, 1, 1])


@cute.jit
def scale_then_fill(x: cute.Tensor, out: cute.Tensor) -> None:
    scale_kernel(x, x, cutlass.Float32(2), 32).launch(grid=[1, 1, 1], block=[32, 1, 1])
    fill_kernel(out).launch(grid=[out.shape[0], 1, 1], block=[32, 1, 1])


@cute.jit
def scale_twice(x: cute.Tensor) -> None:
    scale_kernel(x, x, cutlass.Float32(2), 32).launch(grid=[1, 1, 1], block=[32, 1, 1])
    scale_kernel(x, x, cutlass.Float32(3), 64).launch(grid=[1, 1, 1], block=[64, 1, 1])


@cute.kernel
def elect_kernel(x: cute.Tensor) -> None:
    with cute.arch.elect_one():
        x[0] = cutlass.Float32(1)


@cute.jit
def elect(x: cute.Tensor) -> None:
    elect_kernel(x).launch(grid=[1, 1, 1], block=[32, 1, 1])


@cute.kernel
def fetch_rows_kernel(src: cute.Tensor, dst: cute.Tensor) -> None:
    thread, _, _ = cute.arch.thread_idx()
    rows = SmemAllocator().allocate_tensor(src.element_type, cute.make_layout((32, 8), stride=(8, 1)), 16)
    atom = cute.make_copy_atom(cpasync.CopyG2SOp(), src.element_type, num_bits_per_copy=128)
    cute.copy(atom, cute.local_tile(src, (1, 8), (thread, 0))[0, None], rows[thread, None])
    cute.arch.cp_async_commit_group()
    cute.arch.cp_async_wait_group(0)
    for i in cutlass.range_constexpr(8):
        dst[thread, i] = rows[thread, i]


@cute.jit
def fetch_rows(src: cute.Tensor, dst: cute.Tensor) -> None:
    fetch_rows_kernel(src, dst).launch(grid=[1, 1, 1], block=[32, 1, 1])


# 228,000 bytes of shared memory: nearly all that a block of Hopper can use (227 KiB).
FLOATS = 57_000


@cute.kernel
def share_kernel(atom: cute.CopyAtom, rows: cute.Tensor, out: cute.Tensor, which: cutlass.Int32) -> None:
    """Let each of the four blocks of a cluster load a quarter of one row and multicast it to all four."""
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    rank = cute.arch.block_idx_in_cluster()
    memory = SmemAllocator()
    full = memory.allocate_array(cutlass.Int64)
    row = memory.allocate_tensor(cutlass.Float32, cute.make_layout((1, 128), stride=(128, 1)), 128)
    unused = memory.allocate_tensor(cutlass.Float32, cute.make_layout(FLOATS - 256), 16)
    if thread == 0:
        cute.arch.mbarrier_init(full, 1)
        cute.arch.mbarrier_init_fence()
        cute.arch.mbarrier_arrive_and_expect_tx(full, 512)
        unused[FLOATS - 257] = cutlass.Float32(0)
    cute.arch.cluster_arrive()
    cute.arch.cluster_wait()
    tile = cute.local_tile(rows, (1, 128), (block // 4 * 4 + which, 0))
    to, source = cpasync.tma_partition(
        atom, rank, cute.make_layout(4), cute.group_modes(row, 0, 2), cute.group_modes(tile, 0, 2)
    )
    cute.copy(atom, source, to, tma_bar_ptr=full, mcast_mask=cutlass.Int16(0b1111))
    cute.arch.mbarrier_wait(full, 0)
    for i in cutlass.range_constexpr(4):
        out[block, 32 * i + thread] = row[0, 32 * i + thread]


@cute.jit
def share(rows: cute.Tensor, out: cute.Tensor, which: cutlass.Int32) -> None:
    """Copy the row with the index `which` of each group of four rows to all four rows of out; 128 columns."""
    layout = cute.make_layout((1, 128), stride=(128, 1))
    load = cpasync.CopyBulkTensorTileG2SMulticastOp()
    atom, coordinates = cpasync.make_tiled_tma_atom(load, rows, layout, (1, 128), num_multicast=4)
    share_kernel(atom, coordinates, out, which).launch(
        grid=[rows.shape[0], 1, 1], block=[32, 1, 1], cluster=[4, 1, 1], smem=4 * FLOATS
    )


@cute.kernel
def misspelled_kernel(x: cute.Tensor) -> None:
    x[0] = missing  # noqa: F821


@cute.jit
def misspelled(x: cute.Tensor) -> None:
    misspelled_kernel(x).launch(grid=[1, 1, 1], block=[32, 1, 1])


@cute.jit
def unsolved(x: cute.Tensor) -> None:
    raise NotImplementedError("TODO")


@cute.jit
def count_up(out: cute.Tensor, power: cutlass.Constexpr) -> None:
    for i in range(cute.size(out)):
        out[i] = cutlass.Int64(i**power)


class FakeMachine:
    """Replace the PTX machine and record the launches."""

    def __init__(self, real: Any) -> None:
        self.real = real
        self.launches: list[dict[str, Any]] = []

    def load(self, ptx: str, source: str | None = None) -> FakeMachine:
        self.kernels = self.real(ptx, source).kernels
        return self

    def compile(self, name: str) -> None:
        assert name in self.kernels

    def launch(self, name: str, **launch: Any) -> LaunchResult:
        self.launches.append({"name": name, **launch})
        return LaunchResult(0)


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeMachine]:
    machine = FakeMachine(simt.load)
    monkeypatch.setattr(backend, "_device", machine)
    lane._program.cache_clear()
    yield machine
    lane._program.cache_clear()


def test_a_launch_receives_grid_block_and_the_bytes_of_each_parameter(machine: FakeMachine) -> None:
    x = torch.zeros(1000)
    out = torch.zeros(1000)
    lane.run(scale, x, out, 2.5, 96)  # 96 does not divide 1000, so the grid has ceil(1000 / 96) = 11 blocks
    (launch,) = machine.launches
    assert launch["grid"] == (11, 1, 1)
    assert launch["block"] == (96, 1, 1)
    source, target, factor = launch["arguments"]
    assert struct.unpack_from("@Pi", source) == (x.data_ptr(), 1000)
    assert struct.unpack_from("@Pi", target) == (out.data_ptr(), 1000)
    assert struct.unpack("f", factor) == (2.5,)


def test_extents_and_strides_other_than_one_are_passed(machine: FakeMachine) -> None:
    lane.run(fill, torch.zeros(3, 5))
    lane.run(fill, torch.zeros(5, 3).t())
    lane.run(fill, torch.zeros(3, 20)[:, ::4])
    # The first 8 bytes of an argument are the address of the tensor.
    row_major, column_major, strided = (launch["arguments"][0] for launch in machine.launches)
    assert struct.unpack_from("@2iq", row_major, 8) == (3, 5, 5)
    assert struct.unpack_from("@2iq", column_major, 8) == (3, 5, 3)
    assert struct.unpack_from("@2i2q", strided, 8) == (3, 5, 20, 4)


def test_tensors_are_named_after_parameters(machine: FakeMachine) -> None:
    x = torch.zeros(100)[1:10]
    out = torch.zeros(100)[20:40:2]
    lane.run(scale, x, out, 1.0, 32)
    assert [
        (name, tensor is argument)
        for (name, tensor), argument in zip(machine.launches[0]["tensors"], (x, out), strict=True)
    ] == [
        ("x", True),
        ("out", True),
    ]


def test_two_kernels_of_one_host_function_have_their_own_names(machine: FakeMachine) -> None:
    launched: list[frontends.Launched] = []
    with frontends.observe(launched.append):
        lane.run(scale_then_fill, torch.zeros(8), torch.zeros(4, 5))
    assert [launch.name for launch in launched] == ["scale_kernel", "fill_kernel"]
    assert [launch["name"] for launch in machine.launches] == ["scale_kernel", "fill_kernel"]
    assert [launch["grid"] for launch in machine.launches] == [(1, 1, 1), (4, 1, 1)]


def test_two_variants_of_one_kernel_function_are_numbered() -> None:
    x = torch.arange(8.0)
    launched: list[frontends.Launched] = []
    with frontends.observe(launched.append):
        lane.run(scale_twice, x)
    assert torch.equal(x, torch.arange(8.0) * 6)
    assert [launch.name for launch in launched] == ["scale_kernel_0", "scale_kernel_1"]


def test_an_exception_of_a_launch_propagates_through_host_code(
    machine: FakeMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(name: str, **launch: Any) -> None:
        raise KeyError("from the machine")

    monkeypatch.setattr(machine, "launch", broken)
    with pytest.raises(KeyError, match="from the machine"):
        lane.run(fill, torch.zeros(3, 5))


def test_a_kernel_that_the_machine_cannot_compile_raises_before_the_launch(
    machine: FakeMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(name: str) -> None:
        raise simt.Unsupported("wgmma", "kernel.py", 7)

    monkeypatch.setattr(machine, "compile", refuse)
    with pytest.raises(simt.Unsupported, match="wgmma"):
        lane.run(fill, torch.zeros(3, 5))
    assert not machine.launches


def test_a_compiled_program_is_reused_for_every_size_and_recompiled_for_another_dtype(machine: FakeMachine) -> None:
    for n in (10, 20, 30):
        lane.run(scale, torch.zeros(n), torch.zeros(n), 1.0, 32)
    assert lane._program.cache_info().currsize == 1
    lane.run(scale, torch.zeros(10), torch.zeros(10, dtype=torch.bfloat16), 1.0, 32)
    lane.run(scale, torch.zeros(10), torch.zeros(10), 1.0, 64)
    lane.run(scale, torch.zeros(11)[1:], torch.zeros(10), 1.0, 32)
    assert lane._program.cache_info().currsize == 4


def test_kernels_run_on_cpu_tensors() -> None:
    x = torch.randn(1000)
    out = torch.full((1000,), torch.nan)
    lane.run(scale, x, out, 3.0, 96)
    assert torch.equal(out, x * 3)
    table = torch.zeros(7, 64)
    lane.run(fill, table[:, :40:2])
    expected = torch.arange(7.0)[:, None] * 100 + torch.arange(20.0)
    assert torch.equal(table[:, :40:2], expected)
    assert table[:, 1::2].abs().sum() == 0
    assert table[:, 40:].abs().sum() == 0


def test_a_cluster_with_multicast_and_maximal_shared_memory_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(simulated_gpu, "_target", SM_90A)
    rows = torch.randn(8, 132)[:, :128]
    out = torch.zeros(8, 128)
    for which in (1, 3):
        lane.run(share, rows, out, which)
        assert torch.equal(out, rows[which::4].repeat_interleave(4, 0))


def test_a_write_past_the_end_is_reported_with_parameter_and_line() -> None:
    with pytest.raises(simt.Fault, match=r"writes 4 bytes past the end of out \(33 float32\)") as caught:
        lane.run(scale, torch.zeros(64), torch.zeros(33), 1.0, 32)
    assert caught.value.kind is simt.FaultKind.OUT_OF_BOUNDS
    assert caught.value.kernel == "scale_kernel"
    source = Path(__file__).read_text().splitlines()
    assert "out[i] = " in source[caught.value.line - 1]


def test_host_code_without_kernels_runs() -> None:
    out = torch.empty(5, dtype=torch.int64)
    lane.run(count_up, out, 2)
    assert out.tolist() == [0, 1, 4, 9, 16]
    lane.run(count_up, out, 3)
    assert out.tolist() == [0, 1, 8, 27, 64]


def test_alignment_of_an_address_is_known_up_to_sixteen_bytes() -> None:
    # 16 bytes are the widest vector access of a thread. The offsets are in elements of 2 bytes.
    base = torch.zeros(64, dtype=torch.bfloat16)
    aligns = [lane.TensorKind.of(base[offset:], "x").align for offset in (0, 1, 2, 4, 8)]
    assert aligns == [16, 2, 4, 8, 16]


def test_alignment_of_strides_is_known_up_to_sixteen_bytes() -> None:
    def steps(tensor: torch.Tensor) -> tuple[int, ...]:
        return lane.TensorKind.of(tensor, "x").steps

    halves = torch.zeros(4, 24, 40, dtype=torch.bfloat16)
    assert steps(halves) == (8, 8, 8)
    assert steps(halves[:, :, ::2]) == (8, 8, 2)
    assert [steps(torch.zeros(4, columns, dtype=torch.bfloat16))[0] for columns in (7, 6, 12, 24, 48)] == [
        1,
        2,
        4,
        8,
        8,
    ]
    assert [steps(torch.zeros(4, columns))[0] for columns in (6, 12)] == [2, 4]
    assert steps(torch.zeros(4, 7).t()) == (4, 1)
    assert steps(torch.zeros(7).expand(3, 7)) == (4, 4)


def test_a_16_byte_copy_compiles_only_for_aligned_addresses_and_strides() -> None:
    x = torch.arange(32 * 24).view(32, 24).bfloat16()
    for source in (x[:, :8], x[:, 16:]):
        out = torch.zeros(32, 8, dtype=torch.bfloat16)
        lane.run(fetch_rows, source, out)
        assert torch.equal(out, source)
    for source, multiple in ((x[:, 4:12], 8), (torch.zeros(32, 12).bfloat16(), 8), (torch.zeros(32, 9).bfloat16(), 2)):
        with pytest.raises(lane.CompileError, match=rf"alignment \({8 * multiple} bits\) does not"):
            lane.run(fetch_rows, source, out)


def test_ptx_is_generated_for_the_requested_architecture() -> None:
    x = torch.zeros(8)
    assert ".target sm_80" in lane.ptx(scale, x, x, 1.0, 32)
    assert ".target sm_90a" in lane.ptx(elect, x, arch="sm_90a")
    with pytest.raises(frontends.Unavailable, match="the CuTe DSL does not compile for sm_75"):
        lane.ptx(scale, x, x, 1.0, 32, arch="sm_75")


@pytest.fixture
def compiled_pipelines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the list of the pipelines that the DSL's compiler runs, starting with an empty cache."""
    monkeypatch.setenv("WARPCHECK_CACHE", str(tmp_path))
    pipelines: list[str] = []
    compile_module = Compiler.compile

    def compile_and_count(self: Any, module: Any, pipeline: str, *options: Any, **named: Any) -> Any:
        pipelines.append(pipeline)
        return compile_module(self, module, pipeline, *options, **named)

    monkeypatch.setattr(Compiler, "compile", compile_and_count)
    lane._program.cache_clear()
    return pipelines


def test_a_cached_program_is_not_compiled_again_and_runs_identically(compiled_pipelines: list[str]) -> None:
    for factor in (2.0, 3.0):
        x = torch.randn(100)
        out = torch.empty(100)
        lane.run(scale, x, out, factor, 32)
        assert torch.equal(out, x * factor)
        lane._program.cache_clear()
    assert len(compiled_pipelines) == 1
    assert lane.ptx(scale, x, out, 1.0, 32) == lane.ptx(scale, x, out, 1.0, 32)
    assert len(compiled_pipelines) == 1


def test_each_source_location_is_looked_up_once(monkeypatch: pytest.MonkeyPatch) -> None:
    lookups: list[int] = []

    def count_lookup(frame: FrameType) -> inspect.Traceback:
        lookups.append(frame.f_lineno)
        return inspect.getframeinfo(frame)

    def current_line() -> int:
        return op._fast_frameinfo(sys._getframe(1)).lineno

    monkeypatch.setattr(op, "_is_framework_module", op._is_framework_module)
    monkeypatch.setattr(op, "_fast_frameinfo", count_lookup)
    remember_places()
    first = current_line.__code__.co_firstlineno
    lines = [
        current_line() - first,
        current_line() - first,
    ]
    for _ in range(2):
        assert current_line() - first == lines[1] + 3
    assert (lines[1] - lines[0], len(lookups)) == (1, 3)


def test_host_code_without_kernels_is_cached_too(compiled_pipelines: list[str]) -> None:
    for _ in range(2):
        out = torch.empty(5, dtype=torch.int64)
        lane.run(count_up, out, 2)
        assert out.tolist() == [0, 1, 4, 9, 16]
        lane._program.cache_clear()
    assert len(compiled_pipelines) == 1


def test_the_cache_distinguishes_programs_and_targets(compiled_pipelines: list[str]) -> None:
    x = torch.zeros(8)
    programs = {lane.ptx(scale, x, x, 1.0, threads, arch=arch) for threads in (32, 64) for arch in ("sm_80", "sm_90a")}
    assert len(programs) == len(compiled_pipelines) == 4


@pytest.mark.parametrize(
    "damage", [lambda content: content[:-1], lambda content: b"", lambda content: b"x" * len(content)]
)
def test_a_damaged_cache_costs_a_compilation(compiled_pipelines: list[str], tmp_path: Path, damage: Any) -> None:
    x = torch.zeros(8)
    first = lane.ptx(scale, x, x, 1.0, 32)
    (content,) = (file for file in (tmp_path / "cute").rglob("*") if file.is_file())
    content.write_bytes(damage(content.read_bytes()))
    assert lane.ptx(scale, x, x, 1.0, 32) == first
    assert len(compiled_pipelines) == 2


def test_code_that_needs_hopper_is_reported_as_unavailable() -> None:
    with pytest.raises(frontends.Unavailable, match="elect compiles for sm_90a but not for sm_80; not run"):
        lane.run(elect, torch.zeros(8))


def create_launch_config(*attributes: int) -> cute_host.LaunchConfig:
    """Return a launch configuration with these attribute numbers, each with the value 2 x 1 x 1."""
    launch_attributes = [cute_host.Attribute(number, 0, (ctypes.c_uint32 * 16)(2, 1, 1)) for number in attributes]
    return cute_host.LaunchConfig(
        attributes=(cute_host.Attribute * len(launch_attributes))(*launch_attributes),
        attribute_count=len(launch_attributes),
    )


def test_launch_attributes_are_parsed_by_their_numbers() -> None:
    attributes = create_launch_config(4, 6).parse_attributes()
    assert list(attributes) == [4, 6]
    assert attributes[4][:3] == [2, 1, 1]
    assert create_launch_config().parse_attributes() == {}
    with pytest.raises(ValueError, match="invalid argument: launch attribute 99"):
        create_launch_config(4, 99).parse_attributes()


def test_a_mistake_in_a_kernel_is_a_compile_error_with_its_line() -> None:
    with pytest.raises(lane.CompileError, match=r"name 'missing' is not defined[\s\S]*test_lane_cute.py:\d+") as caught:
        lane.run(misspelled, torch.zeros(8))
    assert "\x1b" not in str(caught.value)


MISTAKEN = """
import cutlass
from cutlass import cute
from cutlass.cute.nvgpu import cpasync
from cutlass.memory import SmemAllocator

@cute.kernel
def mistaken(x: cute.Tensor, bits: cutlass.{bits}):
    thread, _, _ = cute.arch.thread_idx()
    vector = cute.local_tile(x, (1, 8), (thread, 0))[0, None]
    shared = SmemAllocator().allocate_tensor(x.element_type, cute.make_layout(8), 16)
    universal, asynchronous = cute.nvgpu.CopyUniversalOp(), cpasync.CopyG2SOp()
    {line}

@cute.jit
def host(x: cute.Tensor):
    mistaken(x, 128).launch(grid=[1, 1, 1], block=[32, 1, 1])
"""


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("shared[0] = shred[0]", "NameError in `host`: name 'shred' is not defined"),
        (
            "cute.autovec_copy(vector, cute.make_rmem_tensor((8,), cutlass.Float32))",
            "source and destination element type bit width",
        ),
        (
            "cute.copy(cute.make_copy_atom(universal, cutlass.Int16), shared, cute.make_rmem_tensor(4, cutlass.Int16))",
            "expects same size in rank 0 but got srcShape: (8,(1)) and dstShape: (4,(1))",
        ),
        ("[i for i in range(8) if i < thread]", "Python cannot decide by a value that only the running kernel knows"),
        ("full = bool(thread < 8)", "Python cannot decide by a value that only the running kernel knows"),
        (
            "cute.make_copy_atom(universal, x.element_type, num_bits_per_copy=bits)",
            "'num_bits_per_copy' must be a non-negative int when creating a copy Atom for 'CopyUniversalOp'; a "
            "parameter is one if it is annotated cutlass.Constexpr",
        ),
        (
            "cute.copy(cute.make_copy_atom(asynchronous, x.element_type, num_bits_per_copy=128), vector, shared)",
            "this copy takes 16 bytes at a time, and the address is a multiple of 8 bytes only",
        ),
        (
            "cute.local_tile((universal, x), (1, 8), (thread, 0))",
            "cute.local_tile was given something that is not a tensor",
        ),
        ("if thread > 7:\n        return", "a kernel cannot return from inside an if or a loop"),
    ],
)
def test_mistakes_in_traced_code_are_reported_in_a_sentence_with_their_line(
    tmp_path: Path, line: str, message: str
) -> None:
    source = MISTAKEN.format(line=line, bits="Int32" if "=bits" in line else "Constexpr")
    file = tmp_path / "mistaken.py"
    file.write_text(source)
    spec = importlib.util.spec_from_file_location("mistaken", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    with pytest.raises(lane.CompileError) as caught:
        lane.run(module.host, torch.zeros(32, 12, dtype=torch.bfloat16))
    finding = classify_exception(caught.value, file)
    assert finding.verdict is Verdict.COMPILE_ERROR
    assert message in finding.cause
    assert len(finding.cause) < 220
    assert "\n" not in finding.cause
    assert finding.file == str(file)
    assert source.splitlines()[finding.line - 1].strip() == line.splitlines()[-1].strip()


def test_not_implemented_errors_of_a_stub_propagate() -> None:
    with pytest.raises(NotImplementedError, match="TODO"):
        lane.run(unsolved, torch.zeros(8))


@pytest.mark.parametrize(
    ("args", "error", "message"),
    [
        ((torch.zeros(8),), TypeError, "scale takes 4 arguments, 1 were given"),
        ((torch.zeros(8), "out", 1.0, 32), TypeError, "out is a str; a kernel takes tensors, ints and floats"),
        ((torch.zeros(8), torch.zeros(8) + 0j, 1.0, 32), TypeError, "out has dtype torch.complex64"),
        ((torch.zeros(8), torch.zeros(8, device="meta"), 1.0, 32), ValueError, "one device, found cpu, meta"),
        ((torch.zeros(1).expand(2**31), torch.zeros(8), 1.0, 32), ValueError, "x has 2147483648 elements in a row"),
    ],
)
def test_invalid_arguments_are_rejected(args: tuple[Any, ...], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        lane.run(scale, *args)


needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")


@pytest.mark.gpu
@needs_gpu
@pytest.mark.parametrize("offset", [0, 1, 4])
def test_gpu_and_cpu_results_are_bitwise_equal(offset: int) -> None:
    x = torch.randn(1000 + offset)[offset:]
    on_cpu = torch.empty(1000)
    on_gpu = torch.empty(1000, device="cuda")
    lane.run(scale, x, on_cpu, 3.0, 96)
    lane.run(scale, x.cuda(), on_gpu, 3.0, 96)
    assert torch.equal(on_gpu.cpu(), on_cpu)


@pytest.mark.gpu
@needs_gpu
def test_a_cluster_with_multicast_and_maximal_shared_memory_runs_on_a_gpu() -> None:
    if torch.cuda.get_device_capability()[0] != 9:
        pytest.skip("needs a Hopper GPU")
    rows = torch.randn(8, 132, device="cuda")[:, :128]
    out = torch.zeros(8, 128, device="cuda")
    lane.run(share, rows, out, 1)
    assert torch.equal(out, rows[1::4].repeat_interleave(4, 0))


@pytest.mark.gpu
@needs_gpu
def test_gpu_launches_are_recorded_by_kernel() -> None:
    launched: list[frontends.Launched] = []
    with frontends.observe(launched.append):
        lane.run(scale_then_fill, torch.zeros(8, device="cuda"), torch.zeros(4, 5, device="cuda"))
    assert [(launch.name, launch.device) for launch in launched] == [("scale_kernel", "cuda"), ("fill_kernel", "cuda")]


@pytest.mark.gpu
@needs_gpu
def test_launches_go_to_the_current_stream() -> None:
    x = torch.randn(1000, device="cuda")
    out = torch.zeros(1000, device="cuda")
    lane.run(scale, x, out.clone(), 2.0, 96)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):  # capture fails on launches to any other stream
        lane.run(scale, x, out, 2.0, 96)
    assert not out.any()
    graph.replay()
    torch.cuda.synchronize()
    assert torch.equal(out, x * 2)


@pytest.mark.gpu
@needs_gpu
def test_host_code_without_kernels_refuses_gpu_tensors() -> None:
    with pytest.raises(ValueError, match=r"count_up.* launches no kernel"):
        lane.run(count_up, torch.empty(5, dtype=torch.int64, device="cuda"), 2)


@pytest.mark.gpu
@needs_gpu
def test_a_launch_that_the_gpu_refuses_raises() -> None:
    x = torch.zeros(8, device="cuda")
    with pytest.raises(RuntimeError, match="refused the launch: invalid"):
        lane.run(scale, x, x, 1.0, 2048)


def test_a_mangled_kernel_name_is_mapped_to_its_function() -> None:
    tiled = "kernel_cutlass_multiply_Rungcolumns128stages4_TiledMMA_ThrLayoutVMNK11_0"
    longer = "kernel_cutlass_multiply_rows_tensorptrf32gmem_0"
    fill_name = "kernel_cutlass_fill_tensorptrf32gmem_1"
    prefixed = "cutlass_tutorial_kernel_cutlass_add_tensorptrf32gmem_0"  # the prefix comes from set_name_prefix
    mangled = [tiled, longer, fill_name, prefixed]
    functions = ["multiply", "multiply_rows", "mul", "cutlass", "add"]
    names = cute_host._plain_names(mangled, functions)
    assert names == {tiled: "multiply", longer: "multiply_rows", fill_name: "fill", prefixed: "add"}


class Scale:
    """Define host functions as methods, as CUTLASS's examples do."""

    @cute.kernel
    def kernel(self, x: cute.Tensor) -> None:
        x[cute.arch.thread_idx()[0]] = cutlass.Float32(1)

    @cute.jit
    def __call__(self, x: cute.Tensor) -> None:
        self.kernel(x).launch(grid=[1, 1, 1], block=[32, 1, 1])

    @cute.jit
    def fill(self, x: cute.Tensor) -> None:
        self.kernel(x).launch(grid=[1, 1, 1], block=[32, 1, 1])


@pytest.mark.parametrize("host", [Scale(), Scale().fill], ids=["object", "method"])
def test_objects_and_methods_can_be_host_functions(machine: FakeMachine, host: Any) -> None:
    lane.run(host, torch.zeros(32))
    assert [launch["name"] for launch in machine.launches] == ["kernel"]
