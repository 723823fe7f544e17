"""Test tcgen05.cp, and tcgen05.mma with scale factors and elements of 4 and 6 bits (PTX ISA manual, 9.7.16).

The layouts come from the manual and CUTLASS alone. The sums follow Microsoft's MMA-Sim, which its authors compared with
a B200.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from machine.launching import aligned, buffer
from machine.test_narrow_floats import numbers as positive_numbers
from machine.test_tensor_memory import MODES
from machine.warpgroups import place_bits
from warpcheck import simt

Array = np.ndarray[Any, Any]
RNG = np.random.default_rng(11)
SHARED = 40 << 10
B_OFFSET = 16 << 10
SCALES_OFFSET = 32 << 10
SCALE_COLUMN = 256
A_COLUMN = 300
CODES = {"e4m3": 0, "e5m2": 1, "e2m3": 3, "e3m2": 4, "e2m1": 5}
WIDTHS = {"e4m3": 8, "e5m2": 8, "e2m3": 6, "e3m2": 6, "e2m1": 4}


def table_of(name: str) -> Array:
    """Return a table from the codes of a type to their numbers."""
    if name == "e5m2":
        return (np.arange(256) << 8).astype(np.uint16).view(np.float16).astype(float)
    if name == "e4m3":
        codes = np.arange(128)
        magnitudes = (codes % 8 / 8 + (codes >= 8)) * 2.0 ** (np.maximum(codes // 8, 1) - 7)
        magnitudes[127] = math.nan
        return np.concatenate([magnitudes, -magnitudes])
    magnitudes = positive_numbers(name)
    return np.concatenate([magnitudes, -magnitudes])


def scale_table(name: str) -> Array:
    """Return a table from the codes of a scale factor type to their numbers."""
    if name == "ue4m3":
        return np.abs(table_of("e4m3"))
    table = 2.0 ** (np.arange(256.0) - 127)
    table[255] = math.nan
    return table


@dataclass(frozen=True)
class Case:
    """One tcgen05.mma: its kind with modifiers, the types of A and B, and the scale factors per row.

    The scale factors arrive through tcgen05.cp, or through tcgen05.st from one word per lane and column.
    """

    kind: str
    a: str
    b: str
    n: int = 32
    groups: int = 0
    scale: str = "ue8m0"
    ids: tuple[int, int] = (0, 0)
    mode: int = 1
    a_in_tensor: bool = False
    negates: int = 0
    stores_scales: bool = False

    @property
    def depth(self) -> int:
        return 64 if "mxf4" in self.kind else 32

    @property
    def descriptor(self) -> int:
        codes = (1, 1) if self.depth == 64 else (CODES[self.a], CODES[self.b])
        types = codes[0] << 7 | codes[1] << 10 | self.negates << 13 | self.n << 14 | 128 << 20
        if not self.groups:
            return types | 1 << 4
        return types | self.ids[0] << 29 | self.ids[1] << 4 | (self.scale == "ue8m0") << 23


CASES = [
    Case("f8f6f4", "e2m1", "e4m3"),
    Case("f8f6f4", "e5m2", "e3m2", n=48),
    Case("f8f6f4", "e2m3", "e2m1", mode=3, negates=1),
    Case("f8f6f4", "e2m1", "e2m3", a_in_tensor=True),
    Case("f8f6f4", "e3m2", "e2m1", a_in_tensor=True),
    Case("mxf8f6f4.block_scale", "e4m3", "e5m2", n=64, groups=1, ids=(0, 3)),
    Case("mxf8f6f4.block_scale.scale_vec::1X", "e4m3", "e4m3", n=8, groups=1, ids=(2, 1), negates=2),
    Case("mxf8f6f4.block_scale.block32", "e2m1", "e3m2", n=136, groups=1, ids=(1, 0), mode=3),
    Case("mxf4.block_scale", "e2m1", "e2m1", n=64, groups=2),
    Case("mxf4.block_scale.scale_vec::2X", "e2m1", "e2m1", n=256, groups=2, ids=(2, 0), mode=0),
    Case("mxf4nvf4.block_scale.block32", "e2m1", "e2m1", groups=2, ids=(0, 2), negates=3),
    Case("mxf4nvf4.block_scale.scale_vec::4X", "e2m1", "e2m1", n=128, groups=4, scale="ue4m3"),
    Case("mxf4nvf4.block_scale.block16", "e2m1", "e2m1", n=96, groups=4, scale="ue8m0", mode=2),
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
    copies = scales = scale_stores = ""
    if case.stores_scales:
        scale_stores = "".join(f"ld.global.b32 %d{j}, [%rd2+{4 * j}];\n" for j in range(8))
        scale_stores += f"tcgen05.st.sync.aligned.32x32b.x8.b32 [%r6+{SCALE_COLUMN}], {words};"
    elif case.groups:
        # One copy brings the scale factors of A. Each further one brings those of 128 columns of B.
        for number in range(1 + (case.n + 127) // 128):
            copies += f"@%p2 tcgen05.cp.cta_group::1.32x128b.warpx4 [%r5+{SCALE_COLUMN + 4 * number}], %rd4;\n"
            copies += "add.u64 %rd4, %rd4, 32;\n"
    if case.groups:
        scales = f", [%r5+{SCALE_COLUMN}], [%r5+{SCALE_COLUMN + 4}]"
    a = "%rd7"
    if case.a_in_tensor:
        packed = {4: ".b8x16.b4x16_p64", 6: ".b8x16.b6x16_p32"}[WIDTHS[case.a]]
        copies += f"@%p2 tcgen05.cp.cta_group::1.128x256b{packed} [%r5+{A_COLUMN}], %rd7;\n"
        a = f"[%r5+{A_COLUMN}]"
    return f""".version 8.7
