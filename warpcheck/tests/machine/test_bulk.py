"""Compare bulk and tensor copies on the PTX machine with a plain model."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from machine.boxes import Case, Words, loaded, stored
from machine.bulk_kernels import CLUSTER, MAPS, aligned_bytes, compiled, run_bulk
from machine.bulk_loads import load, pad_coordinates, tensor
from warpcheck import simt
from warpcheck.frontends import cuda
from warpcheck.simt import Fault
from warpcheck.tensor_map import ELEMENT_TYPES, TensorMap, encode_tiled

CASES = [
    *(Case(7, [64], [32], [x]) for x in (0, 4, -8, 40, 64, -40, 2_000_000_000)),
    *(Case(6, [40, 12], [16, 4], [x, y]) for x, y in ((8, 3), (-8, -2), (32, 10), (104, 100))),
    *(Case(2, [12, 6, 5], [8, 3, 2], x) for x in ([-4, 4, 4], [8, -1, -1], [4, 2, 1])),
    Case(1, [16, 5, 4, 3], [8, 2, 3, 2], [8, 4, -1, -1]),
    Case(0, [40, 4, 3, 3, 2], [16, 2, 2, 2, 2], [32, 3, -1, 2, 1]),
    *(Case(6, [64, 40], [8 << mode, 20], [8, -2], mode, at=at) for mode in (1, 2, 3) for at in (0, 384)),
    Case(6, [64, 40], [16, 20], [0, 0], 3),
    Case(7, [20, 4, 4], [16, 3, 3], [-4, 2, -1], 2),
    Case(6, [12, 4], [8, 3], [8, 2], fill=1),
    Case(8, [15, 4], [2, 3], [14, -1], fill=1),
    Case(7, [16, 4], [16, 3], [-4, -1], 2, fill=1),
    Case(6, [64, 16], [16, 7], [8, -1], steps=[2, 3]),
]


@pytest.mark.parametrize("reverse", [False, True])
def test_a_load_equals_that_of_the_model(reverse: bool) -> None:
    for case in CASES:
        _, out, memory = load(case, reverse=reverse)
        np.testing.assert_array_equal(out, loaded(case, memory), str(case))


def test_a_store_writes_only_elements_inside_the_tensor() -> None:
    for case in CASES:
        if not case.fill and min(case.coords) >= 0:
            tile = aligned_bytes(case.shared)
            tile.view(np.uint16)[:] = np.arange(1, case.shared // 2 + 1)
            memory = aligned_bytes(case.nbytes)
            args = [case.map(memory.ctypes.data), tile, case.shared, case.at, 32, *pad_coordinates(case)]
            launch = run_bulk(f"store{case.rank}", args, buffers=[tensor(memory)])
            np.testing.assert_array_equal(memory, stored(case, np.zeros_like(memory), tile), str(case))
            assert (launch.totals.bulk_store_requests, launch.totals.bulk_store_bytes) == (1, case.total)


ROW = 128  # bytes of a row of 64 halves
PITCH = 1 << 18  # bytes from one row to the next. 2^30 rows exceed the address space of a process.
LARGE_EXTENT = 1 << 30
MAX_EXTENT = (1 << 31) - 1
# The extents and strides of all axes but the first, and the offset of the tensor's base address.
RAGGED = {
    "begins in front of address 0": ((LARGE_EXTENT, MAX_EXTENT), (PITCH, PITCH), -LARGE_EXTENT * PITCH),
    "has an axis of 2^64 bytes": ((LARGE_EXTENT, MAX_EXTENT, MAX_EXTENT), (PITCH, (1 << 34) - PITCH, PITCH), 0),
}


@pytest.mark.parametrize("layout", RAGGED)
def test_the_box_of_a_ragged_tensor_ends_with_its_sequence(layout: str) -> None:
    """The coordinate 2^30 - n leaves n rows inside the tensor. The other coordinates cancel the 2^30 rows, because
    addresses wrap around.

    QuACK and FlashAttention use this trick to copy sequences of variable length.
    """
    extents, strides, start = RAGGED[layout]
    first, length = 5, 3
    memory = aligned_bytes(10 * PITCH)
    out = np.zeros(4 * ROW, np.uint8)
    rows = memory.reshape(10, PITCH)[:, :ROW]
    rows[:] = np.arange(1, 11)[:, None]
    base = (memory.ctypes.data + start) % (1 << 57)  # CuTe writes 57 bits of an address into a tensor map
    box = (64, 4, *(1 for _ in extents[1:]))
    steps = (1, *(1 for _ in extents))
    ragged = TensorMap(ELEMENT_TYPES[6], base, (64, *extents), strides, box, steps).encode()
    coordinates = [0, LARGE_EXTENT - length, *([] if start else [LARGE_EXTENT]), first + length, 0, 0]
    name = f"load{len(box)}"
    args = [ragged, out, out.nbytes, 0, out.nbytes, *coordinates[:5]]
    run_bulk(name, args, buffers=[tensor(memory)])
    np.testing.assert_array_equal(out.reshape(4, ROW)[:3], rows[first : first + length])
    assert not out[3 * ROW :].any()
    with pytest.raises(simt.Fault) as caught:
        run_bulk(name, args, buffers=[tensor(memory[: 7 * PITCH])])
    assert caught.value.kind == simt.FaultKind.OUT_OF_BOUNDS


def test_a_box_is_one_request_with_the_sectors_inside_the_tensor() -> None:
    launch, _, _ = load(Case(6, [64, 40], [32, 4], [48, 38]))
    totals = launch.totals
    assert (totals.bulk_load_requests, totals.bulk_load_bytes) == (1, 256)
    assert totals.bulk_load_sectors == 2  # two rows of 16 halves
    assert totals.global_load_requests == 0
    (sample,) = (access for access in launch.accesses if "bulk" in access.instruction)
    assert (sample.buffer, sample.requests, sample.sectors, sample.lanes * sample.bytes) == ("x", 1, 2, 256)


def test_a_span_of_16_bytes() -> None:
    out = np.zeros(16, np.uint8)
    source = aligned_bytes(32)
    source[:] = np.arange(32)
    run_bulk("fetch", [out, source[16:], 16, 48, 0, 1])
    np.testing.assert_array_equal(out, np.arange(16, 32))


F16 = np.float16
F32 = np.float32
REDUCTIONS: dict[str, tuple[Any, Any]] = {
    "add_f32": (F32, np.add),
    "add_f64": (np.float64, np.add),
    "add_noftz_f16": (F16, np.add),
    "min_f16": (F16, np.fmin),
    "add_u64": (np.uint64, np.add),
    "min_s32": (np.int32, np.minimum),
    "max_u32": (np.uint32, np.maximum),
    "max_s64": (np.int64, np.maximum),
    "inc_u32": (np.uint32, lambda old, limit: np.where(old >= limit, 0, old + 1)),
    "dec_u32": (np.uint32, lambda old, limit: np.where((old == 0) | (old > limit), limit, old - 1)),
    "and_b32": (np.uint32, np.bitwise_and),
    "xor_b64": (np.uint64, np.bitwise_xor),
}


@pytest.mark.parametrize("form", REDUCTIONS)
def test_a_reduction_of_a_span(form: str) -> None:
    dtype, reduce = REDUCTIONS[form]
    random = np.random.default_rng(1)
    old = aligned_bytes(256).view(dtype)
    new = aligned_bytes(256).view(dtype)
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
    memory = aligned_bytes(case.nbytes)
    tile = aligned_bytes(case.shared)
    memory.view(np.uint16)[:] = 0x3F80  # 1
    tile.view(np.uint16)[:] = 0x3B80  # 1/256, half a unit in the last place of 1
    tile.view(np.uint16)[0] = 0x3B81
    run_bulk(
        "store2_add",
        [case.map(memory.ctypes.data), tile, case.shared, 0, 1, *pad_coordinates(case)],
        buffers=[tensor(memory)],
    )
    expected = np.full((4, 24), 0x3F80, np.uint16)
    expected[1, 16] = 0x3F81
    np.testing.assert_array_equal(memory.view(np.uint16).reshape(4, 24), expected)


def test_equal_stores_of_all_lanes_count_once_but_each_lane_reduces() -> None:
    ones = aligned_bytes(128).view(np.uint32)
    ones[:] = 1
    for form, count in (("", 1), ("add_u32", 32)):
        out = aligned_bytes(128).view(np.uint32)
        launch = run_bulk(f"span_{form}", [out, ones, 128, 0, 32])
        assert set(out) == {count}
        assert launch.totals.bulk_store_requests == count


def spread(mode: int, **options: Any) -> tuple[simt.Launch, Words]:
    """Launch a cluster of two blocks that copy into each other's shared memory. Return what each block has received."""
    source = aligned_bytes(256).view(np.uint32)
    out = np.zeros(128, np.uint32)
    source[:] = np.arange(1000, 1064)
    box = Case(2, [32, 2], [32, 1], [0, 0])
    buffers = [simt.Buffer(n, a.ctypes.data, a.nbytes, 4, dtype="uint32") for n, a in (("x", source), ("out", out))]
    args: list[Any] = [box.map(source.ctypes.data), out.ctypes.data, mode]
    module = compiled(CLUSTER, "spread")
    launch = module.launch("spread", grid=(2,), block=(32,), shared=1024, args=args, buffers=buffers, **options)
    return launch, out.reshape(2, 2, 32)


