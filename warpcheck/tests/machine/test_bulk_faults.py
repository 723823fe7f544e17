"""Test faults of bulk and tensor copies: violated rules, and copies that no thread waits for."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from machine.boxes import Case, Words
from machine.bulk_kernels import IN_FLIGHT, SUM, TWO, aligned_bytes, compiled, line_of, run_bulk
from machine.bulk_loads import iota, load, pad_coordinates, tensor
from warpcheck import simt
from warpcheck.frontends import cuda
from warpcheck.simt import Fault, FaultKind
from warpcheck.tensor_map import TensorMap

KERNELS = Path(__file__).with_name("hopper_kernels.cu")
F16 = np.float16
F32 = np.float32
ORDERS = (0, 1, 1_000_003)

PLAIN = Case(6, [64, 8], [16, 4], [0, 0])
TIGHT = TensorMap.decode(replace(PLAIN, swizzle=1).map(4096))


def encode_variant(**options: Any) -> bytes:
    """Encode a tensor map that fits PLAIN tightly, with some fields replaced."""
    return replace(TIGHT, **options).encode()


LOADS: dict[str, dict[str, Any]] = {
    "that is not a multiple of 128": {"case": replace(PLAIN, at=64)},
    "names a tensor map that is none": {"descriptor": bytes(128)},
    "of another number of axes": {"rank": 3},
    "innermost coordinate is not a multiple of 16 bytes": {"case": replace(PLAIN, coords=[4, 0])},
    "interleaved": {"descriptor": encode_variant(interleave=1)},
    "whose rows are not a multiple of 16 bytes": {"descriptor": encode_variant(box=(9, 4))},
    "longer than the span of their swizzle": {"descriptor": encode_variant(box=(32, 4))},
    "does not begin at a multiple of 16 bytes": {"descriptor": encode_variant(address=4104)},
}


@pytest.mark.parametrize("rule", LOADS)
def test_a_tensor_copy_that_violates_a_rule_is_a_fault(rule: str) -> None:
    with pytest.raises(Fault, match=rule) as caught:
        load(**{"case": PLAIN} | LOADS[rule])
    assert caught.value.kind == FaultKind.BAD_COPY
    assert caught.value.thread == (0, 0, 0)
    assert caught.value.line > 20


def test_a_store_at_a_negative_coordinate_is_a_fault() -> None:
    memory = iota(PLAIN)
    tile = aligned_bytes(1024)
    args = [PLAIN.map(memory.ctypes.data), tile, 1024, 0, 1, 0, -1, 0, 0, 0]
    with pytest.raises(Fault, match="at a negative coordinate"):
        run_bulk("store2", args, buffers=[tensor(memory)])


def test_a_map_larger_than_its_tensor_is_a_fault() -> None:
    memory = iota(PLAIN)
    out = np.zeros(1024, np.uint8)
    larger = replace(TensorMap.decode(PLAIN.map(memory.ctypes.data)), extents=(64, 9))
    with pytest.raises(Fault, match=r"past the end of x \(1024 bytes\)") as caught:
        run_bulk("load2", [larger.encode(), out, 1024, 0, 128, 0, 5, 0, 0, 0], buffers=[tensor(memory)])
    assert caught.value.kind == FaultKind.OUT_OF_BOUNDS


def test_loading_an_unwritten_tensor_is_a_fault() -> None:
    memory = iota(PLAIN)
    out = np.zeros(1024, np.uint8)
    args = [PLAIN.map(memory.ctypes.data), out, 1024, 0, 128, *pad_coordinates(PLAIN)]
    with pytest.raises(Fault, match="which nothing has written") as caught:
        run_bulk("load2", args, buffers=[tensor(memory, initialised=False)])
    assert caught.value.kind == FaultKind.UNINITIALIZED


# The offset in global memory, the bytes, the offsets of the copy and of its mbarrier, and whether to initialize that.
FETCHES = {
    "a number of bytes that is not a multiple of 16": (0, 24, 0, 0, 1),
    "address in shared memory that is not a multiple of 16": (0, 32, 8, 0, 1),
    "address in global memory that is not a multiple of 16": (8, 32, 0, 0, 1),
    "mbarrier whose address is not a multiple of 8": (0, 32, 0, 4, 0),
    "names an mbarrier that is none": (0, 32, 0, 0, 0),
}


@pytest.mark.parametrize("rule", FETCHES)
def test_a_bulk_copy_that_violates_a_rule_is_a_fault(rule: str) -> None:
    source = aligned_bytes(256)
    offset, *other_args = FETCHES[rule]
    with pytest.raises(Fault, match=rule) as caught:
        run_bulk("fetch", [np.zeros(256, np.uint8), source[offset:], *other_args])
    assert caught.value.kind == FaultKind.BAD_COPY


def flight(mode: int, source: str = IN_FLIGHT, name: str = "flight", **options: Any) -> Words:
    """Run a mode of the kernel that copies, and return its output."""
    out = aligned_bytes(256).view(F32)
    values = aligned_bytes(256).view(F32)
    values[:] = np.arange(64)
    buffers = [simt.Buffer(n, a.ctypes.data, 256, 4, dtype="float32") for n, a in (("out", out), ("in", values))]
    args = [out.ctypes.data, values.ctypes.data, mode]
    compiled(source, name).launch(name, grid=(1,), block=(64,), shared=256, args=args, buffers=buffers, **options)
    return out


def test_copies_with_a_wait_have_no_fault() -> None:
    for mode in (0, 10, 14):
        for order in ORDERS:
            np.testing.assert_array_equal(flight(mode, reverse=order), np.arange(64))


def copy_twice(waits: int, reads: int, order: int) -> Words:
    """Wait for the first or second of two copies, and return what is read of one of them."""
    out = aligned_bytes(256).view(F32)
    source = aligned_bytes(512).view(F32)
    source[:] = np.arange(128)
    buffers = [simt.Buffer(n, a.ctypes.data, a.nbytes, 4, dtype="float32") for n, a in (("out", out), ("in", source))]
    args = [out.ctypes.data, source.ctypes.data, waits, reads]
    compiled(TWO, "two").launch("two", grid=(1,), block=(64,), shared=512, args=args, buffers=buffers, reverse=order)
    return out


@pytest.mark.parametrize("order", [0, 1])
@pytest.mark.parametrize("waits", [0, 1])
def test_waiting_for_one_copy_does_not_order_the_other(waits: int, order: int) -> None:
    np.testing.assert_array_equal(copy_twice(waits, waits, order), np.arange(64) + 64 * waits)
    with pytest.raises(Fault, match=r"reads 4 bytes.* may still be writing: wait for its mbarrier") as caught:
        copy_twice(waits, 1 - waits, order)
    assert caught.value.kind == FaultKind.UNINITIALIZED


def test_refilling_a_stage_while_a_wgmma_reads_it_is_a_fault() -> None:
    source = KERNELS.read_text()
    wait = "wgmma.wait_group.sync.aligned 0;"
    release = "            ptx::mbarrier_arrive(&empty[s]);\n"
    wait_line = f'            asm volatile("{wait}" ::: "memory");\n'
    assert wait_line + release in source
    binary = cuda.compile_kernel(
        source.replace(wait_line + release, release + wait_line), "gemm.cu", "gemm", "compute_90a"
    )
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
def test_a_copy_without_a_wait_is_a_fault(mode: int) -> None:
    kind, fault_mark, action, copy_text, advice = FLIGHTS[mode]
    with pytest.raises(Fault, match=f"{action}.*line {line_of(copy_text)}.*{advice}") as caught:
        flight(mode)
    assert (caught.value.kind, caught.value.line) == (kind, line_of(f"// {fault_mark}"))


@pytest.mark.parametrize("mode", FLIGHTS)
def test_a_copy_without_a_wait_is_a_fault_in_reverse_order_too(mode: int) -> None:
    """The other warp may run first. The fault may then be at the copy itself."""
    kind, fault_mark, _, copy_text, _ = FLIGHTS[mode]
    with pytest.raises(Fault) as caught:
        flight(mode, reverse=1)
    assert caught.value.kind == kind
    assert caught.value.line in (line_of(f"// {fault_mark}"), line_of(copy_text))


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("mode", [0, 3, 4, 5, 6])
def test_a_reduction_with_a_wait_has_no_fault(mode: int, order: int) -> None:
    """The source may be overwritten after wait_group.read. The result is complete after wait_group."""
    expected = np.arange(64, dtype=F32) * (2 if mode == 5 else 1)
    expected[5] += mode == 3
    expected[7] += 100 * (mode == 4)
    np.testing.assert_array_equal(flight(mode, SUM, "sum", reverse=order), expected)


@pytest.mark.parametrize("order", ORDERS)
def test_wait_group_read_does_not_complete_the_result(order: int) -> None:
    line = line_of("// adds", SUM)
    message = rf"reads 4 bytes at out\[6\].* line {line} may still be writing: .*\(cp.async.bulk.wait_group\)"
    with pytest.raises(Fault, match=message) as caught:
        flight(2, SUM, "sum", reverse=order)
    assert (caught.value.kind, caught.value.line) == (FaultKind.UNINITIALIZED, line_of("// not complete", SUM))


@pytest.mark.parametrize("order", [0, 1])
def test_the_source_of_a_reduction_is_read_until_the_wait(order: int) -> None:
    with pytest.raises(Fault, match=r"may still be reading: .*wait_group\.read") as caught:
        flight(1, SUM, "sum", reverse=order)
    assert (caught.value.kind, caught.value.line) == (FaultKind.RACE, line_of("// overwrites", SUM))
