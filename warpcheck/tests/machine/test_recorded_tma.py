"""What an H200 and its driver answered about tensor maps and bulk copies, asked again of the PTX machine.

Of memory the recording has digests. A box without one was an illegal instruction there.
"""

from __future__ import annotations

import base64
import hashlib
import json
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from machine.boxes import Case, Words
from machine.bulk_kernels import aligned_bytes, run_bulk
from warpcheck import simt
from warpcheck.runtime.reductions import Operation, reduces
from warpcheck.tensor_map import ELEMENT_TYPES, encode_tiled

RECORDED: dict[str, Any] = json.loads(Path(__file__).with_name("recorded_tma.json").read_text())


def digest(content: Words) -> str:
    return hashlib.blake2b(content.tobytes(), digest_size=8).hexdigest()


def test_the_driver_makes_the_same_maps_and_refuses_the_same() -> None:
    for *given, found in RECORDED["maps"]:
        if found:
            assert encode_tiled(*given).rstrip(b"\0").hex() == found, given
        else:
            with pytest.raises(ValueError, match="CUDA_ERROR_INVALID_VALUE"):
                encode_tiled(*given)


def boxes(what: str) -> Iterator[tuple[Case, Words, str, int]]:
    """Each box that was copied, the tensor, the digest, and the bytes of shared memory."""
    for kind, extents, strides, box, steps, swizzle, fill, coords, at, found, real in RECORDED[what]:
        case = Case(kind, extents, box, coords, swizzle, steps, fill, at, strides)
        yield case, tensor(case, bool(real)), found, case.shared if real else case.dumped


def tensor(case: Case, real: bool) -> Words:
    """Return the tensor of the recording; floats are numbers where they are ``real``."""
    memory, size, count = aligned_bytes(case.nbytes), case.size, case.nbytes // case.size
    number = np.arange(count)
    if real and case.kind in (7, 10, 11, 12):
        memory.view(np.float32)[:] = np.linspace(-3, 3, count) * (1 + number % 7 * 1e-5)
        memory.view(np.uint32)[-2:] = 0x00000123, 0x80012345
    elif case.kind in (6, 9):
        memory.view(np.uint16)[:] = number % 30000 + 1
    elif size == 8:
        memory.view(np.uint64)[:] = number.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    else:
        memory.view(f"u{size}")[:] = (number * (1 if size > 1 else 7) + 1).astype(f"u{size}")
    return memory


def buffer(memory: Words) -> simt.Buffer:
    return simt.Buffer("x", memory.ctypes.data, memory.nbytes, 1, dtype="bytes")


def five(case: Case) -> list[int]:
    return (case.coords + [0] * 5)[:5]


def agrees(run: Callable[[], object], content: Words, found: str, case: Case) -> None:
    if found:
        run()
        assert digest(content) == found, case
    else:
        with pytest.raises(simt.Fault, match="coordinate"):
            run()


def test_loads() -> None:
    for case, memory, found, size in boxes("load"):
        out = np.zeros(size, np.uint8)
        args = [case.map(memory.ctypes.data), out, out.size, case.at, case.total, *five(case)]
        agrees(lambda: run_bulk(f"load{case.rank}", args, buffers=[buffer(memory)]), out, found, case)  # noqa: B023


def test_stores() -> None:
    for case, memory, found, _ in boxes("store"):
        memory[:] = 0
        tile = aligned_bytes(case.shared)
        tile.view(np.uint16)[:] = np.arange(1, tile.size // 2 + 1)
        args = [case.map(memory.ctypes.data), tile, tile.size, case.at, 1, *five(case)]
        agrees(lambda: run_bulk(f"store{case.rank}", args, buffers=[buffer(memory)]), memory, found, case)  # noqa: B023


def test_reductions() -> None:
    for form, *packed, found in RECORDED["reduce"]:
        before, after = (zlib.decompress(base64.b64decode(one)) for one in packed)
        old, new = aligned_bytes(len(before)), aligned_bytes(len(after))
        old[:], new[:] = np.frombuffer(before, np.uint8), np.frombuffer(after, np.uint8)
        run_bulk("span_" + form.replace(".", "_"), [old, new, old.size, 0, 1])
        assert digest(old) == found, form


def test_which_reductions_tensors_have() -> None:
    for host, operations in RECORDED["tensor_reduce"]:
        kind = ELEMENT_TYPES[host].code
        ours = [one.name.lower() for one in Operation if one and reduces(one, kind)]
        assert sorted(ours) == operations, ELEMENT_TYPES[host].name