@pytest.mark.parametrize(
    ("name", "swizzle", "x"),
    [("b4x16", 3, 64), ("b4x16", 1, -32), ("b4x16_p64", 3, 128), ("b4x16_p64", 0, 0), ("b6x16_p32", 3, -128)],
)
def test_elements_of_4_and_6_bits(name: str, swizzle: int, x: int) -> None:
    """In shared memory, a byte holds two packed elements of 4 bits, or 16 bytes hold sixteen padded elements."""
    kind = next(kind for kind in ELEMENT_TYPES if kind.name == name)
    extents = (256, 20)
    rows = 8
    box = 64 if name == "b4x16" and swizzle < 3 else 128
    row_bytes = 256 * kind.stored // kind.packed
    memory = aligned_bytes(row_bytes * extents[1])
    memory[:] = np.arange(memory.size) % 251 + 1
    descriptor = encode_tiled(kind.host, memory.ctypes.data, extents, [row_bytes], [box, rows], [1, 1], 0, swizzle)
    width = box * kind.bytes // kind.packed
    pitch = (width, 32, 64, 128)[swizzle]
    total = rows * box * kind.stored // kind.packed
    out = np.zeros(1024, np.uint8)
    run_bulk("load2", [descriptor, out, 1024, 0, total, x, 3, 0, 0, 0], buffers=[tensor(memory)])
    chunk = 16 * kind.stored // kind.bytes  # the bytes of the tensor that fill 16 bytes of shared memory
    for row in range(rows):
        for column in range(0, width, 16):
            offset = row * pitch + column
            offset ^= (offset >> 7 & (1 << swizzle) - 1) << 4
            first = x * kind.stored // kind.packed + column // 16 * chunk
            expected = memory[(3 + row) * row_bytes + first :][:chunk] if 0 <= first < row_bytes else np.zeros(chunk)
            np.testing.assert_array_equal(out[offset : offset + chunk], expected)


