"""Test tcgen05: products of every kind, major, and swizzle, and the shapes of ld and st (PTX ISA manual, 9.7.16).

The manual is the only source. Nothing here has been compared with a GPU.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from machine.launching import aligned, buffer
from machine.warpgroups import BYTES, encode, place_bits
from warpcheck import simt
from warpcheck.errors import Unsupported

Array = np.ndarray[Any, Any]
RNG = np.random.default_rng(10)
SHARED = 32 << 10
B_OFFSET = 16 << 10
MODES = {0: 0, 1: 2, 2: 4, 3: 6}  # swizzle modes of wgmma (128, 64, 32 bytes), as tcgen05 has them
ATOMS_OF_32 = 4  # the 128-byte swizzle with atoms of 32 bytes, which wgmma does not have
KINDS = {"f16": "f16", "bf16": "f16", "tf32": "tf32", "e4m3": "f8f6f4", "e5m2": "f8f6f4", "s8": "i8", "u8": "i8"}
CODES = {"f16": 0, "bf16": 1, "tf32": 2, "e4m3": 0, "e5m2": 1, "u8": 0, "s8": 1}
D_CODES = {"f16": 0, "f32": 1, "s32": 2}
A_COLUMN = 256  # the first column of A in tensor memory


@dataclass(frozen=True)
class Case:
    """One tcgen05.mma. A is in tensor memory if its swizzle mode is None. Modes are those of ``place_bits``."""

    m: int
    n: int
    kind: str
    to: str = "f32"
    a_mode: int | None = 1
    b_mode: int = 1
    a_major: int = 0
    b_major: int = 0
    b_kind: str = ""
    negates: int = 0
    keeps: bool = True
    scale: int = 0
    disabled: int = 0
    lane: int = 0

    @property
    def depth(self) -> int:
        return 32 // BYTES[self.kind]

    @property
    def descriptor(self) -> int:
        types = D_CODES[self.to] << 4 | CODES[self.kind] << 7 | CODES[self.b_kind or self.kind] << 10
        return types | self.negates << 13 | self.a_major << 15 | self.b_major << 16 | self.n << 14 | self.m << 20

    @property
    def lanes(self) -> Array:
        """Return the lane of each row of D."""
        rows = np.arange(self.m)
        return rows if self.m == 128 else rows // 16 * 32 + rows % 16 + self.lane


CASES = [
    Case(128, 256, "f16", b_mode=3),
    Case(128, 112, "f16"),
    Case(128, 16, "f16", "f16", a_mode=0, b_mode=0),
    Case(128, 64, "bf16", a_mode=3, b_mode=2, a_major=1, b_major=1, negates=1),
    Case(128, 32, "f16", a_mode=0, b_mode=0, a_major=1, b_major=1, keeps=False),
    Case(64, 8, "f16", a_mode=2, b_mode=3),
    Case(64, 24, "bf16", a_mode=1, b_mode=0, a_major=1, lane=16, negates=2),
    Case(128, 48, "f16", a_mode=None, b_mode=1),
    Case(64, 16, "bf16", a_mode=None, b_mode=0, lane=16),
    Case(128, 32, "tf32", a_mode=1, b_mode=2),
    Case(128, 32, "tf32", a_mode=2, b_mode=3, a_major=1, b_major=1),
    Case(128, 32, "tf32", a_mode=ATOMS_OF_32, b_mode=ATOMS_OF_32, a_major=1, b_major=1),
    Case(128, 64, "f16", a_mode=ATOMS_OF_32, a_major=1),
    Case(128, 64, "e4m3", b_kind="e5m2", a_mode=1, b_mode=0),
    Case(128, 64, "e5m2", "f16", b_kind="e4m3", a_mode=3, b_mode=1, a_major=1, b_major=1, negates=3),
    Case(128, 32, "e4m3", a_mode=None, b_mode=2),
    Case(128, 32, "s8", "s32", b_kind="u8"),
    Case(128, 16, "u8", "s32", a_mode=0, b_mode=3, keeps=False),
    Case(128, 16, "f16", scale=3),
    Case(128, 16, "f16", disabled=0xFFFF_00FF_0F00_0000_8000_0000_0000_0001),
]


def source(case: Case) -> str:
    words = "{%d0, %d1, %d2, %d3, %d4, %d5, %d6, %d7}"
    loads = "".join(
        "\n".join(f"ld.global.b32 %d{j}, [%rd6+{4 * (column + j)}];" for j in range(8))
        + f"\ntcgen05.st.sync.aligned.32x32b.x8.b32 [%r6+{column}], {words};\n"
        for column in range(0, case.n, 8)
    )
    stores = "".join(
        f"tcgen05.ld.sync.aligned.32x32b.x8.b32 {words}, [%r6+{column}];\ntcgen05.wait::ld.sync.aligned;\n"
        + "\n".join(f"st.global.b32 [%rd6+{4 * (column + j)}], %d{j};" for j in range(8))
        + "\n"
        for column in range(0, case.n, 8)
    )
    a = f"[%r10+{A_COLUMN}]" if case.a_mode is None else "%rd7"
    disabled = [case.disabled >> 32 * part & 0xFFFFFFFF for part in range(4)]
    masks = f", {{{', '.join(f'%m{part}' for part in range(4))}}}" if case.disabled else ""
    scale = f", {case.scale}" if case.scale else ""
    moves = "\n".join(f"mov.u32 %m{part}, {word};" for part, word in enumerate(disabled))
    return f""".version 8.7
