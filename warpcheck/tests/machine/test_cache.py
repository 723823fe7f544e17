"""Test the cache of compiled kernels: valid entries run, and malformed or damaged ones are compiled again."""

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


def test_decoding_an_encoded_kernel_returns_it() -> None:
    data = codec.encode(LOWERED, [b"machine", b"code"])
    decoded = codec.decode(data, compiler.CONSTANTS)
    assert decoded == (LOWERED, [b"machine", b"code"])
    assert codec.unseal(codec.seal(data)) == data


def encode_with(**fields: object) -> bytes:
    """Encode LOWERED with some fields of its header replaced."""
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
    "negative_size": encode_with(bytes=[-1, 0, 0]),
    "huge_size": encode_with(bytes=[1 << 60, 0, 0]),
    "a_float": encode_with(bytes=[640.0, 0, 0]),
    "shared_is_a_list": encode_with(shared=[1]),
    "no_such_space": encode_with(sites=[[99, 0, 4, 1, 0, 3, "ld", 9, 4, 0, 0, 0]]),
    "no_parts": encode_with(sites=[[1, 0, 4, 0, 0, 3, "ld", 9, 4, 0, 0, 0]]),
    "a_group_without_chunks": encode_with(sites=[[1, 0, 4, 1, 0, 3, "ld", 9, 16, 1, 0, 0]]),
    "chunks_for_all_memory": encode_with(sites=[[1, 0, 4, 1, 0, 3, "ld", 9, 16, 1, 1 << 30, 0]]),
    "a_group_of_no_bytes": encode_with(sites=[[1, 0, 4, 1, 0, 3, "ld", 9, 0, 1, 2, 0]]),
    "text_for_a_list": encode_with(blocks="ab"),
    "a_function_that_is_no_check": encode_with(checks=[["system", [0]]]),
    "constants_less": encode_with(checks=[["access", [1]]]),
    "symbols_are_numbers": encode_with(symbols=[1]),
    "code_that_is_not_there": encode_with(code=[1]),
}


@pytest.mark.parametrize("data", MALFORMED.values(), ids=MALFORMED.keys())
def test_a_malformed_entry_is_a_miss(data: bytes) -> None:
    assert codec.decode(data, compiler.CONSTANTS) is None


SOURCE = """extern "C" __global__ void kernel(float* a) { a[threadIdx.x] = threadIdx.x + %d; }"""


def launch(number: int) -> None:
    """Compile and run a kernel like a new process, which has only the cache on disk."""
    compiler._schedule_code.cache_clear()
    compiler._copy_code.cache_clear()
    compiler._tensor_code.cache_clear()
    compiler._noinline_code.cache_clear()
    compiler._check_code.cache_clear()
    compiled, name = compile_ptx(SOURCE % number)
    module = simt.Module(compiled.text, "kernel.cu")  # simt.load would return the module of the last call
    out = aligned(32)
    module.launch(name, grid=(1,), block=(32,), args=[out.ctypes.data], buffers=[buffer("a", out)])
    assert out.tolist() == [number + lane for lane in range(32)]


def test_a_damaged_cache_is_rebuilt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WARPCHECK_CACHE", str(tmp_path))
    launch(7)
    entries = {path: path.read_bytes() for path in (tmp_path / "simt").glob("*/*")}
    assert entries
    for path, data in entries.items():
        path.write_bytes(data[: len(data) // 2])
    launch(7)
    damaged = [path.name for path, data in entries.items() if path.read_bytes() != data]
    assert damaged == []


def test_a_cached_kernel_is_not_compiled_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_the_cache_key_covers_the_sources_that_the_process_has_loaded(tmp_path: Path) -> None:
    """If sources change while a process runs, the process must not store its code under the key of the new sources."""
    shutil.copytree(PACKAGE, tmp_path / "warpcheck", ignore=shutil.ignore_patterns("__pycache__"))

    def key(*edited_while_it_runs: str) -> str:
        command = [sys.executable, "-c", PRINT_KEY, *edited_while_it_runs]
        environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout

    before = key()
    assert key("runtime/memory.py") == before
    assert key() != before


REPEATED = """extern "C" __global__ void kernel(float* a, float b) {
    float sum = a[threadIdx.x];
    %s
    a[threadIdx.x] = sum;
}"""


def test_repeated_instructions_share_compiled_code() -> None:
    kernels = [compile_ptx(REPEATED % (times * "sum = sum * b + 3.0f;")) for times in (4, 400)]
    short, long = (
        KernelLowering(compiled.parsed, compiled.parsed.functions[name], OPS, SM_80).lower()
        for compiled, name in kernels
    )
    assert sum(map(len, long.blocks)) > sum(map(len, short.blocks)) + 300
    assert long.functions == short.functions
    assert long.warp_bytes == short.warp_bytes


@pytest.mark.parametrize(
    ("name", "expected_kind"),
    [
        ("cp.async.ca.shared::cta.global", "copy"),
        ("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes", "bulk"),
        ("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32", "bulk"),
        ("wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16", "wgmma"),
        ("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.u32", ""),
        ("ld.global.f32", ""),
    ],
)
def test_an_access_site_is_classified_by_its_instruction(name: str, expected_kind: str) -> None:
    site = AccessSite(Space.SHARED, Access.LOAD, 4, 1, 0, 3, name)
    assert [kind for kind in ("copy", "bulk", "wgmma") if getattr(site, f"is_{kind}")] == [expected_kind] * bool(
        expected_kind
    )