@pytest.mark.parametrize("reverse", [False, True])
def test_copies_to_all_blocks_and_to_one_other_block_of_a_cluster(reverse: bool) -> None:
    lane = np.arange(32)
    launch, received = spread(0, reverse=reverse)
    np.testing.assert_array_equal(received, np.broadcast_to(np.arange(1000, 1064).reshape(2, 32), (2, 2, 32)))
    totals = launch.totals
    assert (totals.bulk_load_requests, totals.bulk_load_sectors, totals.multicast_sectors) == (2, 8, 8)
    np.testing.assert_array_equal(spread(1, reverse=reverse)[1][:, 0], [100 + lane, lane])
    np.testing.assert_array_equal(spread(2, reverse=reverse)[1][:, 0], [100 + 2 * lane, 2 * lane])


def make_map(source: str, **options: Any) -> tuple[Words, Words, bytes]:
    """Copy a box with a tensor map that a kernel makes. Return the tensor, the box, and the map."""
    x = aligned_bytes(320).view(np.uint16)
    out = np.zeros(64, np.uint8)
    scratch = aligned_bytes(128)
    x[:] = np.arange(160)
    buffers = [
        simt.Buffer("x", x.ctypes.data, x.nbytes, 1, dtype="bytes"),
        simt.Buffer("out", out.ctypes.data, out.nbytes, 1, dtype="bytes"),
        simt.Buffer("scratch", scratch.ctypes.data, scratch.nbytes, 1, dtype="bytes", **options),
    ]
    args = [scratch.ctypes.data, out.ctypes.data, x.ctypes.data, 24, 64]
    compiled(source, "make").launch("make", grid=(1,), block=(32,), shared=128, args=args, buffers=buffers)
    return x, out, scratch.tobytes()


MAP_CASE = Case(1, [24, 5], [16, 4], [16, 2], 1, steps=[1, 2], strides=[64])


def test_a_tensor_map_that_a_kernel_makes() -> None:
    x, out, encoded = make_map(MAPS)
    np.testing.assert_array_equal(out, loaded(MAP_CASE, x.view(np.uint8))[:64])
    assert TensorMap.decode(encoded) == TensorMap.decode(MAP_CASE.map(x.ctypes.data))