.target sm_100a
.address_size 64
.visible .entry k(.param .u64 a, .param .u64 d, .param .u64 da, .param .u64 db, .param .u64 ds)
{{
.reg .b32 %r<12>; .reg .b32 %d<8>; .reg .b64 %rd<9>; .reg .pred %p<5>;
.shared .align 1024 .b8 memory[{SHARED}];
.shared .align 8 .b8 bar[8];
.shared .align 4 .b8 base[4];
.loc 1 1 1
mov.u32 %r1, %tid.x;
ld.param.u64 %rd1, [a];
ld.param.u64 %rd3, [d];
ld.param.u64 %rd7, [da];
ld.param.u64 %rd8, [db];
ld.param.u64 %rd4, [ds];
setp.eq.u32 %p2, %r1, 0;
setp.eq.u32 %p1, %r1, %r1;
setp.lt.u32 %p3, %r1, 32;
mov.u32 %r3, memory;
shr.u32 %r4, %r3, 4;
cvt.u64.u32 %rd5, %r4;
add.u64 %rd7, %rd7, %rd5;
add.u64 %rd8, %rd8, %rd5;
mad.wide.u32 %rd2, %r1, 32, %rd4;
add.u64 %rd4, %rd4, %rd5;
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
mad.wide.u32 %rd6, %r1, {4 * case.n}, %rd3;
{loads}
{scale_stores}
tcgen05.wait::st.sync.aligned;
fence.proxy.async;
tcgen05.fence::before_thread_sync;
bar.sync 0;
tcgen05.fence::after_thread_sync;
mov.u32 %r9, {case.descriptor};
.loc 1 2 1
{copies}
@%p2 tcgen05.mma.cta_group::1.kind::{case.kind} [%r5], {a}, %rd8, %r9{scales}, %p1;
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


def pack(codes: Array, name: str, depth: int) -> Array:
    """Return the 32 bytes of each row. Elements of 4 and 6 bits are padded as TMA does, except for the 4-bit kinds."""
    if depth == 64:
        pairs: Array = (codes[:, ::2] | codes[:, 1::2] << 4).astype(np.uint8)
        return pairs
    width = WIDTHS[name]
    packed = np.zeros((len(codes), 32), np.uint8)
    for row, values in enumerate(codes):
        for chunk in range(2):
            word = sum(
                int(code) << width * position for position, code in enumerate(values[16 * chunk : 16 * chunk + 16])
            )
            packed[row, 16 * chunk : 16 * chunk + 16] = np.frombuffer(word.to_bytes(16, "little"), np.uint8)
    return packed


def place(bits: Array, mode: int, start: int, image: Array) -> int:
    descriptor: int = place_bits(bits, mode, 0, start, image) & (1 << 46) - 1 | 1 << 46 | MODES[mode] << 61
    return descriptor


def place_scales(codes: Array, groups: int, first: int, start: int, image: Array) -> None:
    """Put scale factors (rows, groups) into shared memory: 16 bytes for each of 32 lanes, four bytes per column."""
    for row, values in enumerate(codes):
        offset = start + row // 128 * 512 + row % 32 * 16 + row % 128 // 32 * 4 + first
        image[offset : offset + groups] = values


def power_of(value: float, min_exponent: int) -> int:
    """Return the exponent of a number in a tensor core, where a subnormal number has the smallest normal exponent."""
    return max(math.frexp(value)[1] - 1, min_exponent) if value else -126


def rounded(terms: list[Fraction], power: int, fraction: int) -> np.float32:
    """Truncate the terms below 2**(power - fraction), and return their sum, truncated to float32."""
    unit = Fraction(2) ** (power - fraction)
    total = sum((math.trunc(term / unit) for term in terms), 0) * unit
    if not total:
        return np.float32(0)
    bits = Fraction(2) ** (math.frexp(float(abs(total)))[1] - 24)
    return np.float32(float(math.trunc(total / bits) * bits))


def expected(
    case: Case, a: Array, b: Array, old: float, a_scales: Array, b_scales: Array, fraction: int = 0
) -> np.float32:
    """Return one element of D as MMA-Sim computes it.

    `fraction` is the number of bits below the largest term that the sum keeps, instead of MMA-Sim's number.
    """
    products = [Fraction(x) * Fraction(y) for x, y in zip(a, b, strict=True)]
    powers = [power_of(old, -126)]
    terms = [Fraction(old)]
    if case.depth == 64:
        block = 64 // case.groups
        for first in range(0, 64, 16):
            factors = float(a_scales[first // block]), float(b_scales[first // block])
            terms.append(sum(products[first : first + 16], Fraction(0)) * Fraction(factors[0]) * Fraction(factors[1]))
            powers.append(sum(power_of(factor, -6 if case.scale == "ue4m3" else -127) for factor in factors))
        # The 4-bit kinds keep 35 bits below the largest term.
        return rounded(terms, max(powers), fraction or 35)
    min_exponents = {"e4m3": -6, "e5m2": -14, "e2m3": 0, "e3m2": -2, "e2m1": 0}
    factor = Fraction(float(a_scales[0])) * Fraction(float(b_scales[0])) if case.groups else Fraction(1)
    for product, x, y in zip(products, a, b, strict=True):
        if product:
            terms.append(product * factor)
            power = power_of(float(x), min_exponents[case.a]) + power_of(float(y), min_exponents[case.b])
            powers.append(power + math.frexp(float(factor))[1] - 1)
    # All other kinds keep 25 bits below the largest term.
    return rounded(terms, max(powers), fraction or 25)


@dataclass
class Operands:
    """Random codes and scale factors of a product, and the arguments that the kernel gets for them."""

    image: Array
    d: Array
    descriptors: list[int]
    a: Array
    b: Array
    factors: list[Array]

    def expected(self, case: Case, old: Array, row: int, column: int, fraction: int = 0) -> np.float32:
        """Return an element of D. See the function ``expected``."""
        a_scales, b_scales = self.factors
        number = float(old[row, column])
        return expected(case, self.a[row], self.b[column], number, a_scales[row], b_scales[column], fraction)


def generate_operands(case: Case, rng: np.random.Generator) -> Operands:
    """Choose from all finite numbers of the types, and scale factors around 1 or all of ue4m3."""
    codes = [
        rng.choice(np.flatnonzero(np.isfinite(table_of(name))), (rows, case.depth))
        for name, rows in ((case.a, 128), (case.b, case.n))
    ]
    low, high = (0, 127) if case.scale == "ue4m3" else (110, 140)
    scales = [rng.integers(low, high, (rows, max(case.groups, 1))) for rows in (128, case.n)]
    image = aligned(SHARED, np.uint8)
    d = aligned((128, case.n), np.float32)
    d[:] = rng.standard_normal((128, case.n)) * 2.0 ** rng.integers(-20, 20, (128, case.n))
    descriptors = [
        place(pack(codes[0], case.a, case.depth), case.mode, 0, image),
        place(pack(codes[1], case.b, case.depth), case.mode, B_OFFSET, image),
        SCALES_OFFSET >> 4 | (128 >> 4) << 32 | 1 << 46,
    ]
    if case.groups:
        place_scales(scales[0], case.groups, case.ids[0], SCALES_OFFSET, image)
        place_scales(scales[1], case.groups, case.ids[1], SCALES_OFFSET + 512, image)
    signs = [(-1) ** (case.negates >> operand & 1) for operand in range(2)]
    a, b = (table_of(name)[code] * sign for name, code, sign in zip((case.a, case.b), codes, signs, strict=True))
    return Operands(image, d, descriptors, a, b, [scale_table(case.scale)[code] for code in scales])


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.kind}-{case.a}-{case.b}-{case.n}")
def test_elements_of_d_equal_those_of_mma_sim(case: Case) -> None:
    operands = generate_operands(case, RNG)
    image = operands.image
    d = operands.d
    old = d.copy()
    simt.load(source(case)).launch(
        "k",
        grid=(1,),
        block=(128,),
        args=[image.ctypes.data, d.ctypes.data, *operands.descriptors],
        buffers=[buffer("a", image), buffer("d", d)],
    )
    a = operands.a
    b = operands.b
    if case.groups:
        a, b = (
            numbers * np.repeat(factors, case.depth // case.groups, 1)
            for numbers, factors in zip((a, b), operands.factors, strict=True)
        )
    exact = a @ b.T + old
    np.testing.assert_allclose(d, exact, rtol=1e-5, atol=1e-5 * np.abs(exact).max())
    for row, column in zip(RNG.integers(0, 128, 300), RNG.integers(0, case.n, 300), strict=True):
        assert d[row, column] == operands.expected(case, old, row, column), (row, column)


# For each shape of tcgen05.cp: its rows, the bytes of a row, and the lanes that receive a row.
LANES: dict[str, tuple[int, int, Callable[[int], list[int]]]] = {
    "128x256b": (128, 32, lambda row: [row]),
    "128x128b": (128, 16, lambda row: [row]),
    "4x256b": (4, 32, lambda row: [32 * row + 5]),
    "32x128b.warpx4": (32, 16, lambda row: [row, row + 32, row + 64, row + 96]),
    "64x128b.warpx2::02_13": (64, 16, lambda row: [row, row + 64]),
    "64x128b.warpx2::01_23": (64, 16, lambda row: [row + row // 32 * 32, row + row // 32 * 32 + 32]),
}

COPY = """.version 8.7
.target sm_100a
.address_size 64
.visible .entry k(.param .u64 a, .param .u64 d, .param .u64 ds)
{{
.reg .b32 %r<12>; .reg .b32 %d<8>; .reg .b64 %rd<9>; .reg .pred %p<5>;
.shared .align 1024 .b8 memory[8192];
.shared .align 8 .b8 bar[8];
.shared .align 4 .b8 base[4];
mov.u32 %r1, %tid.x;
ld.param.u64 %rd1, [a];
ld.param.u64 %rd3, [d];
ld.param.u64 %rd4, [ds];
setp.eq.u32 %p2, %r1, 0;
setp.lt.u32 %p3, %r1, 32;
mov.u32 %r3, memory;
shr.u32 %r4, %r3, 4;
cvt.u64.u32 %rd5, %r4;
add.u64 %rd4, %rd4, %rd5;
@%p3 tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [base], 32;
@%p2 mbarrier.init.shared::cta.b64 [bar], 1;
mad.lo.u32 %r3, %r1, 64, %r3;
mad.wide.u32 %rd1, %r1, 64, %rd1;
{fill}
bar.sync 0;
ld.shared.u32 %r5, [base];
and.b32 %r7, %r1, 96;
shl.b32 %r7, %r7, 16;
add.u32 %r6, %r5, %r7;
mad.wide.u32 %rd6, %r1, 32, %rd3;
mov.b32 %d0, 0x77777777;
tcgen05.st.sync.aligned.32x32b.x8.b32 [%r6], {{%d0, %d0, %d0, %d0, %d0, %d0, %d0, %d0}};
tcgen05.wait::st.sync.aligned;
fence.proxy.async;
tcgen05.fence::before_thread_sync;
bar.sync 0;
tcgen05.fence::after_thread_sync;
@%p2 tcgen05.cp.cta_group::1.{shape} [%r5+{offset}], %rd4;
@%p2 tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [bar];
wait:
mbarrier.try_wait.parity.shared::cta.b64 %p4, [bar], 0;
@!%p4 bra wait;
tcgen05.fence::after_thread_sync;
tcgen05.ld.sync.aligned.32x32b.x8.b32 {{%d0, %d1, %d2, %d3, %d4, %d5, %d6, %d7}}, [%r6];
tcgen05.wait::ld.sync.aligned;
{store}
tcgen05.fence::before_thread_sync;
bar.sync 0;
@%p3 tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r5, 32;
ret;
}}
"""


# Without a swizzle, eight rows of 16 bytes are contiguous. The next eight rows are 128 bytes away, and the second half
# of each row is 2048 bytes away.
COPY_DESCRIPTOR = (2048 >> 4) << 16 | (128 >> 4) << 32 | 1 << 46


def copy_source(shape: str, format_bits: int) -> str:
    """Return a kernel that fills tensor memory with 0x77, copies to it, and stores its contents."""
    name = shape + {0: "", 4: ".b8x16.b4x16_p64", 6: ".b8x16.b6x16_p32"}[format_bits]
    quads = [f"ld.global.v4.b32 {{%d0, %d1, %d2, %d3}}, [%rd1+{16 * n}];\n" for n in range(4)]
    quads = [f"{load}st.shared.v4.b32 [%r3+{16 * n}], {{%d0, %d1, %d2, %d3}};\n" for n, load in enumerate(quads)]
    return COPY.format(
        shape=name,
        offset=5 << 16 if shape == "4x256b" else 0,
        fill="".join(quads),
        store="".join(f"st.global.b32 [%rd6+{4 * n}], %d{n};\n" for n in range(8)),
    )


@pytest.mark.parametrize("format_bits", [0, 4, 6])
@pytest.mark.parametrize("shape", LANES)
def test_tcgen05_cp_puts_rows_into_lanes(shape: str, format_bits: int) -> None:
    rows, size, lanes_of = LANES[shape]
    image = aligned(8192, np.uint8)
    d = aligned((128, 32), np.uint8)
    image[:] = RNG.integers(0, 256, 8192)
    simt.load(copy_source(shape, format_bits)).launch(
        "k",
        grid=(1,),
        block=(128,),
        args=[image.ctypes.data, d.ctypes.data, COPY_DESCRIPTOR],
        buffers=[buffer("a", image), buffer("d", d)],
    )
    expected_lanes = np.full((128, 32), 0x77, np.uint8)
    for row in range(rows):
        chunks = [image[16 * row + half : 16 * row + half + 16] for half in range(0, 128 * size, 2048)]
        if format_bits:
            words = [int.from_bytes(chunk.tobytes(), "little") for chunk in chunks]
            mask = (1 << format_bits) - 1
            chunks = [np.array([word >> format_bits * n & mask for n in range(16)], np.uint8) for word in words]
        for lane in lanes_of(row):
            expected_lanes[lane, :size] = np.concatenate(chunks)
    np.testing.assert_array_equal(d, expected_lanes)
