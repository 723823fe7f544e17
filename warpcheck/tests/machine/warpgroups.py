"""Run one wgmma as a kernel, with matrices in shared memory as in PTX ISA manual, 9.7.15."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from machine.launching import aligned, buffer
from warpcheck import simt

__all__ = [
    "B_OFFSET",
    "DTYPES",
    "SHARED",
    "Array",
    "Case",
    "accumulator_registers",
    "fragments",
    "generate_operands",
    "launch",
    "place_bits",
    "prepare",
    "source",
]

RNG = np.random.default_rng(7)
Array = np.ndarray[Any, Any]
SPANS = {0: 16, 1: 128, 2: 64, 3: 32}  # for each swizzle mode of a descriptor, the bytes of a row
BYTES = {"f16": 2, "bf16": 2, "tf32": 4, "e4m3": 1, "e5m2": 1, "s8": 1, "u8": 1}
SHARED = 48 << 10
B_OFFSET = 16 << 10


@dataclass(frozen=True)
class Case:
    """One wgmma: columns, types, swizzle modes and majors of A and B. A is in registers if its mode is None."""

    n: int
    kind: str
    to: str = "f32"
    a_mode: int | None = 1
    b_mode: int = 1
    a_major: int = 0
    b_major: int = 0
    b_kind: str = ""
    signs: tuple[int, int] = (1, 1)
    keep: bool = True
    base: int = 0
    saturates: bool = False

    @property
    def depth(self) -> int:
        return 32 // BYTES[self.kind]

    @property
    def words(self) -> int:
        """Return the number of registers of D per thread."""
        return self.n // (4 if self.to == "f16" else 2)


def encode(values: Array, kind: str) -> Array:
    """Return numbers as the bits of a type, in unsigned integers."""
    if kind == "tf32":
        return values.astype(np.float32).view(np.uint32)
    if kind == "bf16":
        return (values.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
    if kind == "f16":
        return values.astype(np.float16).view(np.uint16)
    if kind == "e5m2":
        return (values.astype(np.float16).view(np.uint16) >> 8).astype(np.uint8)
    if kind == "e4m3":  # small integers are the upper bits of an f16 with another exponent bias
        half = values.astype(np.float16).view(np.uint16).astype(int)
        magnitude = np.maximum((half & 0x7FFF) - (8 << 10), 0) >> 7
        bits: Array = (half >> 8 & 0x80 | magnitude).astype(np.uint8)
        return bits
    return values.astype(np.int64).astype(np.uint8)


def place(matrix: Array, kind: str, mode: int, major: int, start: int, image: Array, base: int = 0) -> int:
    """Put a matrix (mn, k) into shared memory. Return its descriptor, with the base offset ``base``."""
    return place_bits(encode(matrix, kind), mode, major, start, image, base)


def place_bits(bits: Array, mode: int, major: int, start: int, image: Array, base: int = 0) -> int:
    """Put a matrix whose elements are unsigned integers into shared memory. Return its descriptor."""
    size, span, (rows, depth) = bits.itemsize, SPANS[mode], bits.shape
    tile = 16 // size
    if major:
        width = span // size
        lead, stride = (128 * (rows // tile), 128) if mode == 0 else (span * depth, span * 8)
    else:
        lead, stride = (128 * (rows // 8), 128) if mode == 0 else (16, span * 8)
    for mn in range(rows):
        for k in range(depth):
            if major and mode:
                offset = mn % width * size + mn // width * lead + k % 8 * span + k // 8 * stride
            elif major:
                offset = mn % tile * size + mn // tile * stride + k % 8 * 16 + k // 8 * lead
            elif mode:
                offset = mn % 8 * span + mn // 8 * stride + k * size
            else:
                offset = mn % 8 * 16 + mn // 8 * stride + k // tile * lead + k % tile * size
            offset += start
            offset ^= ((offset >> 7) - base & span // 16 - 1) << 4
            image[offset : offset + size] = bits[mn : mn + 1, k : k + 1].reshape(-1).view(np.uint8)
    descriptor: int = start >> 4 | lead >> 4 << 16 | stride >> 4 << 32 | base << 49 | mode << 62
    return descriptor


def source(case: Case, after: str = "", before: str = "wgmma.fence.sync.aligned;", wait: str = "") -> str:
    """Return a kernel that fills shared memory from a, loads D from d and A's registers from c, and stores D."""
    sums = [f"%d{n}" for n in range(case.words)]
    from_registers = case.a_mode is None
    a = "{%a0, %a1, %a2, %a3}" if from_registers else "%rd7"
    b_kind = case.b_kind or case.kind
    constants = [] if case.to == "s32" else [str(sign) for sign in case.signs]
    if BYTES[case.kind] == 2:
        constants += [str(case.a_major)] * (not from_registers) + [str(case.b_major)]
    saturates = ".satfinite" * case.saturates
    name = f"wgmma.mma_async.sync.aligned.m64n{case.n}k{case.depth}{saturates}.{case.to}.{case.kind}.{b_kind}"
    loads = "\n".join(f"ld.global.b32 {name}, [%rd4+{4 * n}];" for n, name in enumerate(sums))
    stores = "\n".join(f"st.global.b32 [%rd4+{4 * n}], {name};" for n, name in enumerate(sums))
    operands = ", ".join([f"{{{', '.join(sums)}}}", a, "%rd8", "%p1", *constants])
    return f""".version 8.5
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 a, .param .u64 c, .param .u64 d, .param .u64 da, .param .u64 db, .param .u32 keep)
{{
.reg .b32 %r<9>; .reg .b32 %a<4>; .reg .b32 %d<{case.words}>; .reg .b64 %rd<9>; .reg .pred %p<3>;
.shared .align 1024 .b8 memory[{SHARED}];
.loc 1 1 1
mov.u32 %r1, %tid.x;
ld.param.u64 %rd1, [a];
ld.param.u64 %rd2, [c];
ld.param.u64 %rd3, [d];
ld.param.u64 %rd7, [da];
ld.param.u64 %rd8, [db];
ld.param.u32 %r2, [keep];
setp.ne.u32 %p1, %r2, 0;
mov.u32 %r3, memory;
shr.u32 %r4, %r3, 4;
cvt.u64.u32 %rd5, %r4;
add.u64 %rd7, %rd7, %rd5;
add.u64 %rd8, %rd8, %rd5;
mad.lo.u32 %r3, %r1, 16, %r3;
mad.wide.u32 %rd1, %r1, 16, %rd1;
mov.u32 %r4, 0;
next:
ld.global.v4.b32 {{%r5, %r6, %r7, %r8}}, [%rd1];
st.shared.v4.b32 [%r3], {{%r5, %r6, %r7, %r8}};
add.u32 %r3, %r3, 2048;
add.u64 %rd1, %rd1, 2048;
add.u32 %r4, %r4, 2048;
setp.lt.u32 %p2, %r4, {SHARED};
@%p2 bra next;
mad.wide.u32 %rd2, %r1, 16, %rd2;
ld.global.v4.b32 {{%a0, %a1, %a2, %a3}}, [%rd2];
mad.wide.u32 %rd4, %r1, {4 * case.words}, %rd3;
.loc 1 2 1
{loads}
fence.proxy.async;
bar.sync 0;
.loc 1 3 1
{before}
.loc 1 4 1
{name} {operands};
wgmma.commit_group.sync.aligned;
.loc 1 5 1
{after}
.loc 1 6 1
{wait or "wgmma.wait_group.sync.aligned 0;"}
.loc 1 7 1
{stores}
ret;
}}
.file 1 "mine.cu"
"""


