"""Test that the recorded PTX of Helion, TileLang, and cuTile runs on the PTX machine and matches week 30's sources."""

from __future__ import annotations

import gzip
import re
from dataclasses import replace
from typing import Any

import pytest
import torch

from kernelpath.course import registry
from kernelpath.course.traces import recordings
from kernelpath.show import tile_languages
from kernelpath.show.mojo import CompileError
from kernelpath.show.tile_languages import CompiledKernel, KernelArgument
from warpcheck import backend, simt, simulated_gpu
from warpcheck.schedule import Schedule
from warpcheck.tensor_map import TensorMap

RECORDED = tile_languages.recorded()


@pytest.fixture(autouse=True)
def hopper() -> None:
    simulated_gpu.show({}, "sm_90a")


def create_inputs() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    m, n, k = tile_languages.SIZES
    generator = torch.Generator().manual_seed(0)
    a, b, bias = (torch.randn(shape, generator=generator) for shape in ((m, k), (n, k), (n,)))
    return a.bfloat16(), b.bfloat16(), bias.bfloat16()


def compute_expected(a: torch.Tensor, b: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    return (a.double() @ b.double().T + bias.double()).relu()


@pytest.mark.parametrize("name", RECORDED)
def test_recorded_kernels_are_correct_in_both_schedules(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # A second run in the opposite order of blocks and warps shows races that the forward order hides.
    monkeypatch.setattr(backend.checks, "extra_schedules", (Schedule.REVERSE,))
    a, b, bias = create_inputs()
    out = RECORDED[name](a, b, bias)
    # Rounding to bfloat16 takes half a unit of the last of 8 bits; sums in float32 err by far less.
    torch.testing.assert_close(out.double(), compute_expected(a, b, bias), rtol=2**-8, atol=1e-3)


def replace_tensor_maps(name: str, **changes: Any) -> CompiledKernel:
    """Return a recorded kernel that gets other tensor maps of two axes."""
    kernel = RECORDED[name]
    arguments = [replace(argument, **changes) if len(argument.box) == 2 else argument for argument in kernel.arguments]
    return replace(kernel, arguments=tuple(arguments))


@pytest.mark.parametrize("name", ["tilelang3", "cutile"])
def test_a_wrong_swizzle_gives_wrong_values(name: str) -> None:
    a, b, bias = create_inputs()
    out = replace_tensor_maps(name, swizzle=0)(a, b, bias)
    assert not torch.allclose(out.double(), compute_expected(a, b, bias), rtol=2**-8, atol=1e-3)


@pytest.mark.parametrize("name", ["tilelang3", "cutile"])
def test_with_a_smaller_box_the_mbarriers_wait_for_bytes_that_never_arrive(name: str) -> None:
    with pytest.raises(simt.Deadlock, match="mbarrier"):
        replace_tensor_maps(name, box=(32, 64))(*create_inputs())


@pytest.mark.parametrize("language", tile_languages.LANGUAGES)
def test_the_recording_belongs_to_the_source(language: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tile_languages, "is_installed", lambda language: False)
    text = tile_languages.source(language)
    assert tile_languages.compile_kernel(language, text).language == language
    with pytest.raises(tile_languages.CompilerMissing, match=f"{language} is not installed: pip install"):
        tile_languages.compile_kernel(language, text + "# changed\n")


def test_every_recording_has_a_source_and_every_file_a_recording() -> None:
    texts = [(language, tile_languages.source(language)) for language in tile_languages.LANGUAGES]
    texts += [("TileLang", texts[1][1].replace("num_stages=3", f"num_stages={stages}")) for stages in (0, 1, 2, 4)]
    texts += [("Helion", texts[0][1].replace('"pointer"', '"tensor_descriptor"'))]
    digests = {(language, tile_languages.source_digest(text)) for language, text in texts}
    assert {(kernel.language, kernel.digest) for kernel in RECORDED.values()} == digests
    folder = registry.root() / recordings.FOLDER / tile_languages.RECORDING
    assert {path.name for path in folder.glob("*.gz")} == {f"{name}.ptx.gz" for name in RECORDED}
    for path in folder.glob("*.gz"):
        assert not re.search(rb"\.file|\.loc|/", gzip.decompress(path.read_bytes())), (
            path
        )  # the recordings contain no path of a computer


def test_tilelang_encodes_tensor_maps_of_swizzled_tiles() -> None:
    a, b, bias = create_inputs()
    tensors = {"a": a, "b": b, "bias": bias, "out": torch.empty(128, 128, dtype=torch.bfloat16)}
    a_map, b_map, *addresses = (argument.encode(tensors) for argument in RECORDED["tilelang3"].arguments)
    assert isinstance(a_map, bytes)
    decoded_map = TensorMap.decode(a_map)
    assert (decoded_map.extents, decoded_map.strides, decoded_map.box) == ((512, 128), (1024,), (64, 64))
    assert (decoded_map.type.name, decoded_map.address, decoded_map.swizzle) == ("bf16", a.data_ptr(), 3)
    assert isinstance(b_map, bytes)
    assert TensorMap.decode(b_map).address == b.data_ptr()
    assert addresses == [bias, tensors["out"]]


def count_instructions(name: str) -> dict[str, int | None]:
    return tile_languages.count_instructions(RECORDED[name].ptx, RECORDED[name].name)


def test_stages_enable_warp_specialization_and_tma() -> None:
    without = count_instructions("tilelang0")
    single = count_instructions("tilelang1")
    assert (without["threads"], without["TMA loads"], without["mbarrier"], without["setmaxnreg"]) == (128, 0, 0, 0)
    assert (single["threads"], single["TMA loads"], single["setmaxnreg"]) == (256, 16, 2)
    kibibytes = [RECORDED[f"tilelang{stages}"].shared_bytes / 1024 for stages in range(5)]
    assert kibibytes == [16, 16, 32, 48, 64]


def test_the_compilers_choose_different_copies() -> None:
    helion = count_instructions("helion")
    cutile = count_instructions("cutile")
    assert (helion["cp.async"], helion["TMA loads"], helion["TMA stores"]) == (24, 0, 0)
    descriptors = count_instructions("helion_descriptors")
    assert (descriptors["cp.async"], descriptors["TMA loads"], descriptors["TMA stores"]) == (0, 6, 1)
    assert (cutile["cp.async"], cutile["TMA loads"], cutile["TMA stores"]) == (0, 3, 1)
    assert RECORDED["cutile"].threads == cutile["threads"] == 256


def test_each_instruction_is_counted_once() -> None:
    ptx = """
.version 8.8
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 p)
.maxntid 96, 1, 1
{
.reg .pred %p;
.reg .b32 %r<5>;
.reg .b64 %rd<3>;
@%p wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%r1}, %rd1, %rd2, %p, 1, 1, 0, 0;
cp.async.bulk.tensor.2d.shared::cta.global.tile.mbarrier::complete_tx::bytes [%r1], [%rd1, {%r2, %r3}], [%r4];
cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%rd1, {%r2, %r3}], [%r4];
cp.async.cg.shared.global [%r1], [%rd1], 16;
cp.async.commit_group;
mbarrier.init.shared.b64 [%r1], %r2; mbarrier.inval.shared.b64 [%r1];
ret;
}
"""
    expected = {"threads": 96, "instructions": 8, "wgmma": 1, "cp.async": 1, "TMA loads": 1, "TMA stores": 1}
    expected |= {"mbarrier": 2, "setmaxnreg": 0}
    assert {**tile_languages.count_instructions(ptx, "k"), "registers": None} == {**expected, "registers": None}


@pytest.mark.parametrize("changed", ["shape", "dtype", "strides"])
def test_tensors_of_another_shape_dtype_or_layout_are_refused(changed: str) -> None:
    a, b, bias = create_inputs()
    invalid_inputs = {"shape": a[:64], "dtype": a.half(), "strides": a.T.contiguous().T}
    with pytest.raises(ValueError, match=r"contiguous bfloat16 a of shape \(128, 512\)"):
        RECORDED["helion"](invalid_inputs[changed], b, bias)


def test_a_kernel_argument_is_encoded_as_a_number_or_a_tensor() -> None:
    tensor = torch.zeros(128, 64, dtype=torch.bfloat16)
    assert KernelArgument(value=7).encode({}) == 7
    assert KernelArgument("a").encode({"a": tensor}) is tensor


@pytest.mark.parametrize("language", tile_languages.LANGUAGES)
def test_the_installed_compiler_compiles_the_source(language: str) -> None:
    if not tile_languages.is_installed(language):
        pytest.skip(f"needs {language}")
    text = tile_languages.source(language)
    kernel: CompiledKernel = tile_languages.run_compiler(language, text)
    a, b, bias = create_inputs()
    torch.testing.assert_close(kernel(a, b, bias).double(), compute_expected(a, b, bias), rtol=2**-8, atol=1e-3)
    earlier = tile_languages.compile_kernel(language, text)
    assert (kernel.grid, kernel.arguments) == (earlier.grid, earlier.arguments)


@pytest.mark.skipif(not tile_languages.is_installed("TileLang"), reason="needs TileLang")
def test_a_compile_error_propagates() -> None:
    with pytest.raises(CompileError, match="alloc_shard"):
        tile_languages.run_compiler(
            "TileLang", tile_languages.source("TileLang").replace("alloc_shared", "alloc_shard")
        )
