"""Test the facts about AMD assembly against LLVM's comments and the bytes that the kernels move."""

from __future__ import annotations

import gzip
import importlib.util
import random
import re
from pathlib import Path
from typing import Any

import pytest
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from kernelpath.course.problems import amdgcn_facts
from kernelpath.course.traces import Malformed, amdgcn, recordings

TRACES = Path(__file__).parents[1] / "results" / "traces"
COPY = recordings.read("amdgcn", "copy0.s").decode()


def kernels() -> Any:
    """Return the module with the recorded kernels."""
    spec = importlib.util.spec_from_file_location("recorded_amdgcn", TRACES / "amdgcn.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("columns", [32, 128])
def test_waves_per_simd_are_llvms_occupancy(columns: int) -> None:
    """LLVM writes the occupancy into a comment, which the exercise's files omit."""
    recorded = kernels()
    types = dict.fromkeys(("x", "y", "out"), "*fp16") | {"out": "*fp32", "K": "i32"}
    types |= dict.fromkeys(("R", "C", "B"), "constexpr")
    source = ASTSource(recorded.matmul, types, {"R": 128, "C": columns, "B": 32})
    options = {"num_warps": 4, "enable_fp_fusion": True}
    compiled: Any = triton.compile(source, target=GPUTarget("hip", "gfx942", 64), options=options)
    occupancy = re.search(r"; Occupancy: (\d+)", compiled.asm["amdgcn"])
    assert occupancy is not None
    facts = amdgcn.of(f"; shared = {compiled.metadata.shared}\n{compiled.asm['amdgcn']}")
    assert facts["waves_per_simd"] == int(occupancy[1])
    assert facts["wavefront"] == 64


@pytest.mark.parametrize(
    ("kernel", "tile_bytes"),
    [("copy0", 4096), ("copy1", 2048), ("add1", 2048), ("transpose0", 8192), ("softmax1", 4096)],
)
def test_lanes_together_store_the_tile(kernel: str, tile_bytes: int) -> None:
    facts = amdgcn.of(recordings.read("amdgcn", f"{kernel}.s").decode())
    assert facts["stored"] * facts["waves"] * facts["wavefront"] == tile_bytes  # type: ignore[operator]


@pytest.mark.parametrize(
    ("instruction", "changes"),
    [
        ("v_mfma_f32_32x32x4_2b_f16 a[0:31], v[2:3], v[4:5], a[0:31]", {"matrix_operations": 2 * 2 * 32 * 32 * 4}),
        ("v_mfma_f64_16x16x4_f64 v[0:7], v[2:3], v[4:5], v[0:7]", {"matrix_operations": 2 * 16 * 16 * 4}),
        ("global_load_short_d16_hi v1, v[2:3], off", {"loaded": 2}),
        ("buffer_store_dwordx3 v[2:4], v1, s[0:3], 0 offen", {"stored": 12}),
        ("buffer_load_ubyte v1, v2, s[0:3], 0 offen", {"loaded": 1}),
        ("ds_read2st64_b64 v[2:5], v1 offset1:1", {"lds_read": 16}),
        ("ds_write_b16_d16_hi v1, v2", {"lds_written": 2}),
        ("ds_bpermute_b32 v1, v2, v3", {}),
        ("s_barrier", {"barriers": 1}),
        ("v_add_f32_e32 v1, v2, v3", {}),
    ],
)
def test_an_instruction_counts(instruction: str, changes: dict[str, int]) -> None:
    before = amdgcn.of(COPY)
    after = amdgcn.of(COPY.replace("\ts_endpgm", f"\t{instruction}\n\ts_endpgm"))
    differences = {
        name: after[name] - before[name]  # type: ignore[operator]
        for name in before
        if name != "matrix" and after[name] != before[name]
    }
    assert differences == changes


@pytest.mark.parametrize(
    ("registers", "shared", "expected"), [(128, 0, 4), (129, 0, 3), (64, 30_000, 2), (256, 512, 2)]
)
def test_registers_and_lds_limit_workgroups(registers: int, shared: int, expected: int) -> None:
    text = re.sub(r"(\.vgpr_count:\s+)\d+", rf"\g<1>{registers}", COPY)
    assert amdgcn.of(re.sub(r"shared = \d+", f"shared = {shared}", text))["workgroups"] == expected


def test_recordings_are_complete_and_contain_no_source_locations() -> None:
    names = {f"{kernel}{number}.s.gz" for kernel in amdgcn_facts.KERNELS for number in range(amdgcn_facts.VARIANTS)}
    assert {path.name for path in (TRACES / "amdgcn").iterdir()} == names
    for name in names:
        text = gzip.decompress((TRACES / "amdgcn" / name).read_bytes()).decode()
        assert not re.search(r"\.py|\.loc\b|Occupancy|debug_info", text)


def test_varied_kernels_fit_on_a_compute_unit() -> None:
    for seed in range(100):
        facts = amdgcn.of(amdgcn.vary(random.Random(seed), recordings.read("amdgcn", "matmul0.s").decode(), 64, 10))
        assert facts["workgroups"] >= 1  # type: ignore[operator]


@pytest.mark.parametrize("text", ["", "; shared = 0\n", COPY.replace("vgpr_count", "other")])
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(Malformed):
        amdgcn.of(text)
