"""Test the facts about HLO modules: the bytes of a fusion must equal those of XLA's own cost analysis."""

from __future__ import annotations

import gzip
import importlib
import importlib.util
import random
import re
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest

from kernelpath.course.problems import hlo_facts
from kernelpath.course.traces import Malformed, hlo, recordings

FOLDER = Path(__file__).parents[1] / "results" / "traces" / "hlo"
FUNCTIONS = (*hlo_facts.NOTEBOOK_FUNCTIONS, *hlo_facts.FURTHER_FUNCTIONS)

# XLA's analysis ignores the bytes of a library call, and counts the complete table of a gather.
LIBRARY_CALLS = {"mlp", "gelu_aux", "exact_gelu", "swiglu", "attention"}
GATHERS = {"embed", "entropy"}

MODULE = """HloModule example

%region (a: f32[], b: f32[]) -> f32[] {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %sum = f32[] add(%a, %b)
}

%fused (p: f32[8,100]) -> BODY_TYPE {
  %p = f32[8,100]{1,0} parameter(0)
BODY
}

ENTRY %main (x: f32[8,100]) -> BODY_TYPE {
  %x = f32[8,100]{1,0} parameter(0)
  ROOT %fusion = BODY_TYPE fusion(%x), kind=kLoop, calls=%fused
}
"""


def make_module(body: str) -> str:
    """Return a module whose entry is one fusion with these instructions of a parameter p of 8 x 100 elements."""
    root = re.search(r"ROOT %\S+ = (\([^()]*\)|\S+)", body)
    assert root is not None
    return MODULE.replace("BODY_TYPE", root[1]).replace("BODY", body)


def read_recording(name: str, number: int) -> str:
    return recordings.read("hlo", f"{name}{number}.hlo").decode()


def bytes_of_xla(text: str) -> float:
    """Return the bytes that XLA's analysis counts, without the pointers of 8 bytes in a tuple of results."""
    import jax

    parser: Any = importlib.import_module("jaxlib._hlo")
    analysis: Any = importlib.import_module("jax._src.lib")._jax
    parsed = parser.hlo_module_from_text(text)
    accessed_bytes = analysis.hlo_module_cost_analysis(jax.devices("cpu")[0].client, parsed)["bytes accessed"]
    results = re.search(r"^ENTRY .* -> \((.*)\) \{$", text, re.M)
    return float(accessed_bytes) - (8 * results[1].count("[") if results else 0)