def test_the_first_64_bytes_of_a_tensor_map_hold_its_fields() -> None:
    """`cpasync.copy_tensormap` of the CuTe DSL stores only these 64 bytes."""
    x, out, _ = make_map("#define WORDS 16\n" + MAPS, initialised=False)
    np.testing.assert_array_equal(out, loaded(MAP_CASE, x.view(np.uint8))[:64])
    with pytest.raises(Fault, match="names a tensor map that is none"):
        make_map("#define WORDS 12\n" + MAPS, initialised=False)


FOUR_ROWS = r"""
struct alignas(64) Map { unsigned long long opaque[16]; };
__device__ unsigned at(const void* p) { return (unsigned)__cvta_generic_to_shared(p); }
extern "C" __global__ void move(const __grid_constant__ Map x, const __grid_constant__ Map y, int column, int4 rows,
                                int bytes) {
    __shared__ alignas(128) unsigned tile[4 * 32];
    __shared__ unsigned long long bar;
    if (threadIdx.x == 0) {
        asm volatile("mbarrier.init.shared.b64 [%0], 1;" :: "r"(at(&bar)) : "memory");
        asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" :: "r"(at(&bar)), "r"(bytes) : "memory");
        asm volatile("cp.async.bulk.tensor.2d.shared::cta.global.tile::gather4.mbarrier::complete_tx::bytes "
                     "[%0], [%1, {%2, %3, %4, %5, %6}], [%7];" :: "r"(at(tile)), "l"(&x), "r"(column), "r"(rows.x),
                     "r"(rows.y), "r"(rows.z), "r"(rows.w), "r"(at(&bar)) : "memory");
        asm volatile("{ .reg .pred p; AGAIN: mbarrier.try_wait.parity.shared.b64 p, [%0], 0; @!p bra AGAIN; }"
                     :: "r"(at(&bar)) : "memory");
        asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.tile::scatter4.bulk_group "
                     "[%0, {%1, %2, %3, %4, %5}], [%6];" :: "l"(&y), "r"(column), "r"(rows.w), "r"(rows.z),
                     "r"(rows.y), "r"(rows.x), "r"(at(tile)) : "memory");
        asm volatile("cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;" ::: "memory");
    }
}
"""


def move_rows(rows: list[int], box_rows: int = 1, swizzle: int = 3) -> tuple[Words, Words]:
    """Gather four rows of x, and scatter them to y in the opposite order."""
    x, y = (aligned_bytes(16 * 256).view(np.uint32).reshape(16, 64) for _ in range(2))
    x[:] = np.arange(x.size).reshape(x.shape) + 1
    y[:] = 7
    maps = [encode_tiled(2, array.ctypes.data, (64, 16), [256], [32, box_rows], [1, 1], 0, swizzle) for array in (x, y)]
    module = simt.load(cuda.compile_kernel(FOUR_ROWS, "rows.cu", "move", "compute_100a").ptx, "rows.cu")
    buffers = [simt.Buffer(name, a.ctypes.data, a.nbytes, 1, dtype="bytes") for name, a in (("x", x), ("y", y))]
    row_bytes = np.array(rows, np.int32).tobytes()
    module.launch("move", grid=(1,), block=(32,), args=[*maps, 32, row_bytes, 512], buffers=buffers)
    return x, y


def test_a_swizzle_in_atoms_of_32_bytes() -> None:
    memory = aligned_bytes(64 * 128)
    memory.view(np.uint32)[:] = np.arange(memory.size // 4)
    descriptor = encode_tiled(2, memory.ctypes.data, (32, 64), [128], [32, 8], [1, 1], 0, 4)
    out = np.zeros(1024, np.uint8)
    run_bulk("load2", [descriptor, out, 1024, 0, 1024, 0, 3, 0, 0, 0], buffers=[tensor(memory)])
    for row in range(8):
        for column in range(0, 128, 32):
            offset = 128 * row + (column ^ (row & 3) << 5)
            np.testing.assert_array_equal(out[offset : offset + 32], memory[128 * (3 + row) + column :][:32])


@pytest.mark.parametrize("swizzle", [0, 3])
def test_four_rows_are_gathered_and_scattered(swizzle: int) -> None:
    """Row 16 is outside the tensor. The gather fills it with zeros, which row 9 gets. The scatter skips it."""
    x, y = move_rows([3, 9, 16, 15], swizzle=swizzle)
    expected = np.full_like(y, 7)
    expected[15, 32:], expected[9, 32:], expected[3, 32:] = x[3, 32:], 0, x[15, 32:]
    np.testing.assert_array_equal(y, expected)


def test_gathering_four_rows_needs_a_box_of_one_row() -> None:
    with pytest.raises(simt.Fault, match="copies four rows with a tensor map whose box does not have one row"):
        move_rows([0, 1, 2, 3], box_rows=4)
