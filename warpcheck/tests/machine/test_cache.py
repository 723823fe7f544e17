"""Compiled kernels as bytes: what is kept runs, and what others wrote into the cache is not believed."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from machine.launching import aligned, buffer, compile_ptx
from warpcheck import codec, compiler, simt
from warpcheck.isa import OPS
from warpcheck.layout import Access, Space
from warpcheck.lower.kernel_lowering import KernelLowering
from warpcheck.lowered_kernel import AccessSite, Check, Lowered, SassAccess
from warpcheck.target import SM_80

LOWERED = Lowered(
    "",
    640,
    128,
    16,
    {"tile": range(0, 128), "dynamic": range(128, 128)},
    [AccessSite(Space.GLOBAL, Access.LOAD, 8, 2, False, 3, "ld.global.v2.f32", 40, SassAccess(16, 1, 2))],
    [[(1, "mov.u32"), (3, "@bra")], []],
    ["table"],
    {Check("access", (1, 0, 16, 4, 0, 0, 0, 0, 0, 0)), Check("fence")},
)


def test_a_kernel_survives_its_encoding() -> None:
    data = codec.encode(LOWERED, [b"machine", b"code"])
    decoded = codec.decode(data, compiler.CONSTANTS)
    assert decoded == (LOWERED, [b"machine", b"code"])
    assert codec.unseal(codec.seal(data)) == data


def changed(**fields: object) -> bytes:
    data = codec.encode(LOWERED, [])
    header = json.loads(data[8:]) | fields
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text


MALFORMED = {
    "empty": b"",
    "cut": codec.encode(LOWERED, [])[:-40],
    "no_json": (5).to_bytes(8, "little") + b"hello",
    "too_deep": (200_000).to_bytes(8, "little") + b"[" * 200_000,
    "a_list": (2).to_bytes(8, "little") + b"[]",
    "a_field_less": (2).to_bytes(8, "little") + b"{}",
    "negative_size": changed(bytes=[-1, 0, 0]),
    "huge_size": changed(bytes=[1 << 60, 0, 0]),
    "a_float": changed(bytes=[640.0, 0, 0]),
    "shared_is_a_list": changed(shared=[1]),
    "no_such_space": changed(sites=[[99, 0, 4, 1, 0, 3, "ld", 9, 4, 0, 0, 0]]),
    "no_parts": changed(sites=[[1, 0, 4, 0, 0, 3, "ld", 9, 4, 0, 0, 0]]),
    "a_group_without_chunks": changed(sites=[[1, 0, 4, 1, 0, 3, "ld", 9, 16, 1, 0, 0]]),
    "chunks_for_all_memory": changed(sites=[[1, 0, 4, 1, 0, 3, "ld", 9, 16, 1, 1 << 30, 0]]),
    "a_group_of_no_bytes": changed(sites=[[1, 0, 4, 1, 0, 3, "ld", 9, 0, 1, 2, 0]]),
    "text_for_a_list": changed(blocks="ab"),
    "a_function_that_is_no_check": changed(checks=[["system", [0]]]),
    "constants_less": changed(checks=[["access", [1]]]),
    "symbols_are_numbers": changed(symbols=[1]),
    "code_that_is_not_there": changed(code=[1]),
}


@pytest.mark.parametrize("data", MALFORMED.values(), ids=MALFORMED.keys())
def test_what_is_malformed_is_a_miss(data: bytes) -> None:
    assert codec.decode(data, compiler.CONSTANTS) is None


SOURCE = """extern "C" __global__ void kernel(float* a) { a[threadIdx.x] = threadIdx.x + %d; }"""


def launch(number: int) -> None:
    """Compile and run a kernel as a new process does, from what the cache on disk has."""
    compiler._schedule_code.cache_clear()
    compiler._copy_code.cache_clear()
    compiler._tensor_code.cache_clear()
    compiler._noinline_code.cache_clear()
    compiler._check_code.cache_clear()
    compiled, name = compile_ptx(SOURCE % number)
    module = simt.Module(compiled.text, "kernel.cu")  # not the one that load remembers
    out = aligned(32)
    module.launch(name, grid=(1,), block=(32,), args=[out.ctypes.data], buffers=[buffer("a", out)])
    assert out.tolist() == [number + lane for lane in range(32)]


def test_a_damaged_cache_is_built_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WARPCHECK_CACHE", str(tmp_path))
    launch(7)
    kept = {path: path.read_bytes() for path in (tmp_path / "simt").glob("*/*")}
    assert kept
    for path, data in kept.items():
        path.write_bytes(data[: len(data) // 2])
    launch(7)
    damaged = [path.name for path, data in kept.items() if path.read_bytes() != data]
    assert damaged == []


def test_a_kept_kernel_is_not_compiled_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WARPCHECK_CACHE", str(tmp_path))
    launch(8)
    monkeypatch.setattr(compiler, "KernelLowering", None)
    launch(8)


PACKAGE = Path(compiler.__file__).parent

PRINT_KEY = """import sys
from pathlib import Path
from warpcheck import compiler
for file in sys.argv[1:]:
    path = Path(compiler.__file__).parent / file
    path.write_text("# another revision\\n" + path.read_text())
print(compiler._key("kernel"))
"""


def test_what_a_process_stores_is_keyed_by_the_sources_that_it_has_loaded(tmp_path: Path) -> None:
    """An edit while a process runs must not leave its code of the old sources in the cache of the new ones."""
    shutil.copytree(PACKAGE, tmp_path / "warpcheck", ignore=shutil.ignore_patterns("__pycache__"))

    def key(*edited_while_it_runs: str) -> str:
        run = [sys.executable, "-c", PRINT_KEY, *edited_while_it_runs]
        environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
        return subprocess.run(run, env=environment, capture_output=True, text=True, check=True).stdout

    before = key()
    assert key("runtime/memory.py") == before
    assert key() != before


REPEATED = """extern "C" __global__ void kernel(float* a, float b) {
    float sum = a[threadIdx.x];
    %s
    a[threadIdx.x] = sum;
}"""


def test_what_a_kernel_repeats_is_compiled_once() -> None:
    kernels = [compile_ptx(REPEATED % (times * "sum = sum * b + 3.0f;")) for times in (4, 400)]
    few, many = (
        KernelLowering(compiled.parsed, compiled.parsed.functions[name], OPS, SM_80).lower()
        for compiled, name in kernels
    )
    assert sum(map(len, many.blocks)) > sum(map(len, few.blocks)) + 300
    assert many.functions == few.functions
    assert many.warp_bytes == few.warp_bytes


@pytest.mark.parametrize(
    ("name", "is_what"),
    [
        ("cp.async.ca.shared::cta.global", "copy"),
        ("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes", "bulk"),
        ("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32", "bulk"),
        ("wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16", "wgmma"),
        ("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.u32", ""),
        ("ld.global.f32", ""),
    ],
)
def test_what_a_site_is_by_the_words_of_its_instruction(name: str, is_what: str) -> None:
    site = AccessSite(Space.SHARED, Access.LOAD, 4, 1, 0, 3, name)
    assert [kind for kind in ("copy", "bulk", "wgmma") if getattr(site, f"is_{kind}")] == [is_what] * bool(is_what)