def fragments(matrix: Array) -> Array:
    """Return the registers of A, a row per thread."""
    per_word = 4 // matrix.itemsize
    registers = np.empty((128, 4, per_word), matrix.dtype)
    for thread in range(128):
        g, t = thread % 32 // 4, thread % 4
        for word in range(4):
            row, k = thread // 32 * 16 + g + 8 * (word % 2), word // 2 * 4 * per_word + per_word * t
            registers[thread, word] = matrix[row, k : k + per_word]
    return registers.reshape(128, -1).view(np.uint32)


def accumulator_registers(case: Case, d: Array) -> Array:
    """Return the registers of D, a row per thread, as elements of d (64, n)."""
    thread = np.arange(128)[:, None]
    register = np.arange(64 * case.n // 128)[None]
    row = thread // 32 * 16 + thread % 32 // 4 + 8 * (register // 2 % 2)
    values: Array = d[row, register // 4 * 8 + 2 * (thread % 4) + register % 2]
    return values


DTYPES = {"f32": np.float32, "f16": np.float16, "s32": np.int32}


def launch(
    case: Case,
    text: str,
    descriptors: tuple[int, int],
    image: Array,
    a: Array,
    d: Array,
    threads: int = 128,
    negated: bool = False,
) -> simt.Launch:
    arrays = [image, a, d]
    buffers = [buffer(name, array) for name, array in zip("acd", arrays, strict=True)]
    arguments = [*(array.ctypes.data for array in arrays), *descriptors, int(case.keep)]
    module = simt.load(text).negated() if negated else simt.load(text)
    return module.launch("k", grid=(1,), block=(threads,), args=arguments, buffers=buffers)


def generate_operands(case: Case) -> tuple[Array, Array, Array]:
    """Return A, B, and D with small integers, so that every sum is exact."""
    low = 0 if "u8" in (case.kind, case.b_kind) else -4
    a, b = (RNG.integers(low, 5, shape) for shape in ((64, case.depth), (case.n, case.depth)))
    return a, b, RNG.integers(-50, 50, (64, case.n))


def prepare(case: Case, a: Array, b: Array) -> tuple[Array, tuple[int, int], Array]:
    image = aligned(SHARED, np.uint8)
    registers = aligned((128, 4), np.uint32)
    descriptors = [
        0,
        place(b, case.b_kind or case.kind, case.b_mode, case.b_major, B_OFFSET + 128 * case.base, image, case.base),
    ]
    if case.a_mode is None:
        registers[:] = fragments(encode(a, case.kind))
    else:
        descriptors[0] = place(a, case.kind, case.a_mode, case.a_major, 0, image)
    return image, (descriptors[0], descriptors[1]), registers
