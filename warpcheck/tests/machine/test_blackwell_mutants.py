"""Test faults of tensor memory and tcgen05.mma: the kernels are correct, and each mutant has one fault."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest

from machine.blackwell_mutants import MUTANTS, line_of
from machine.blackwell_sources import HEAD, KERNELS
from machine.hopper_mutants import Mutant
from machine.launching import aligned, buffer
from warpcheck import simt
from warpcheck.frontends import cuda
from warpcheck.tensor_map import encode_tiled

FILE = "mutant.cu"
RNG = np.random.default_rng(100)


@cache
def compiled(name: str) -> simt.Module:
    return simt.load(cuda.compile_kernel(HEAD + KERNELS[name], FILE, name, "compute_100a").ptx, FILE)


def random_halves(*shape: int) -> np.ndarray[Any, Any]:
    """Return random small integers, so that every sum is exact."""
    values = aligned(shape, np.float16)
    values[:] = RNG.integers(-4, 5, shape)
    return values


def run_pair(mode: int, reverse: int, rows: int = 256, cluster: int = 2) -> None:
    """Launch the kernel for pairs of blocks, and compare its result with numpy."""
    a = random_halves(rows, 16)
    b = random_halves(32, 16)
    c = aligned((rows, 32))
    compiled("pair").launch(
        "pair",
        grid=(2,),
        block=(128,),
        cluster=(cluster,),
        args=[a.ctypes.data, b.ctypes.data, c.ctypes.data, rows, mode],
        buffers=[buffer("a", a), buffer("b", b), buffer("c", c)],
        reverse=reverse,
    )
    np.testing.assert_array_equal(c, a.astype(np.float32) @ b.astype(np.float32).T)


E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6], np.float32)


def run_scaled(mode: int, reverse: int) -> None:
    """Launch the product with scale factors of 1, 2, and 3, and compare its result with numpy."""
    codes = [RNG.integers(0, 16, (rows, 128)) for rows in (128, 16)]
    numbers = [np.concatenate([E2M1, -E2M1])[code] for code in codes]
    pairs = [aligned((rows, 64), np.uint8) for rows in (128, 16)]
    factors = [aligned((rows, 8), np.uint8) for rows in (128, 16)]
    for operand, code in enumerate(codes):
        pairs[operand][:] = code[:, ::2] | code[:, 1::2] << 4
        exponents = RNG.integers(0, 3, factors[operand].shape)
        factors[operand][:] = np.array([0x38, 0x40, 0x44])[exponents]
        numbers[operand] *= np.repeat(1 + exponents, 16, 1)
    c = aligned((128, 16))
    arrays = [*pairs, *factors, c]
    compiled("scaled").launch(
        "scaled",
        grid=(2,),
        block=(160,),
        args=[*(array.ctypes.data for array in arrays), mode],
        buffers=[buffer(f"x{number}", array) for number, array in enumerate(arrays)],
        reverse=reverse,
    )
    np.testing.assert_array_equal(c, numbers[0] @ numbers[1].T)


def run_slide(mode: int, reverse: int) -> None:
    """Launch the convolution along a line, and compare its result with numpy."""
    x = random_halves(4 * 34, 16)
    b = random_halves(3, 16, 16)
    c = aligned((128, 16))
    compiled("slide").launch(
        "slide",
        grid=(1,),
        block=(128,),
        args=[x.ctypes.data, b.ctypes.data, c.ctypes.data, mode],
        buffers=[buffer("x", x), buffer("b", b), buffer("c", c)],
        reverse=reverse,
    )
    first = (34 * np.arange(4)[:, None] + np.arange(32)).ravel()
    taps = [x[first + tap].astype(np.float32) @ b[tap].astype(np.float32).T for tap in range(3)]
    np.testing.assert_array_equal(c, np.sum(taps, 0))


def run_slide_pair(mode: int, reverse: int) -> None:
    """Launch the kernel that shifts the rows of two blocks, and compare its result with numpy."""
    x = aligned((8, 32, 8), np.uint32)
    y = aligned((8, 32, 8), np.uint32)
    x[:] = RNG.integers(0, 1 << 32, x.shape)
    compiled("slide_pair").launch(
        "slide_pair",
        grid=(2,),
        block=(128,),
        cluster=(2,),
        args=[x.ctypes.data, y.ctypes.data, mode],
        buffers=[buffer("x", x), buffer("y", y)],
        reverse=reverse,
    )
    np.testing.assert_array_equal(y[:, :31], x[:, 1:])
    np.testing.assert_array_equal(y[:, 31], x[:, 31])


def run_reuse(mode: int, reverse: int) -> None:
    """Launch the kernel that stages its result in the memory of an operand, and compare its result with numpy."""
    a = random_halves(128, 16)
    b = random_halves(16, 16)
    c = aligned((128, 16))
    tiles = [aligned(matrix.size, np.float16) for matrix in (a, b)]
    for tile, matrix in zip(tiles, (a, b), strict=True):
        tile[:] = matrix.reshape(-1, 2, 8).transpose(1, 0, 2).ravel()
    compiled("reuse").launch(
        "reuse",
        grid=(1,),
        block=(192,),
        args=[*(tile.ctypes.data for tile in tiles), c.ctypes.data, mode],
        buffers=[buffer("a", tiles[0]), buffer("b", tiles[1]), buffer("c", c)],
        reverse=reverse,
    )
    np.testing.assert_array_equal(c, a.astype(np.float32) @ b.astype(np.float32).T)


def run_loads(mode: int, reverse: int) -> None:
    """Launch the kernel whose pairs of blocks load, and compare the stores of the even block with the tensor."""
    x = aligned((64, 8), np.uint32)
    c = aligned(256, np.uint32)
    x[:] = np.arange(512).reshape(64, 8)
    compiled("loads").launch(
        "loads",
        grid=(2,),
        block=(64,),
        cluster=(2,),
        args=[encode_tiled(2, x.ctypes.data, (8, 64), [32], [8, 32], [1, 1]), c.ctypes.data, mode],
        buffers=[buffer("x", x), buffer("c", c)],
        reverse=reverse,
    )
    np.testing.assert_array_equal(c, x.reshape(-1)[:256])


def run(name: str, mode: int, reverse: int) -> None:
    """Launch a kernel, and compare its result with numpy."""
    if name in SPECIAL_RUNS:
        SPECIAL_RUNS[name](mode, reverse)
        return
    depth = 32 if name == "gemm" else 16
    a = random_halves(128, depth)
    b = random_halves(16, depth)
    c = aligned((128, 16))
    compiled(name).launch(
        name,
        grid=(2,),
        block=(160 if name == "gemm" else 128,),
        args=[a.ctypes.data, b.ctypes.data, c.ctypes.data, mode],
        buffers=[buffer("a", a), buffer("b", b), buffer("c", c)],
        reverse=reverse,
    )
    factor = 1 if name == "gemm" else 2
    np.testing.assert_array_equal(c, factor * a.astype(np.float32) @ b.astype(np.float32).T)


SPECIAL_RUNS: dict[str, Callable[[int, int], None]] = {
    "slide": run_slide,
    "slide_pair": run_slide_pair,
    "reuse": run_reuse,
    "pair": run_pair,
    "scaled": run_scaled,
    "loads": run_loads,
}


@pytest.mark.parametrize("reverse", [0, 1, 1_000_003])
@pytest.mark.parametrize("name", KERNELS)
def test_the_unmodified_kernel_is_correct(name: str, reverse: int) -> None:
    run(name, 0, reverse)


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: f"{mutant.kernel}-{mutant.mode}")
def test_the_fault_of_a_mutant_is_reported(mutant: Mutant) -> None:
    with pytest.raises((simt.Fault, simt.TimedOut)) as caught:
        run(mutant.kernel, mutant.mode, 0)
    fault: Any = caught.value
    kind = fault.kind if isinstance(fault, simt.Fault) else None
    assert mutant.message in fault.message
    assert (kind, fault.line) == (mutant.kind, line_of(mutant.kernel, mutant.fault_mark))
    if mutant.other_mark:
        assert f"line {line_of(mutant.kernel, mutant.other_mark)}" in fault.message


def test_a_missing_barrier_is_a_race_if_the_stores_run_first() -> None:
    with pytest.raises(simt.Fault, match=r"with no barrier between it and the tcgen05\.st of thread") as caught:
        run("chain", 3, 1)
    assert caught.value.kind is simt.FaultKind.RACE
    assert caught.value.line == line_of("chain", "multiplies")
    assert caught.value.conflict_line == line_of("chain", "stores")


@pytest.mark.parametrize("reverse", [0, 1, 1_000_003])
def test_a_pair_with_64_rows_each_stores_half_of_the_columns_in_the_upper_lanes(reverse: int) -> None:
    run_pair(0, reverse, rows=128)


def test_cta_group_2_needs_a_cluster_of_two_blocks() -> None:
    with pytest.raises(simt.Fault, match="in a block that is none of a pair") as caught:
        run_pair(0, 0, cluster=1)
    assert caught.value.kind is simt.FaultKind.TENSOR_MEMORY


RELAXED = HEAD.replace("mbarrier.try_wait.parity.shared", "mbarrier.try_wait.parity.relaxed.cluster.shared")


@cache
def compiled_relaxed(source: str) -> simt.Module:
    return simt.load(cuda.compile_kernel(RELAXED + source, FILE, "chain", "compute_100a").ptx, FILE)


def run_relaxed(source: str, reverse: int) -> None:
    """Launch the chain of products with relaxed waits for its commits, and compare its result with numpy."""
    a = random_halves(128, 16)
    b = random_halves(16, 16)
    c = aligned((128, 16))
    compiled_relaxed(source).launch(
        "chain",
        grid=(1,),
        block=(128,),
        args=[a.ctypes.data, b.ctypes.data, c.ctypes.data, 0],
        buffers=[buffer("a", a), buffer("b", b), buffer("c", c)],
        reverse=reverse,
    )
    np.testing.assert_array_equal(c, 2 * a.astype(np.float32) @ b.astype(np.float32).T)


@pytest.mark.parametrize("reverse", [0, 1, 1_000_003])
def test_a_relaxed_wait_orders_tensor_memory(reverse: int) -> None:
    """The canonical patterns of the PTX ISA manual, 9.7.16.6.4, wait with relaxed semantics."""
    assert RELAXED != HEAD
    run_relaxed(KERNELS["chain"], reverse)


def test_a_relaxed_wait_needs_a_fence_after_it() -> None:
    source = KERNELS["chain"].replace("WAIT(done, pass);\n        AFTER();", "WAIT(done, pass);")
    assert source != KERNELS["chain"]
    with pytest.raises(simt.Fault, match=r"tcgen05\.fence::after_thread_sync is missing") as caught:
        run_relaxed(source, 0)
    assert caught.value.kind is simt.FaultKind.UNFENCED
