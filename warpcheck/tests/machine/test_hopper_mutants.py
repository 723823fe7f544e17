"""Faults that asynchrony hides: correct kernels for Hopper, and one fault in each of their mutants."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest

from machine.boxes import Case
from machine.bulk_kernels import aligned_bytes
from machine.hopper_mutants import MUTANTS, Mutant, line_of
from machine.hopper_sources import HEAD, KERNELS
from warpcheck import simt
from warpcheck.frontends import cuda

FILE = "mutant.cu"
RIGHT = [
    (name, mode) for name in KERNELS for mode in (0, *({"gemm": [4], "multicast": [6], "reduce": [7]}.get(name, [])))
]
RNG = np.random.default_rng(15)


@cache
def compiled(name: str) -> simt.Module:
    return simt.load(cuda.compile_kernel(HEAD + KERNELS[name], FILE, name, "compute_90a").ptx, FILE)


def zeros(*shape: int, dtype: Any = np.float32) -> np.ndarray[Any, Any]:
    words: np.ndarray[Any, Any] = aligned_bytes(int(np.prod(shape)) * np.dtype(dtype).itemsize).view(dtype)
    return words.reshape(shape)


def drawn(*shape: int, dtype: Any = np.float32) -> np.ndarray[Any, Any]:
    """Small integers, so that every sum is exact."""
    values = zeros(*shape, dtype=dtype)
    values[:] = RNG.integers(-4, 5, shape)
    return values


def of_tensor(array: np.ndarray[Any, Any], box: list[int], swizzle: int = 0) -> bytes:
    """The tensor map of a matrix."""
    rows, columns = array.shape
    return Case(7 if array.itemsize == 4 else 6, [columns, rows], box, [0, 0], swizzle).map(array.ctypes.data)


def chunks(matrix: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """A K-major operand of 16 halves a row without swizzle: 8 rows of 16 bytes lie together."""
    rows = len(matrix)
    return matrix.reshape(rows // 8, 8, 2, 8).transpose(0, 2, 1, 3).reshape(-1)


def run(name: str, mode: int, reverse: bool) -> None:
    """Launch a kernel, and hold what it computes against numpy."""
    grid, threads, shared = 1, 64, 1024
    arrays: list[np.ndarray[Any, Any]]
    args: list[Any]
    if name == "ring":
        x, out = drawn(10, 32), zeros(320)
        arrays, args, threads, expected = [x, out], [of_tensor(x, [32, 2]), out], 96, x.reshape(-1)
    elif name == "gemm":
        a, b, out = drawn(128, 64, dtype=np.float16), drawn(8, 64, dtype=np.float16), zeros(128, 8)
        maps = [of_tensor(a, [16, 64], 1), of_tensor(b, [16, 8], 1), of_tensor(out, [8, 64])]
        arrays, args, threads, shared = [a, b, out], maps, 256, 8192 + 2048
        expected = a.astype(np.float32) @ b.astype(np.float32).T
    elif name == "multicast":
        x, out = drawn(6, 32), zeros(2, 6, 32)
        arrays, args, grid, threads = [x, out], [of_tensor(x, [32, 1]), out], 2, 32
        expected = np.stack([x, x])
    elif name == "dsmem":
        x, out = drawn(4, 32), zeros(32)
        arrays, args, grid, threads, expected = [x, out], [x, out], 4, 32, x.sum(axis=0)
    elif name == "reduce":
        x, out, first = drawn(2, 64), zeros(64), zeros(1)
        arrays, args, expected = [x, out, first], [x, out, first], x.sum(axis=0)
    else:
        a, b, image, out = (
            drawn(64, 16),
            drawn(8, 16),
            zeros(72 * 16, dtype=np.float16),
            zeros(64, 8, dtype=np.float16),
        )
        image[:1024], image[1024:] = chunks(a), chunks(b)
        arrays, args, threads, shared = [image, out], [image, of_tensor(out, [8, 64])], 128, 4096 + 2048
        expected = a @ b.T
    buffers = [simt.Buffer(f"x{n}", array.ctypes.data, array.nbytes, 1) for n, array in enumerate(arrays)]
    values = [value.ctypes.data if isinstance(value, np.ndarray) else value for value in args]
    compiled(name).launch(
        name, grid=(grid,), block=(threads,), shared=shared, args=[*values, mode], buffers=buffers, reverse=reverse
    )
    np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize(("name", "mode"), RIGHT)
def test_a_right_kernel(name: str, mode: int, reverse: bool) -> None:
    run(name, mode, reverse)


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: f"{mutant.kernel}-{mutant.mode}")
def test_a_mutant_is_found(mutant: Mutant) -> None:
    with pytest.raises((simt.Fault, simt.TimedOut)) as caught:
        run(mutant.kernel, mutant.mode, reverse=False)
    found: Any = caught.value
    kind = found.kind if isinstance(found, simt.Fault) else None
    assert mutant.says in found.message
    assert (kind, found.line) == (mutant.kind, line_of(mutant.kernel, mutant.here))
    if mutant.there:
        assert f"line {line_of(mutant.kernel, mutant.there)}" in found.message
