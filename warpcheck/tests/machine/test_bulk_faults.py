"""Faults of bulk and tensor copies: rules that they break, and copies that no thread waits for."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from machine.boxes import Case, Words
from machine.bulk_kernels import IN_FLIGHT, SUM, TWO, aligned_bytes, compiled, line_of, run_bulk
from machine.bulk_loads import five, iota, load, tensor
from warpcheck import simt
from warpcheck.frontends import cuda
from warpcheck.simt import Fault, FaultKind
from warpcheck.tensor_map import TensorMap

KERNELS = Path(__file__).with_name("hopper_kernels.cu")
F16, F32 = np.float16, np.float32
ORDERS = (0, 1, 1_000_003)

PLAIN = Case(6, [64, 8], [16, 4], [0, 0])
TIGHT = TensorMap.decode(replace(PLAIN, swizzle=1).map(4096))


def broken(**options: Any) -> bytes:
    return replace(TIGHT, **options).encode()


LOADS: dict[str, dict[str, Any]] = {
    "that is not a multiple of 128": {"case": replace(PLAIN, at=64)},
    "names a tensor map that is none": {"descriptor": bytes(128)},
    "of another number of axes": {"rank": 3},
    "innermost coordinate is not a multiple of 16 bytes": {"case": replace(PLAIN, coords=[4, 0])},
    "interleaved": {"descriptor": broken(interleave=1)},
    "whose rows are not a multiple of 16 bytes": {"descriptor": broken(box=(9, 4))},
    "longer than the span of their swizzle": {"descriptor": broken(box=(32, 4))},
    "does not begin at a multiple of 16 bytes": {"descriptor": broken(address=4104)},
}


@pytest.mark.parametrize("rule", LOADS)
def test_a_tensor_copy_breaks_a_rule(rule: str) -> None:
    with pytest.raises(Fault, match=rule) as caught:
        load(**{"case": PLAIN} | LOADS[rule])
    assert caught.value.kind == FaultKind.BAD_COPY
    assert caught.value.thread == (0, 0, 0)
    assert caught.value.line > 20


def test_a_store_has_no_negative_coordinate() -> None:
    memory, tile = iota(PLAIN), aligned_bytes(1024)
    args = [PLAIN.map(memory.ctypes.data), tile, 1024, 0, 1, 0, -1, 0, 0, 0]
    with pytest.raises(Fault, match="at a negative coordinate"):
        run_bulk("store2", args, buffers=[tensor(memory)])


def test_a_map_that_is_larger_than_its_tensor() -> None:
    memory, out = iota(PLAIN), np.zeros(1024, np.uint8)
    larger = replace(TensorMap.decode(PLAIN.map(memory.ctypes.data)), extents=(64, 9))
    with pytest.raises(Fault, match=r"past the end of x \(1024 bytes\)") as caught:
        run_bulk("load2", [larger.encode(), out, 1024, 0, 128, 0, 5, 0, 0, 0], buffers=[tensor(memory)])
    assert caught.value.kind == FaultKind.OUT_OF_BOUNDS


def test_a_tensor_that_nothing_has_written() -> None:
    memory, out = iota(PLAIN), np.zeros(1024, np.uint8)
    args = [PLAIN.map(memory.ctypes.data), out, 1024, 0, 128, *five(PLAIN)]
    with pytest.raises(Fault, match="which nothing has written") as caught:
        run_bulk("load2", args, buffers=[tensor(memory, initialised=False)])
    assert caught.value.kind == FaultKind.UNINITIALIZED


FETCHES = {
    "a number of bytes that is not a multiple of 16": (0, 24, 0, 0, 1),
    "address in shared memory that is not a multiple of 16": (0, 32, 8, 0, 1),
    "address in global memory that is not a multiple of 16": (8, 32, 0, 0, 1),
    "mbarrier whose address is not a multiple of 8": (0, 32, 0, 4, 0),
    "names an mbarrier that is none": (0, 32, 0, 0, 0),
}


@pytest.mark.parametrize("rule", FETCHES)
def test_a_span_breaks_a_rule(rule: str) -> None:
    source, (first, *others) = aligned_bytes(256), FETCHES[rule]
    with pytest.raises(Fault, match=rule) as caught:
        run_bulk("fetch", [np.zeros(256, np.uint8), source[first:], *others])
    assert caught.value.kind == FaultKind.BAD_COPY


def flight(mode: int, source: str = IN_FLIGHT, name: str = "flight", **options: Any) -> Words:
    out, given = aligned_bytes(256).view(F32), aligned_bytes(256).view(F32)
    given[:] = np.arange(64)
    buffers = [simt.Buffer(n, a.ctypes.data, 256, 4, dtype="float32") for n, a in (("out", out), ("in", given))]
    args = [out.ctypes.data, given.ctypes.data, mode]
    compiled(source, name).launch(name, grid=(1,), block=(64,), shared=256, args=args, buffers=buffers, **options)
    return out


def test_copies_that_are_awaited() -> None:
    for mode in (0, 10, 14):
        for order in ORDERS:
            np.testing.assert_array_equal(flight(mode, reverse=order), np.arange(64))


def two(waits: int, reads: int, order: int) -> Words:
    """Return what is read of one of two copies, after the wait for the first or the second."""
    out, source = aligned_bytes(256).view(F32), aligned_bytes(512).view(F32)
    source[:] = np.arange(128)
    buffers = [simt.Buffer(n, a.ctypes.data, a.nbytes, 4, dtype="float32") for n, a in (("out", out), ("in", source))]
    args = [out.ctypes.data, source.ctypes.data, waits, reads]
    compiled(TWO, "two").launch("two", grid=(1,), block=(64,), shared=512, args=args, buffers=buffers, reverse=order)
    return out


@pytest.mark.parametrize("order", [0, 1])
@pytest.mark.parametrize("waits", [0, 1])
def test_the_wait_for_one_copy_is_none_for_the_other(waits: int, order: int) -> None:
    np.testing.assert_array_equal(two(waits, waits, order), np.arange(64) + 64 * waits)
    with pytest.raises(Fault, match=r"reads 4 bytes.* may still be writing: wait for its mbarrier") as caught:
        two(waits, 1 - waits, order)
    assert caught.value.kind == FaultKind.UNINITIALIZED


def test_a_stage_that_is_refilled_while_a_wgmma_reads_it() -> None:
    source = KERNELS.read_text()
    waits, frees = "wgmma.wait_group.sync.aligned 0;", "            ptx::mbarrier_arrive(&empty[s]);\n"
    line = f'            asm volatile("{waits}" ::: "memory");\n'
    assert line + frees in source
    binary = cuda.compile_kernel(source.replace(line + frees, frees + line), "gemm.cu", "gemm", "compute_90a")
    a, b, c = (aligned_bytes(2 * 64 * 384).view(F16) for _ in range(3))
    half = Case(6, [384, 64], [64, 64], [0, 0], 3)
    buffers = [
        simt.Buffer(n, x.ctypes.data, x.nbytes, 2, dtype="float16") for n, x in zip("abc", (a, b, c), strict=True)
    ]
    args: list[Any] = [half.map(a.ctypes.data), half.map(b.ctypes.data), c.ctypes.data, 64, 384]
    module = simt.load(binary.ptx, "gemm.cu")
    with pytest.raises(Fault, match=r"copies to .*which the wgmma in line \d+ may still read"):
        module.launch(binary.mangled, grid=(1,), block=(160,), shared=65536, args=args, buffers=buffers)


FLIGHTS = {
    1: (FaultKind.RACE, "written meanwhile", "writes 4 bytes", "// lands", "still be writing: wait for its mbarrier"),
    2: (FaultKind.UNINITIALIZED, "not awaited", "reads 4 bytes", "// lands", "still be writing: wait for its mbarrier"),
    3: (FaultKind.RACE, "refilled", "copies to", "not awaited", "that thread arrives behind line"),
    4: (FaultKind.RACE, "lands", "copies to", "// lands", "still be writing: wait for its mbarrier"),
    15: (FaultKind.UNFENCED, "reads what others", "copies", "values[t] = in[t]", "no fence.proxy.async"),
    11: (FaultKind.RACE, "reads what others", "copies from", "values[t] = in[t]", "that thread arrives behind line"),
    12: (FaultKind.RACE, "overwrites", "writes 4 bytes", "reads what others", r"still be reading: .*wait_group\.read"),
    13: (
        FaultKind.UNINITIALIZED,
        "not complete",
        "reads 4 bytes",
        "reads what others",
        r"still be writing: .*wait_group\)",
    ),
}


@pytest.mark.parametrize("mode", FLIGHTS)
def test_a_copy_that_is_not_awaited(mode: int) -> None:
    kind, here, does, there, advice = FLIGHTS[mode]
    with pytest.raises(Fault, match=f"{does}.*line {line_of(there)}.*{advice}") as caught:
        flight(mode)
    assert (caught.value.kind, caught.value.line) == (kind, line_of(f"// {here}"))


@pytest.mark.parametrize("mode", FLIGHTS)
def test_it_is_found_in_the_opposite_order_too(mode: int) -> None:
    """The other warp may come first, and then the line may be its own."""
    kind, here, _, there, _ = FLIGHTS[mode]
    with pytest.raises(Fault) as caught:
        flight(mode, reverse=1)
    assert caught.value.kind == kind
    assert caught.value.line in (line_of(f"// {here}"), line_of(there))


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("mode", [0, 3, 4, 5, 6])
def test_a_reduction_that_is_awaited(mode: int, order: int) -> None:
    """Its source may be written to after wait_group.read, its result is there after wait_group; others may add too."""
    expected = np.arange(64, dtype=F32) * (2 if mode == 5 else 1)
    expected[5] += mode == 3
    expected[7] += 100 * (mode == 4)
    np.testing.assert_array_equal(flight(mode, SUM, "sum", reverse=order), expected)


@pytest.mark.parametrize("order", ORDERS)
def test_a_result_is_not_there_when_the_source_has_been_read(order: int) -> None:
    line = line_of("// adds", SUM)
    told = rf"reads 4 bytes at out\[6\].* line {line} may still be writing: .*\(cp.async.bulk.wait_group\)"
    with pytest.raises(Fault, match=told) as caught:
        flight(2, SUM, "sum", reverse=order)
    assert (caught.value.kind, caught.value.line) == (FaultKind.UNINITIALIZED, line_of("// not complete", SUM))


@pytest.mark.parametrize("order", [0, 1])
def test_the_source_of_a_reduction_is_read_until_the_wait(order: int) -> None:
    with pytest.raises(Fault, match=r"may still be reading: .*wait_group\.read") as caught:
        flight(1, SUM, "sum", reverse=order)
    assert (caught.value.kind, caught.value.line) == (FaultKind.RACE, line_of("// overwrites", SUM))
