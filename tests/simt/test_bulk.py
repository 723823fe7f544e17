"""Bulk and tensor copies on the PTX machine, against a plain model; and what is wrong with them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from kernelpath import simt
from kernelpath.simt import Fault, FaultKind
from kernelpath.simt.tensor_map import TensorMap
from tests.simt.bulk_kernels import (
    CLUSTER,
    IN_FLIGHT,
    MAPS,
    Case,
    Words,
    aligned_bytes,
    compiled,
    line_of,
    loaded,
    run_bulk,
    stored,
)

CASES = [
    *(Case(7, [64], [32], [x]) for x in (0, 5, -3, 40, 64, -40, 2_000_000_000)),
    *(Case(6, [40, 12], [16, 4], [x, y]) for x, y in ((8, 3), (-5, -2), (30, 10), (100, 100))),
    *(Case(2, [12, 6, 5], [8, 3, 2], x) for x in ([-2, 4, 4], [10, -1, -1], [4, 2, 1])),
    Case(1, [16, 5, 4, 3], [8, 2, 3, 2], [-3, 4, -1, -1]),
    Case(0, [32, 4, 3, 3, 2], [16, 2, 2, 2, 2], [20, 3, -1, 2, 1]),
    *(Case(6, [64, 40], [8 << mode, 20], [3, -2], mode, at=at) for mode in (1, 2, 3) for at in (0, 384)),
    Case(6, [64, 40], [16, 20], [0, 0], 3),
    Case(7, [20, 4, 4], [16, 3, 3], [-4, 2, -1], 2),
    Case(6, [16, 4], [8, 3], [13, 2], fill=1),
    Case(8, [16, 4], [2, 3], [15, -1], fill=1),
    Case(7, [16, 4], [16, 3], [-3, -1], 2, fill=1),
    Case(6, [64, 16], [16, 7], [1, -1], steps=[1, 3]),
]


def iota(case: Case) -> Words:
    memory = aligned_bytes(case.nbytes)
    memory.view(f"u{case.size}")[:] = np.arange(1, case.nbytes // case.size + 1)
    return memory


def five(case: Case) -> list[int]:
    return (case.coords + [0] * 5)[:5]


def tensor(memory: Words, **options: Any) -> simt.Buffer:
    return simt.Buffer("x", memory.ctypes.data, memory.nbytes, 1, dtype="bytes", **options)


def load(
    case: Case, descriptor: bytes | None = None, rank: int = 0, **options: Any
) -> tuple[simt.Launch, Words, Words]:
    memory, out = iota(case), np.zeros(case.shared, np.uint8)
    descriptor = case.map(memory.ctypes.data) if descriptor is None else descriptor
    args = [descriptor, out, case.shared, case.at, case.total, *five(case)]
    launch = run_bulk(f"load{rank or case.rank}", args, **{"buffers": [tensor(memory)]} | options)
    return launch, out, memory


@pytest.mark.parametrize("reverse", [False, True])
def test_a_load_puts_each_element_where_the_model_does(reverse: bool) -> None:
    for case in CASES:
        _, out, memory = load(case, reverse=reverse)
        np.testing.assert_array_equal(out, loaded(case, memory), str(case))


def test_a_store_writes_what_lies_inside() -> None:
    for case in CASES:
        if not case.fill:
            tile = aligned_bytes(case.shared)
            tile.view(np.uint16)[:] = np.arange(1, case.shared // 2 + 1)
            memory = aligned_bytes(case.nbytes)
            args = [case.map(memory.ctypes.data), tile, case.shared, case.at, 32, *five(case)]
            launch = run_bulk(f"store{case.rank}", args, buffers=[tensor(memory)])
            np.testing.assert_array_equal(memory, stored(case, np.zeros_like(memory), tile), str(case))
            assert (launch.totals.bulk_store_requests, launch.totals.bulk_store_bytes) == (1, case.total)


def test_a_box_counts_once_with_the_sectors_inside_the_tensor() -> None:
    launch, _, _ = load(Case(6, [64, 40], [32, 4], [48, 38]))
    totals = launch.totals
    assert (totals.bulk_load_requests, totals.bulk_load_bytes) == (1, 256)
    assert totals.bulk_load_sectors == 2  # two rows of 16 halves
    assert totals.global_load_requests == 0


def test_a_span_of_16_bytes() -> None:
    out, source = np.zeros(16, np.uint8), aligned_bytes(32)
    source[:] = np.arange(32)
    run_bulk("fetch", [out, source[16:], 16, 48, 0, 1])
    np.testing.assert_array_equal(out, np.arange(16, 32))


F16, F32 = np.float16, np.float32
REDUCTIONS = {
    "add_f32": (F32, np.add),
    "add_f64": (np.float64, np.add),
    "add_noftz_f16": (F16, np.add),
    "min_f16": (F16, np.fmin),
    "add_u64": (np.uint64, np.add),
    "min_s32": (np.int32, np.minimum),
    "max_u32": (np.uint32, np.maximum),
    "max_s64": (np.int64, np.maximum),
    "inc_u32": (np.uint32, lambda old, most: np.where(old >= most, 0, old + 1)),
    "dec_u32": (np.uint32, lambda old, most: np.where((old == 0) | (old > most), most, old - 1)),
    "and_b32": (np.uint32, np.bitwise_and),
    "xor_b64": (np.uint64, np.bitwise_xor),
}


@pytest.mark.parametrize("form", REDUCTIONS)
def test_a_reduction_of_a_span(form: str) -> None:
    dtype, reduce = REDUCTIONS[form]
    random = np.random.default_rng(1)
    old, new = aligned_bytes(256).view(dtype), aligned_bytes(256).view(dtype)
    for values in (old, new):
        if np.issubdtype(dtype, np.floating):
            values[:] = random.standard_normal(values.size) * 2.0 ** random.integers(-9, 9, values.size)
            values[0] = np.nan if values is old else 1
        else:
            values[:] = random.integers(0, np.iinfo(dtype).max, values.size, dtype, endpoint=True)
            values[:8] = random.integers(0, 3, 8)
    expected = reduce(old, new).astype(dtype)
    run_bulk(f"span_{form}", [old, new, 256, 0, 1])
    np.testing.assert_array_equal(old, expected)


def test_a_reduction_of_a_box_of_bfloat16() -> None:
    case = Case(9, [24, 4], [16, 2], [16, 1])
    memory, tile = aligned_bytes(case.nbytes), aligned_bytes(case.shared)
    memory.view(np.uint16)[:] = 0x3F80  # 1
    tile.view(np.uint16)[:] = 0x3B80  # 1/256, half a unit in the last place of 1
    tile.view(np.uint16)[0] = 0x3B81
    run_bulk(
        "store2_add", [case.map(memory.ctypes.data), tile, case.shared, 0, 1, *five(case)], buffers=[tensor(memory)]
    )
    expected = np.full((4, 24), 0x3F80, np.uint16)
    expected[1, 16] = 0x3F81
    np.testing.assert_array_equal(memory.view(np.uint16).reshape(4, 24), expected)


def test_a_store_of_all_lanes_is_one_and_a_reduction_is_one_of_each() -> None:
    one = aligned_bytes(128).view(np.uint32)
    one[:] = 1
    for form, count in (("", 1), ("add_u32", 32)):
        out = aligned_bytes(128).view(np.uint32)
        launch = run_bulk(f"span_{form}", [out, one, 128, 0, 32])
        assert set(out) == {count}
        assert launch.totals.bulk_store_requests == count


def spread(mode: int, **options: Any) -> tuple[simt.Launch, Words]:
    source, out = aligned_bytes(256).view(np.uint32), np.zeros(128, np.uint32)
    source[:] = np.arange(1000, 1064)
    box = Case(2, [32, 2], [32, 1], [0, 0])
    buffers = [simt.Buffer(n, a.ctypes.data, a.nbytes, 4, dtype="uint32") for n, a in (("x", source), ("out", out))]
    args = [box.map(source.ctypes.data), out.ctypes.data, mode]
    module = compiled(CLUSTER, "spread")
    launch = module.launch("spread", grid=(2,), block=(32,), shared=1024, args=args, buffers=buffers, **options)
    return launch, out.reshape(2, 2, 32)


@pytest.mark.parametrize("reverse", [False, True])
def test_a_copy_to_all_blocks_of_a_cluster_and_one_to_the_other(reverse: bool) -> None:
    lane = np.arange(32)
    launch, both = spread(0, reverse=reverse)
    np.testing.assert_array_equal(both, np.broadcast_to(np.arange(1000, 1064).reshape(2, 32), (2, 2, 32)))
    totals = launch.totals
    assert (totals.bulk_load_requests, totals.bulk_load_sectors, totals.multicast_sectors) == (2, 8, 8)
    np.testing.assert_array_equal(spread(1, reverse=reverse)[1][:, 0], [100 + lane, lane])
    np.testing.assert_array_equal(spread(2, reverse=reverse)[1][:, 0], [100 + 2 * lane, 2 * lane])


def test_a_tensor_map_that_a_kernel_makes() -> None:
    source, out, scratch = aligned_bytes(320).view(np.uint16), np.zeros(64, np.uint8), aligned_bytes(128)
    source[:] = np.arange(160)
    arrays = {"x": source, "out": out, "scratch": scratch}
    buffers = [simt.Buffer(n, a.ctypes.data, a.nbytes, 1, dtype="bytes") for n, a in arrays.items()]
    args = [scratch.ctypes.data, out.ctypes.data, source.ctypes.data, 20, 64]
    compiled(MAPS, "make").launch("make", grid=(1,), block=(32,), shared=128, args=args, buffers=buffers)
    box = Case(1, [20, 5], [16, 4], [12, 2], 1, steps=[1, 2], strides=[64])
    np.testing.assert_array_equal(out, loaded(box, source.view(np.uint8))[:64])
    made = TensorMap.decode(scratch.tobytes())
    assert made == TensorMap.decode(box.map(source.ctypes.data))


# What is wrong

PLAIN = Case(6, [64, 8], [16, 4], [0, 0])
TIGHT = TensorMap.decode(replace(PLAIN, swizzle=1).map(4096))


def broken(**options: Any) -> bytes:
    return replace(TIGHT, **options).encode()


LOADS: dict[str, dict[str, Any]] = {
    "that is not a multiple of 128": {"case": replace(PLAIN, at=64)},
    "names a tensor map that is none": {"descriptor": bytes(128)},
    "of another number of axes": {"rank": 3},
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


def flight(mode: int, **options: Any) -> Words:
    out, source = aligned_bytes(256).view(F32), aligned_bytes(256).view(F32)
    source[:] = np.arange(64)
    buffers = [simt.Buffer(n, a.ctypes.data, 256, 4, dtype="float32") for n, a in (("out", out), ("in", source))]
    args = [out.ctypes.data, source.ctypes.data, mode]
    compiled(IN_FLIGHT, "flight").launch(
        "flight", grid=(1,), block=(64,), shared=256, args=args, buffers=buffers, **options
    )
    return out


def test_copies_that_are_awaited() -> None:
    for mode in (0, 10, 14):
        for reverse in (False, True):
            np.testing.assert_array_equal(flight(mode, reverse=reverse), np.arange(64))


FLIGHTS = {
    1: (FaultKind.RACE, "written meanwhile", "writes 4 bytes", "// lands", "still be writing: wait for its mbarrier"),
    2: (FaultKind.UNINITIALIZED, "not awaited", "reads 4 bytes", "// lands", "still be writing: wait for its mbarrier"),
    3: (FaultKind.RACE, "refilled", "", "not awaited", "with no barrier between them"),
    11: (FaultKind.RACE, "reads what others", "", "values[t] = in[t]", "with no barrier between them"),
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