@pytest.fixture(scope="module")
def xla() -> Iterator[ProcessPoolExecutor]:
    """Yield a process for JAX, because a process with JAX's threads warns at every later fork."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as process:
        yield process


@pytest.mark.skipif(importlib.util.find_spec("jax") is None, reason="JAX is not installed")
@pytest.mark.parametrize("name", sorted(set(FUNCTIONS) - LIBRARY_CALLS - GATHERS - {"copied_cache"}))
@pytest.mark.parametrize("number", range(hlo_facts.VARIANTS))
def test_bytes_equal_those_of_xla(name: str, number: int, xla: ProcessPoolExecutor) -> None:
    text = read_recording(name, number)
    for module_text in (text, hlo.vary(random.Random(number), text, hlo_facts.ROWS, 600)):
        kernels = hlo.kernels(module_text)
        assert sum(kernel.read + kernel.written for kernel in kernels) == xla.submit(bytes_of_xla, module_text).result()


@pytest.mark.parametrize(
    ("body", "read", "written", "unfused"),
    [
        pytest.param(
            "  %s = f32[8,10]{1,0} slice(%p), slice={[0:8], [0:10]}\n  ROOT %n = f32[8,10]{1,0} negate(%s)",
            320, 320, 4 * 320, id="a slice",
        ),
        pytest.param(
            "  %s = f32[8,60]{1,0} slice(%p), slice={[0:8], [0:60]}\n"
            "  %t = f32[8,60]{1,0} slice(%p), slice={[0:8], [40:100]}\n  ROOT %n = f32[8,60]{1,0} add(%s, %t)",
            3200, 1920, 7 * 1920, id="overlapping slices are at most the whole array",
        ),
        pytest.param(
            "  %e = f32[8,100]{1,0} exponential(%p)\n"
            "  ROOT %s = f32[8,10]{1,0} slice(%e), slice={[0:8], [0:10]}",
            320, 320, 2 * 3200 + 2 * 320, id="elements that nobody needs are not computed",
        ),
        pytest.param(
            "  %z = f32[] constant(0)\n  %m = f32[8,100]{1,0} multiply(%p, %p)\n"
            "  ROOT %r = f32[8]{0} reduce(%m, %z), dimensions={1}, to_apply=%region",
            3200, 32, 2 * 3200 + 3200 + 4 + 32, id="an operand twice",
        ),
        pytest.param(
            "  %z = f32[] constant(0)\n  %r = f32[8]{0} reduce(%p, %z), dimensions={1}, to_apply=%region\n"
            "  ROOT %t = (f32[8]{0}, f32[8,100]{1,0}) tuple(%r, %p)",
            3200, 3232, 3200 + 4 + 32, id="two results",
        ),
        pytest.param(
            "  %z = s32[] constant(3)\n  %c = f32[1,100]{1,0} constant({...})\n"
            "  ROOT %u = f32[8,100]{1,0} dynamic-update-slice(%p, %c, %z, %z)",
            0, 400, 400 + 4 + 400, id="an update in place",
        ),
        pytest.param(
            "  %g = pred[8,100]{1,0} compare(%p, %p), direction=GT\n"
            "  ROOT %c = f8e4m3fn[8,100]{1,0} convert(%g)",
            3200, 800, 3200 + 800 + 800 + 800, id="types of one byte",
        ),
    ],
)  # fmt: skip
def test_bytes_of_a_fusion(body: str, read: int, written: int, unfused: int) -> None:
    (kernel,) = hlo.kernels(make_module(body))
    assert (kernel.read, kernel.written, kernel.unfused) == (read, written, unfused)


def test_a_gather_reads_rows_and_a_call_writes_no_workspace() -> None:
    gather, norm = hlo.kernels(read_recording("embed", 0))
    # 328 rows of 1024 floats are read, and their indices of 4 bytes.
    assert gather.read == 4 * 328 * 1024 + 4 * 328
    assert norm.kind == "__triton"
    first, second = hlo.kernels(read_recording("mlp", 0))
    assert (first.kind, first.written) == ("__cublas$lt$matmul", 4 * 64 * 1024)
    assert second.read == 4 * (64 * 1024 + 1024 * 256)
    (fused_gelu,) = hlo.kernels(read_recording("gelu_aux", 1))
    assert fused_gelu.written == 2 * 2 * 512 * 3072


@pytest.mark.parametrize(
    ("name", "epilogues", "kinds"),
    [
        ("mlp", ["BIAS_GELU", "DEFAULT"], ["__cublas$lt$matmul"] * 2),
        ("exact_gelu", ["BIAS"], ["__cublas$lt$matmul", "kLoop"]),
        ("gelu_aux", ["GELU_AUX"], ["__cublas$lt$matmul"]),
        ("swiglu", ["DEFAULT"], ["__cublas$lt$matmul", "kLoop"]),
    ],
)
def test_week_14_epilogues_are_in_the_recordings(name: str, epilogues: list[str], kinds: list[str]) -> None:
    text = read_recording(name, 1)
    assert re.findall(r'"epilogue":"(\w+)"', text) == epilogues
    assert [kernel.kind for kernel in hlo.kernels(text)] == kinds


def test_without_donation_the_cache_is_copied() -> None:
    copy, update = hlo.kernels(read_recording("copied_cache", 0))
    (updated,) = hlo.kernels(read_recording("cache", 0))
    assert (copy.kind, copy.read, copy.written) == ("copy", 4 * 16 * 4096 * 128, 4 * 16 * 4096 * 128)
    assert (update.read, update.written) == (updated.read, updated.written) == (4 * 16 * 128 + 4, 4 * 16 * 128)


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("number", range(hlo_facts.VARIANTS))
def test_a_varied_module_is_consistent(name: str, number: int) -> None:
    """A bitcast keeps the bytes, and elementwise instructions the extents, which XLA's parser does not check."""
    original = read_recording(name, number)
    varied = hlo.vary(random.Random(0), original, hlo_facts.ROWS, 600)
    assert not re.search(r"[\[,:]328[\],]", varied)
    entry, computations = hlo.parse(varied)
    for body in (entry, *computations.values()):
        for instruction in body.values():
            assert all(operand in body for operand in instruction.operands)
            if instruction.opcode == "bitcast":
                assert instruction.nbytes == body[instruction.operands[0]].nbytes
            if instruction.opcode in ("add", "multiply", "subtract", "divide", "exponential"):
                assert {body[operand].elements for operand in instruction.operands} == {instruction.elements}
    facts = hlo.of(original)
    varied_facts = hlo.of(varied)
    assert varied_facts["operations"] == facts["operations"]
    assert varied_facts["kernels"] != facts["kernels"]


def test_recordings_are_complete_and_contain_no_source_locations() -> None:
    names = {f"{name}{number}.hlo.gz" for name in FUNCTIONS for number in range(hlo_facts.VARIANTS)}
    assert {path.name for path in FOLDER.iterdir()} == names
    for name in names:
        text = gzip.decompress((FOLDER / name).read_bytes()).decode()
        assert not re.search(r"\.py|metadata=|FileNames", text)


@pytest.mark.parametrize("text", ["", "HloModule empty\n", read_recording("norm", 0).replace("ENTRY ", "")])
def test_invalid_hlo_is_refused(text: str) -> None:
    with pytest.raises(Malformed):
        hlo.of(text)
