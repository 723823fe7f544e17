"""What an H200 and its driver answered about tensor maps and bulk copies, asked again of the PTX machine."""

from __future__ import annotations

import base64
import json
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kernelpath import simt
from kernelpath.simt.tensor_map import encode_tiled
from tests.simt.boxes import Case, Words
from tests.simt.bulk_kernels import aligned_bytes, run_bulk

RECORDED: dict[str, Any] = json.loads(Path(__file__).with_name("recorded_tma.json").read_text())


def content(packed: str) -> Words:
    return np.frombuffer(zlib.decompress(base64.b64decode(packed)), np.uint8)


def test_the_driver_makes_the_same_maps_and_refuses_the_same() -> None:
    for *given, found in RECORDED["maps"]:
        if found:
            assert encode_tiled(*given).rstrip(b"\0").hex() == found, given
        else:
            with pytest.raises(ValueError, match="CUDA_ERROR_INVALID_VALUE"):
                encode_tiled(*given)


def boxes(what: str) -> list[tuple[Case, dict[str, Any]]]:
    shape = ("kind", "extents", "box", "coords", "swizzle", "steps", "fill", "at", "strides")
    return [(Case(*(one[name] for name in shape)), one) for one in RECORDED[what] if "found" in one]


def iota(case: Case) -> Words:
    """The tensor of the recording."""
    memory, size, count = aligned_bytes(case.nbytes), case.size, case.nbytes // case.size
    number = np.arange(count)
    if case.kind in (6, 9):
        memory.view(np.uint16)[:] = number % 30000 + 1
    elif size == 8:
        memory.view(np.uint64)[:] = number.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    else:
        memory.view(f"u{size}")[:] = (number * (1 if size > 1 else 7) + 1).astype(f"u{size}")
    return memory


def tensor(memory: Words) -> simt.Buffer:
    return simt.Buffer("x", memory.ctypes.data, memory.nbytes, 1, dtype="bytes")


def five(case: Case) -> list[int]:
    return (case.coords + [0] * 5)[:5]


def test_loads() -> None:
    for case, recorded in boxes("load"):
        memory, found = iota(case), content(recorded["found"])
        out = np.zeros(found.size, np.uint8)
        args = [case.map(memory.ctypes.data), out, out.size, case.at, case.total, *five(case)]
        run_bulk(f"load{case.rank}", args, buffers=[tensor(memory)])
        np.testing.assert_array_equal(out, found, str(case))


def test_stores() -> None:
    for case, recorded in boxes("store"):
        if case.pitch > case.box[0] * case.size:
            continue  # the recording did not fill shared memory so far
        memory, tile = aligned_bytes(case.nbytes), aligned_bytes(case.shared)
        tile.view(np.uint16)[:] = np.arange(1, tile.size // 2 + 1)
        args = [case.map(memory.ctypes.data), tile, tile.size, case.at, 1, *five(case)]
        run_bulk(f"store{case.rank}", args, buffers=[tensor(memory)])
        np.testing.assert_array_equal(memory, content(recorded["found"]), str(case))


def test_reductions() -> None:
    for one in RECORDED["reduce"]:
        old, new = aligned_bytes(content(one["old"]).size), aligned_bytes(content(one["new"]).size)
        old[:], new[:] = content(one["old"]), content(one["new"])
        run_bulk("span_" + one["form"].replace(".", "_"), [old, new, old.size, 0, 1])
        np.testing.assert_array_equal(old, content(one["found"]), one["form"])
