"""Compare the PTX machine with recorded answers of an H200 and its driver about tensor maps and bulk copies.

The recording has digests of memory. A box without a digest was an illegal instruction on the H200.
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


def test_encoded_maps_and_errors_equal_those_of_the_driver() -> None:
    for *arguments, expected in RECORDED["maps"]:
        if expected:
            assert encode_tiled(*arguments).rstrip(b"\0").hex() == expected, arguments
        else:
            with pytest.raises(ValueError, match="CUDA_ERROR_INVALID_VALUE"):
                encode_tiled(*arguments)


def read_boxes(kind_of_copy: str) -> Iterator[tuple[Case, Words, str, int]]:
    """Yield each box that was copied, the tensor, the digest, and the bytes of shared memory."""
    for kind, extents, strides, box, steps, swizzle, fill, coords, offset, expected, is_real in RECORDED[kind_of_copy]:
        case = Case(kind, extents, box, coords, swizzle, steps, fill, offset, strides)
        yield case, tensor(case, bool(is_real)), expected, case.shared if is_real else case.dumped


def tensor(case: Case, real: bool) -> Words:
    """Return the tensor of the recording. ``real`` fills float types with varied values."""
    memory = aligned_bytes(case.nbytes)
    size = case.size
    count = case.nbytes // case.size
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


def pad_coordinates(case: Case) -> list[int]:
    return (case.coords + [0] * 5)[:5]


def check_copy(run: Callable[[], object], content: Words, expected: str, case: Case) -> None:
    """Run a copy, and compare the digest of the content. Without a digest, the copy must be a fault."""
    if expected:
        run()
        assert digest(content) == expected, case
    else:
        with pytest.raises(simt.Fault, match="coordinate"):
            run()


def test_loads_equal_those_of_the_h200() -> None:
    for case, memory, expected, size in read_boxes("load"):
        out = np.zeros(size, np.uint8)
        args = [case.map(memory.ctypes.data), out, out.size, case.at, case.total, *pad_coordinates(case)]
        check_copy(lambda: run_bulk(f"load{case.rank}", args, buffers=[buffer(memory)]), out, expected, case)  # noqa: B023


def test_stores_equal_those_of_the_h200() -> None:
    for case, memory, expected, _ in read_boxes("store"):
        memory[:] = 0
        tile = aligned_bytes(case.shared)
        tile.view(np.uint16)[:] = np.arange(1, tile.size // 2 + 1)
        args = [case.map(memory.ctypes.data), tile, tile.size, case.at, 1, *pad_coordinates(case)]
        check_copy(lambda: run_bulk(f"store{case.rank}", args, buffers=[buffer(memory)]), memory, expected, case)  # noqa: B023


def test_reductions_equal_those_of_the_h200() -> None:
    for form, *encoded, expected in RECORDED["reduce"]:
        before, after = (zlib.decompress(base64.b64decode(text)) for text in encoded)
        old = aligned_bytes(len(before))
        new = aligned_bytes(len(after))
        old[:] = np.frombuffer(before, np.uint8)
        new[:] = np.frombuffer(after, np.uint8)
        run_bulk("span_" + form.replace(".", "_"), [old, new, old.size, 0, 1])
        assert digest(old) == expected, form


def test_the_reductions_of_each_element_type_equal_those_of_the_h200() -> None:
    for host, operations in RECORDED["tensor_reduce"]:
        kind = ELEMENT_TYPES[host].code
        ours = [operation.name.lower() for operation in Operation if operation and reduces(operation, kind)]
        assert sorted(ours) == operations, ELEMENT_TYPES[host].name
