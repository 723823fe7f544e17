"""Test faults of asynchronous operations: the kernels for Hopper are correct, and each mutant has one fault."""

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
# Mode 0 is the unmodified kernel. The other modes listed here change a kernel without adding a fault.
CORRECT_MODES = [
    (name, mode) for name in KERNELS for mode in (0, *({"gemm": [4], "multicast": [6], "reduce": [7]}.get(name, [])))
]
RNG = np.random.default_rng(15)


@cache
def compiled(name: str) -> simt.Module:
    return simt.load(cuda.compile_kernel(HEAD + KERNELS[name], FILE, name, "compute_90a").ptx, FILE)


def zeros(*shape: int, dtype: Any = np.float32) -> np.ndarray[Any, Any]:
    words: np.ndarray[Any, Any] = aligned_bytes(int(np.prod(shape)) * np.dtype(dtype).itemsize).view(dtype)
    return words.reshape(shape)


def random_integers(*shape: int, dtype: Any = np.float32) -> np.ndarray[Any, Any]:
    """Return random small integers, so that every sum is exact."""
    values = zeros(*shape, dtype=dtype)
    values[:] = RNG.integers(-4, 5, shape)
    return values


def encode_matrix(array: np.ndarray[Any, Any], box: list[int], swizzle: int = 0) -> bytes:
    """Return the tensor map of a matrix."""
    rows, columns = array.shape
    return Case(7 if array.itemsize == 4 else 6, [columns, rows], box, [0, 0], swizzle).map(array.ctypes.data)


def chunks(matrix: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return a K-major operand with rows of 16 halves, without a swizzle. Eight rows of 16 bytes are contiguous."""
    rows = len(matrix)
    return matrix.reshape(rows // 8, 8, 2, 8).transpose(0, 2, 1, 3).reshape(-1)


def run(name: str, mode: int, reverse: bool) -> None:
    """Launch a kernel, and compare its result with numpy."""
    grid, threads, shared = 1, 64, 1024
    arrays: list[np.ndarray[Any, Any]]
    args: list[Any]
    if name == "ring":
        x = random_integers(10, 32)
        out = zeros(320)
        arrays = [x, out]
        args = [encode_matrix(x, [32, 2]), out]
        threads = 96
        expected = x.reshape(-1)
    elif name == "gemm":
        a = random_integers(128, 64, dtype=np.float16)
        b = random_integers(8, 64, dtype=np.float16)
        out = zeros(128, 8)
        maps = [encode_matrix(a, [16, 64], 1), encode_matrix(b, [16, 8], 1), encode_matrix(out, [8, 64])]
        arrays = [a, b, out]
        args = maps
        threads = 256
        shared = 8192 + 2048
        expected = a.astype(np.float32) @ b.astype(np.float32).T
    elif name == "multicast":
        x = random_integers(6, 32)
        out = zeros(2, 6, 32)
        arrays = [x, out]
        args = [encode_matrix(x, [32, 1]), out]
        grid = 2
        threads = 32
        expected = np.stack([x, x])
    elif name == "dsmem":
        x = random_integers(4, 32)
        out = zeros(32)
        arrays = [x, out]
        args = [x, out]
        grid = 4
        threads = 32
        expected = x.sum(axis=0)
    elif name == "reduce":
        x = random_integers(2, 64)
        out = zeros(64)
        first = zeros(1)
        arrays = [x, out, first]
        args = [x, out, first]
        expected = x.sum(axis=0)
    else:
        a = random_integers(64, 16)
        b = random_integers(8, 16)
        image = zeros(72 * 16, dtype=np.float16)
        out = zeros(64, 8, dtype=np.float16)
        image[:1024] = chunks(a)
        image[1024:] = chunks(b)
        arrays = [image, out]
        args = [image, encode_matrix(out, [8, 64])]
        threads = 128
        shared = 4096 + 2048
        expected = a @ b.T
    buffers = [simt.Buffer(f"x{n}", array.ctypes.data, array.nbytes, 1) for n, array in enumerate(arrays)]
    values = [value.ctypes.data if isinstance(value, np.ndarray) else value for value in args]
    compiled(name).launch(
        name, grid=(grid,), block=(threads,), shared=shared, args=[*values, mode], buffers=buffers, reverse=reverse
    )
    np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize(("name", "mode"), CORRECT_MODES)
def test_the_unmodified_kernel_is_correct(name: str, mode: int, reverse: bool) -> None:
    run(name, mode, reverse)


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: f"{mutant.kernel}-{mutant.mode}")
def test_the_fault_of_a_mutant_is_reported(mutant: Mutant) -> None:
    with pytest.raises((simt.Fault, simt.TimedOut)) as caught:
        run(mutant.kernel, mutant.mode, reverse=False)
    fault: Any = caught.value
    kind = fault.kind if isinstance(fault, simt.Fault) else None
    assert mutant.message in fault.message
    assert (kind, fault.line) == (mutant.kind, line_of(mutant.kernel, mutant.fault_mark))
    if mutant.other_mark:
        assert f"line {line_of(mutant.kernel, mutant.other_mark)}" in fault.message