.target sm_100a
.address_size 64
.visible .entry k(.param .u64 a, .param .u64 c, .param .u64 d, .param .u64 da, .param .u64 db, .param .u32 keep)
{{
.reg .b32 %r<12>; .reg .b32 %d<8>; .reg .b32 %m<4>; .reg .b64 %rd<9>; .reg .pred %p<5>;
.shared .align 1024 .b8 memory[{SHARED}];
.shared .align 8 .b8 bar[8];
.shared .align 4 .b8 base[4];
.loc 1 1 1
mov.u32 %r1, %tid.x;
ld.param.u64 %rd1, [a];
ld.param.u64 %rd2, [c];
ld.param.u64 %rd3, [d];
ld.param.u64 %rd7, [da];
ld.param.u64 %rd8, [db];
ld.param.u32 %r2, [keep];
setp.ne.u32 %p1, %r2, 0;
setp.eq.u32 %p2, %r1, 0;
setp.lt.u32 %p3, %r1, 32;
mov.u32 %r3, memory;
shr.u32 %r4, %r3, 4;
cvt.u64.u32 %rd5, %r4;
add.u64 %rd7, %rd7, %rd5;
add.u64 %rd8, %rd8, %rd5;
@%p3 tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [base], 512;
@%p2 mbarrier.init.shared::cta.b64 [bar], 1;
mad.lo.u32 %r3, %r1, 16, %r3;
mad.wide.u32 %rd1, %r1, 16, %rd1;
mov.u32 %r4, 0;
next:
ld.global.v4.b32 {{%d0, %d1, %d2, %d3}}, [%rd1];
st.shared.v4.b32 [%r3], {{%d0, %d1, %d2, %d3}};
add.u32 %r3, %r3, 2048;
add.u64 %rd1, %rd1, 2048;
add.u32 %r4, %r4, 2048;
setp.lt.u32 %p4, %r4, {SHARED};
@%p4 bra next;
bar.sync 0;
ld.shared.u32 %r5, [base];
and.b32 %r7, %r1, 96;
shl.b32 %r7, %r7, 16;
add.u32 %r6, %r5, %r7;
add.u32 %r8, %r5, {case.lane << 16};
mad.wide.u32 %rd6, %r1, {4 * case.n}, %rd3;
mad.wide.u32 %rd2, %r1, 32, %rd2;
{loads}
{"".join(f"ld.global.b32 %d{j}, [%rd2+{4 * j}];" for j in range(8))}
tcgen05.st.sync.aligned.32x32b.x8.b32 [%r6+{A_COLUMN}], {words};
tcgen05.wait::st.sync.aligned;
fence.proxy.async;
tcgen05.fence::before_thread_sync;
bar.sync 0;
tcgen05.fence::after_thread_sync;
{moves}
mov.u32 %r9, {case.descriptor};
mov.u32 %r10, %r8;
.loc 1 2 1
@%p2 tcgen05.mma.cta_group::1.kind::{KINDS[case.kind]} [%r8], {a}, %rd8, %r9{masks}, %p1{scale};
@%p2 tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [bar];
wait:
mbarrier.try_wait.parity.shared::cta.b64 %p4, [bar], 0;
@!%p4 bra wait;
tcgen05.fence::after_thread_sync;
{stores}
tcgen05.fence::before_thread_sync;
bar.sync 0;
@%p3 tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r5, 512;
ret;
}}
.file 1 "mine.cu"
"""


def place(bits: Array, mode: int, major: int, start: int, image: Array) -> int:
    """Put a matrix (mn, k) into shared memory, and return its descriptor for tcgen05."""
    if mode == ATOMS_OF_32:
        return place_in_atoms(bits, start, image)
    wgmma_descriptor = place_bits(bits, mode, major, start, image)
    return wgmma_descriptor & (1 << 46) - 1 | 1 << 46 | MODES[mode] << 61


def place_in_atoms(bits: Array, start: int, image: Array) -> int:
    """Put an MN-major matrix into shared memory with the swizzle in atoms of 32 bytes.

    Four k are 128 bytes, whose address bits 5 and 6 change with bits 7 and 8.
    """
    size = bits.itemsize
    width = 128 // size
    lead = 512 * (bits.shape[1] // 4)
    stride = 512
    for mn in range(bits.shape[0]):
        for k in range(bits.shape[1]):
            offset = start + mn % width * size + mn // width * lead + k % 4 * 128 + k // 4 * stride
            offset ^= (offset >> 7 & 3) << 5
            image[offset : offset + size] = bits[mn : mn + 1, k : k + 1].reshape(-1).view(np.uint8)
    descriptor: int = start >> 4 | lead >> 4 << 16 | stride >> 4 << 32 | 1 << 46 | 1 << 61
    return descriptor


def as_words(values: Array, to: str) -> Array:
    """Return numbers as the 32-bit cells of D. A float16 is in the lower half."""
    if to == "f16":
        return values.astype(np.float16).view(np.uint16).astype(np.uint32)
    return values.astype({"f32": np.float32, "s32": np.int32}[to]).view(np.uint32)


# The negated cases have operands of every floating-point kind, and one has A in tensor memory.
NEGATED = [CASES[0], CASES[3], CASES[7], CASES[9], CASES[11]]


@pytest.mark.parametrize(
    ("case", "negated"),
    [*((case, False) for case in CASES), *((case, True) for case in NEGATED)],
    ids=lambda value: (
        f"{value.kind}-{value.to}-m{value.m}-n{value.n}-{value.a_mode}"
        if isinstance(value, Case)
        else value * "opposite"
    ),
)
def test_tcgen05_mma_equals_matmul(case: Case, negated: bool) -> None:
    low = 0 if "u8" in (case.kind, case.b_kind) else -4
    a, b = (RNG.integers(low, 5, (rows, case.depth)) for rows in (case.m, case.n))
    old = 8 * RNG.integers(-5, 5, (case.m, case.n))
    image = aligned(SHARED, np.uint8)
    registers = aligned((128, 8), np.uint32)
    d = aligned((128, case.n), np.uint32)
    descriptors = [0, place(encode(b, case.b_kind or case.kind), case.b_mode, case.b_major, B_OFFSET, image)]
    if case.a_mode is None:
        registers[case.lanes] = encode(a, case.kind).view(np.uint32)
    else:
        descriptors[0] = place(encode(a, case.kind), case.a_mode, case.a_major, 0, image)
    d[:] = 0x12345678
    d[case.lanes] = as_words(old, case.to)
    expected = d.copy()
    sign = (-1) ** (case.negates & 1) * (-1) ** (case.negates >> 1) * (-1) ** negated
    result = as_words(sign * (a @ b.T) + case.keeps * old * 2.0**-case.scale, case.to)
    enabled = [row for row in range(case.m) if not case.disabled >> int(case.lanes[row]) & 1]
    expected[case.lanes[enabled]] = result[enabled]
    arrays = {"a": image, "c": registers, "d": d}
    module = simt.load(source(case))
    (module.negated() if negated else module).launch(
        "k",
        grid=(1,),
        block=(128,),
        args=[*(array.ctypes.data for array in arrays.values()), *descriptors, int(case.keeps)],
        buffers=[buffer(name, array) for name, array in arrays.items()],
    )
    np.testing.assert_array_equal(d, expected)


# The number of registers per lane, and the row and column of each (9.7.16.2.3.1). 16x32bx2 has an offset of 8.
SHAPES: dict[str, tuple[int, Callable[[int, int], tuple[int, int]]]] = {
    "32x32b.x4": (4, lambda lane, r: (lane, r)),
    "16x64b.x4": (4, lambda lane, r: (lane // 4 + 8 * (lane % 2), lane // 2 % 2 + 2 * r)),
    "16x128b.x2": (4, lambda lane, r: (lane // 4 + 8 * (r % 2), lane % 4 + 4 * (r // 2))),
    "16x256b.x1": (4, lambda lane, r: (lane // 4 + 8 * (r // 2 % 2), r % 2 + 2 * (lane % 4) + 8 * (r // 4))),
    "16x256b.x2": (8, lambda lane, r: (lane // 4 + 8 * (r // 2 % 2), r % 2 + 2 * (lane % 4) + 8 * (r // 4))),
    "16x32bx2.x4": (4, lambda lane, r: (lane % 16, r + 8 * (lane // 16))),
}

MOVE = """.version 8.7
.target sm_100a
.address_size 64
.visible .entry k(.param .u64 x, .param .u64 y)
{{
.reg .b32 %r<9>; .reg .b32 %v<16>; .reg .b64 %rd<5>; .reg .pred %p<2>;
.shared .align 4 .b8 base[4];
ld.param.u64 %rd1, [x];
ld.param.u64 %rd2, [y];
mov.u32 %r1, %tid.x;
mad.wide.u32 %rd1, %r1, 64, %rd1;
mad.wide.u32 %rd2, %r1, 64, %rd2;
setp.lt.u32 %p1, %r1, 32;
@%p1 tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [base], 32;
bar.sync 0;
ld.shared.u32 %r2, [base];
and.b32 %r3, %r1, 96;
shl.b32 %r3, %r3, 16;
add.u32 %r4, %r2, %r3;
{body}
bar.sync 0;
@%p1 tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r2, 32;
ret;
}}
"""


def move(store: str, stored: int, load: str, loaded: int, pack: bool = False) -> tuple[Array, Array]:
    """Store registers in one shape, and load them in another. Return both as (thread, register)."""
    x = aligned((64, 16), np.uint32)
    y = aligned((64, 16), np.uint32)
    x[:] = np.arange(x.size).reshape(x.shape) + (1 << 20)
    body = "".join(f"ld.global.b32 %v{j}, [%rd1+{4 * j}];\n" for j in range(stored))

    def names(count: int) -> str:
        return "{" + ", ".join(f"%v{j}" for j in range(count)) + "}"

    distance = ", 8" if "16x32bx2" in store else ""
    body += f"tcgen05.st.sync.aligned.{store}.b32 [%r4]{distance}, {names(stored)};\ntcgen05.wait::st.sync.aligned;\n"
    distance = ", 8" if "16x32bx2" in load else ""
    packs = ".pack::16b" * pack
    body += f"tcgen05.ld.sync.aligned.{load}{packs}.b32 {names(loaded)}, [%r4]{distance};\n"
    body += "tcgen05.wait::ld.sync.aligned;\n"
    body += "".join(f"st.global.b32 [%rd2+{4 * j}], %v{j};\n" for j in range(loaded))
    simt.load(MOVE.format(body=body)).launch(
        "k",
        grid=(1,),
        block=(64,),
        args=[x.ctypes.data, y.ctypes.data],
        buffers=[buffer("x", x), buffer("y", y)],
    )
    return x, y


@pytest.mark.parametrize("shape", SHAPES)
def test_tcgen05_ld_returns_the_cells_of_its_shape(shape: str) -> None:
    count, position = SHAPES[shape]
    x, y = move("32x32b.x16", 16, shape, count)
    for thread in range(64):
        for register in range(count):
            row, column = position(thread % 32, register)
            assert y[thread, register] == x[thread // 32 * 32 + row, column]


@pytest.mark.parametrize("shape", SHAPES)
def test_tcgen05_ld_inverts_tcgen05_st(shape: str) -> None:
    count, _ = SHAPES[shape]
    x, y = move(shape, count, shape, count)
    np.testing.assert_array_equal(y[:, :count], x[:, :count])


def test_a_packed_load_returns_the_lower_halves_of_two_columns() -> None:
    x, y = move("32x32b.x16", 16, "32x32b.x8", 8, pack=True)
    halves = x & 0xFFFF
    np.testing.assert_array_equal(y[:, :8], halves[:, ::2] | halves[:, 1::2] << 16)


SHIFT = """.shared .align 8 .b64 done;
setp.eq.u32 %p0, %r1, 0;
@%p0 mbarrier.init.shared.b64 [done], 1;
tcgen05.st.sync.aligned.32x32b.x16.b32 [%r4], {registers};
tcgen05.wait::st.sync.aligned;
tcgen05.fence::before_thread_sync;
bar.sync 0;
tcgen05.fence::after_thread_sync;
add.u32 %r5, %r2, {start};
@%p0 tcgen05.shift.cta_group::1.down [%r5];
@%p0 tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [done];
AGAIN: mbarrier.try_wait.parity.shared.b64 %p0, [done], 0;
@!%p0 bra AGAIN;
tcgen05.fence::after_thread_sync;
tcgen05.ld.sync.aligned.32x32b.x16.b32 {registers}, [%r4];
tcgen05.wait::ld.sync.aligned;
"""


def shift_source(quarter: int, column: int) -> str:
    """Return a kernel that stores 16 words per thread, shifts 8 of them in one quarter, and loads all."""
    registers = "{" + ", ".join(f"%v{j}" for j in range(16)) + "}"
    body = "".join(f"ld.global.b32 %v{j}, [%rd1+{4 * j}];\n" for j in range(16))
    body += SHIFT.format(registers=registers, start=(32 * quarter << 16) + column)
    body += "".join(f"st.global.b32 [%rd2+{4 * j}], %v{j};\n" for j in range(16))
    return MOVE.format(body=body)


@pytest.mark.parametrize("reverse", [0, 1, 1_000_003])
@pytest.mark.parametrize(("quarter", "column"), [(0, 0), (1, 0), (1, 8), (0, 3)])
def test_tcgen05_shift_moves_32_bytes_to_the_previous_lane(quarter: int, column: int, reverse: int) -> None:
    x = aligned((64, 16), np.uint32)
    y = aligned((64, 16), np.uint32)
    x[:] = np.arange(x.size).reshape(x.shape) + (1 << 20)
    simt.load(shift_source(quarter, column)).launch(
        "k",
        grid=(1,),
        block=(64,),
        args=[x.ctypes.data, y.ctypes.data],
        buffers=[buffer("x", x), buffer("y", y)],
        reverse=reverse,
    )
    expected = x.copy()
    for row in range(31):
        expected[32 * quarter + row, column : column + 8] = x[32 * quarter + row + 1, column : column + 8]
    np.testing.assert_array_equal(y, expected)


UNSUPPORTED = {
    "tcgen05.mma.ws.cta_group::1.kind::f16 [%r4], %rd1, %rd2, %r3, %p1;": "weight-stationary products, .ws",
    "tcgen05.mma.sp.cta_group::1.kind::f16 [%r4], %rd1, %rd2, [%r4], %r3, %p1;": "sparse products",
    "cp.async.bulk.tensor.4d.shared::cta.global.im2col::w.mbarrier::complete_tx::bytes "
    "[%r4], [%rd1, {%r1, %r1, %r1, %r1}], [%r4], {%r1, %r1};": "wide im2col modes",
}


@pytest.mark.parametrize("instruction", UNSUPPORTED)
def test_unsupported_instructions_are_named(instruction: str) -> None:
    with pytest.raises(Unsupported, match=UNSUPPORTED[instruction]):
        simt.load(MOVE.format(body=instruction)).launch("k", grid=(1,), block=(64,), args=[0, 0])


def test_negating_an_integer_product_is_unsupported() -> None:
    with pytest.raises(Unsupported, match=r"negated tcgen05\.mma of integers"):
        simt.load(source(next(case for case in CASES if case.kind == "s8"))).negated()


@pytest.mark.parametrize(
    ("case", "depth"), [(CASES[0], 16), (CASES[9], 8), (CASES[13], 32)], ids=["f16", "tf32", "fp8"]
)
def test_a_product_is_counted_once_per_block(case: Case, depth: int) -> None:
    """The product is one instruction, not one per lane. Its operands are no shared loads by threads."""
    arrays = [aligned(SHARED, np.uint8), aligned((128, 8), np.uint32), aligned((128, case.n), np.uint32)]
    descriptors = [
        place(np.zeros((rows, 32), np.uint8), mode, major, start, arrays[0])
        for rows, mode, major, start in (
            (case.m, case.a_mode or 0, case.a_major, 0),
            (case.n, case.b_mode, case.b_major, B_OFFSET),
        )
    ]
    line = (
        simt.load(source(case))
        .launch(
            "k",
            grid=(1,),
            block=(128,),
            args=[*(array.ctypes.data for array in arrays), *descriptors, 1],
            buffers=[buffer(name, array) for name, array in zip("acd", arrays, strict=True)],
        )
        .lines[2]
    )
    assert line.tcgen05_operations == 2 * 128 * 256 * depth <= line.most_tensor_operations
    assert line.instructions["tensor"] == 128  # a guarded instruction counts the lanes that reach it
    assert line.shared_load_requests == 0
    assert line.wgmma_bytes == 32 * (case.m + case.n)
