"""Test functions that a program compiles and calls with the CuTe DSL itself, without `warpcheck.cute.run`."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import cutlass
import pytest
import torch
from cutlass import Float32, cute, testing
from cutlass.cute.runtime import from_dlpack, make_fake_stream, make_fake_tensor

import warpcheck
from warpcheck.hooks import cute as hooks

needs_tvm_ffi = pytest.mark.skipif(find_spec("tvm_ffi") is None, reason="apache-tvm-ffi is not installed")
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


@cute.kernel
def double_kernel(x: Any, out: Any) -> None:
    block, thread = cute.arch.block_idx()[0], cute.arch.thread_idx()[0]
    index = 32 * block + thread
    out[index] = x[index] + x[index]


@cute.jit
def double(x: cute.Tensor, out: cute.Tensor) -> None:
    double_kernel(x, out).launch(grid=(2, 1, 1), block=(32, 1, 1))


@cute.jit
def double_on_stream(x: cute.Tensor, out: cute.Tensor, stream: Any) -> None:
    double_kernel(x, out).launch(grid=(2, 1, 1), block=(32, 1, 1), stream=stream)


class Pair(NamedTuple):
    x: Any
    out: Any


@cute.jit
def double_pair(pair: Pair) -> None:
    double_kernel(pair.x, pair.out).launch(grid=(2, 1, 1), block=(32, 1, 1))


def fake() -> Any:
    return make_fake_tensor(Float32, (cute.sym_int(),), (1,))


def tensors() -> tuple[torch.Tensor, torch.Tensor]:
    return torch.arange(64.0, device="cuda"), torch.empty(64, device="cuda")


def line_of_store() -> int:
    lines = Path(__file__).read_text().splitlines()
    return 1 + next(number for number, line in enumerate(lines) if "out[index] =" in line)


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_calling_a_jit_function_runs_on_the_machine(arch: str) -> None:
    with warpcheck.gpu(arch) as report:
        x, out = tensors()
        double(from_dlpack(x), from_dlpack(out))
        assert torch.equal(out, 2 * x)
    assert [launch.kernel for launch in report.launches] == ["double_kernel"]
    assert report.launches[0].line(line_of_store()).global_store_bytes == 256


def test_the_dsl_compiles_for_the_architecture_of_the_scope(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = hooks.DSL.get()().envar
    default_arch = settings.arch  # without a GPU, the DSL's default. The DSL caches it.
    for arch in ("sm_80", "sm_90a"):
        with warpcheck.gpu(arch):
            assert settings.arch == arch
            monkeypatch.setenv("CUTE_DSL_ARCH", "sm_120a")
            assert settings.arch == "sm_120a"
            monkeypatch.delenv("CUTE_DSL_ARCH")
    assert settings.arch == default_arch


def test_a_fault_of_a_compiled_function_names_the_parameter() -> None:
    with warpcheck.gpu("sm_80") as report:
        x, out = tensors()
        compiled = cute.compile(double, from_dlpack(x), from_dlpack(out))
        compiled(from_dlpack(x), from_dlpack(out))
        assert torch.equal(out, 2 * x)
        compiled.to(0)(from_dlpack(x), from_dlpack(out))
        # The function is compiled for 64 elements, and this tensor has fewer.
        with pytest.raises(warpcheck.OutOfBounds, match=r"writes 4 bytes past the end of out \(60 float32\)") as caught:
            compiled(from_dlpack(x), from_dlpack(torch.empty(60, device="cuda")))
    assert caught.value.line == line_of_store()
    assert (len(report.launches), report.faults) == (2, [caught.value])


@needs_tvm_ffi
@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_a_tvm_ffi_function_takes_pytorch_tensors(arch: str) -> None:
    with warpcheck.gpu(arch) as report:
        stream = make_fake_stream(use_tvm_ffi_env_stream=True)
        compiled = cute.compile(double_on_stream, fake(), fake(), stream, options="--enable-tvm-ffi")
        x, out = tensors()
        compiled(x, out)
        assert torch.equal(out, 2 * x)
    assert [launch.kernel for launch in report.launches] == ["double_kernel"]


@needs_tvm_ffi
def test_a_tvm_ffi_function_raises_the_fault_of_the_machine() -> None:
    with warpcheck.gpu("sm_80") as report:
        compiled = cute.compile(double, fake(), fake(), options="--enable-tvm-ffi")
        x, out = tensors()
        with pytest.raises(warpcheck.OutOfBounds, match=r"reads 4 bytes past the end of x \(60 float32\)") as caught:
            compiled(x[:60].clone(), out)
        compiled(x, out)  # the error of the previous launch does not persist
    assert caught.value.line == line_of_store()
    assert len(report.launches) == 1


@needs_tvm_ffi
def test_a_tensor_in_a_struct_argument_is_named_after_its_field() -> None:
    with warpcheck.gpu("sm_80"):
        compiled = cute.compile(double_pair, Pair(fake(), fake()), options="--enable-tvm-ffi")
        x, out = tensors()
        compiled(Pair(x, out))
        assert torch.equal(out, 2 * x)
        with pytest.raises(warpcheck.OutOfBounds, match=r"past the end of pair.out \(60 float32\)"):
            compiled(Pair(x, out[:60].clone()))


@needs_tvm_ffi
def test_tvm_ffi_itself_rejects_wrong_arguments() -> None:
    with warpcheck.gpu("sm_80") as report:
        compiled = cute.compile(double, fake(), fake(), options="--enable-tvm-ffi")
        x, out = tensors()
        with pytest.raises(ValueError, match="expected dtype=float32"):
            compiled(x.int(), out)
    assert not report.launches


@needs_tvm_ffi
def test_functions_with_and_without_tvm_ffi_are_cached_separately() -> None:
    """Their traced modules are equal, and compiler output is cached by the traced module."""
    with warpcheck.gpu("sm_80"):
        for options in ("", "--enable-tvm-ffi", "", "--enable-tvm-ffi"):
            x, out = tensors()
            compiled = cute.compile(double, from_dlpack(x), from_dlpack(out), options=options)
            arguments = (x, out) if options else (from_dlpack(x), from_dlpack(out))
            compiled(*arguments)
            assert torch.equal(out, 2 * x)


@pytest.mark.parametrize(
    ("arch", "multiprocessors", "l2_cache", "pairs"), [("sm_80", 108, 40 << 20, None), ("sm_90a", 132, 60 << 20, 66)]
)
def test_a_program_reads_the_properties_of_the_simulated_gpu(
    arch: str, multiprocessors: int, l2_cache: int, pairs: int | None
) -> None:
    with warpcheck.gpu(arch):
        info = cutlass.utils.HardwareInfo(device_id=0)
        assert info.get_device_multiprocessor_count() == multiprocessors
        assert info.get_l2_cache_size_in_bytes() == l2_cache
        assert info.get_max_active_clusters(cluster_size=1) == multiprocessors
        if pairs:
            assert info.get_max_active_clusters(2) == pairs
        with pytest.raises(ValueError, match="Cluster size must be between 1 and"):
            info.get_max_active_clusters(2 if pairs is None else 17)


def test_a_benchmark_calls_its_function_once() -> None:
    with warpcheck.gpu("sm_90a") as report:
        x, out = tensors()
        arguments = from_dlpack(x), from_dlpack(out)
        compiled = cute.compile(double, *arguments)
        for benchmark in (testing.benchmark, cute.testing.benchmark):
            assert benchmark(compiled, kernel_arguments=testing.JitArguments(*arguments), use_cuda_graphs=True) > 0
        testing.benchmark(compiled, workspace_generator=lambda: testing.JitArguments(*arguments), workspace_count=9)
        assert torch.equal(out, 2 * x)
        with pytest.raises(TypeError, match="should use JitArguments type"):
            testing.benchmark(compiled, kernel_arguments=arguments)  # type: ignore[arg-type]
    assert len(report.launches) == 3


def test_tune_selects_the_first_configuration_that_runs() -> None:
    sizes = []

    def configure(size: int) -> Any:
        if size == 1:
            raise testing.CantImplementError("no kernel of size 1")
        return lambda: sizes.append(size)

    with warpcheck.gpu("sm_90a"):
        assert testing.tune(configure, {"size": [1, 2, 3]}) == {"size": 2}
    assert sizes == [2, 3]


def test_a_scope_restores_the_dsl() -> None:
    names = ["SELECTED_ARCH", "SETTINGS", "FILE_CACHE", "WRAP", "TRACE", "CALL", "RUN", "BIND", "CONNECT", "L2_CACHE"]
    names += ["BENCHMARK", "DEPRECATED_BENCHMARK", "BENCHMARK_TUNED"]
    original = [getattr(hooks, name).get() for name in names]
    provider = hooks.COMPILER.of(hooks.DSL.get()())
    with warpcheck.gpu("sm_80"):
        assert all(getattr(hooks, name).get() is not function for name, function in zip(names, original, strict=True))
        x, out = tensors()
        warpcheck.cute.run(double, x, out)  # replaces the compiler again, and restores the scope's
        assert "compile" in vars(provider)
    assert all(getattr(hooks, name).get() is function for name, function in zip(names, original, strict=True))
    assert "compile" not in vars(provider)


PROGRAM = """
import sys
import torch
assert "cutlass" not in sys.modules  # a scope imports nothing that the program does not use
from cutlass import cute
from cutlass.cute.runtime import from_dlpack

@cute.kernel
def fill_kernel(out: cute.Tensor):
    out[cute.arch.thread_idx()[0]] = 7.0

@cute.jit
def fill(out: cute.Tensor):
    fill_kernel(out).launch(grid=(1, 1, 1), block=(32, 1, 1))

out = torch.empty(32, device="cuda")
fill(from_dlpack(out))
print(out.sum().item())
"""


def test_a_program_may_import_the_dsl_inside_a_scope(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    command = [sys.executable, "-m", "warpcheck.cli", "run", str(tmp_path / "program.py")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("224.0\n")
    assert "fill_kernel" in done.stdout
