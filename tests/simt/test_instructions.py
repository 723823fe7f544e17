"""Single instructions against numpy, on random and on special values, in every lane."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from kernelpath import simt
from tests.simt.conftest import aligned, buffer

RNG = np.random.default_rng(1)
COUNT = 2048
TYPES = {"u16": np.uint16, "s16": np.int16, "u32": np.uint32, "s32": np.int32, "u64": np.uint64, "s64": np.int64}
TYPES |= {"f32": np.float32, "f64": np.float64, "f16": np.float16, "b32": np.uint32, "b64": np.uint64}
SPECIAL = [0.0, -0.0, 1.0, -1.0, math.inf, -math.inf, math.nan, 1e-40, -1e-40, 3.4e38, 0.5, 1.5, 2.5, -2.5, 1e10, -1e10]


def bits(kind: str) -> int:
    return 16 if kind == "bf16" else 8 * np.dtype(TYPES[kind]).itemsize


def numbers(kind: str) -> tuple[np.ndarray, np.ndarray]:
    """Random values of a type, the awkward ones first in every combination of the first two sources."""
    dtype = TYPES[kind]
    values = aligned(COUNT, dtype)
    if np.issubdtype(dtype, np.floating):
        with np.errstate(over="ignore"):
            values[...] = (RNG.standard_normal(COUNT) * 10.0 ** RNG.integers(-6, 6, COUNT)).astype(dtype)
            special = np.array(SPECIAL).astype(dtype)
    else:
        info = np.iinfo(dtype)
        values[...] = RNG.integers(info.min, info.max, COUNT, dtype, endpoint=True)
        special = np.array([0, 1, 2, 31, 32, 33, info.max, info.min, info.max - 1, info.max // 2], dtype)
    return values, special


def sources(kinds: list[str]) -> list[np.ndarray]:
    arrays = []
    for place, kind in enumerate(kinds):
        values, special = numbers(kind)
        n = len(special)
        grid = np.repeat(special, n) if place == 0 else np.tile(special, n) if place == 1 else np.resize(special, n * n)
        values[: n * n] = grid
        arrays.append(values)
    return arrays


def execute(instruction: str, kinds: list[str], result: str, arrays: list[np.ndarray]) -> np.ndarray:
    """Run ``instruction d, s0, s1, …``, or a template with {d}, {0}, {1} …, in COUNT threads."""
    letters = [f"%s{n}" for n in range(len(kinds))]
    lines = []
    for n, kind in enumerate(kinds):
        size = bits(kind) // 8
        lines += [f"ld.param.u64 %rd1, [p{n}];", f"mad.wide.u32 %rd2, %r1, {size}, %rd1;"]
        lines += [f"ld.global.b{bits(kind)} %s{n}, [%rd2];"]
    size = bits(result) // 8
    template = instruction if "{d}" in instruction else f"{instruction} {', '.join(['%d', *letters])};"
    lines += [template.replace("{d}", "%d").replace("{", "%s").replace("}", ""), "ld.param.u64 %rd1, [out];"]
    lines += [f"mad.wide.u32 %rd2, %r1, {size}, %rd1;", f"st.global.b{8 * size} [%rd2], %d;", "ret;"]
    registers = [f".reg .b{bits(kind)} %s{n};" for n, kind in enumerate(kinds)] + [f".reg .b{8 * size} %d;"]
    params = ", ".join(f".param .u64 {name}" for name in [*(f"p{n}" for n in range(len(kinds))), "out"])
    start = "mov.u32 %r2, %ctaid.x; mov.u32 %r3, %ntid.x; mov.u32 %r4, %tid.x; mad.lo.s32 %r1, %r2, %r3, %r4;"
    body = "\n".join([*registers, ".reg .b32 %r<9>; .reg .b64 %rd<9>;", start, *lines])
    text = f".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k({params}) {{ {body} }}"
    out = aligned(COUNT, TYPES.get(result, np.uint16))
    every = [*arrays, out]
    buffers = [buffer(f"x{n}", array) for n, array in enumerate(every)]
    simt.load(text).launch(
        "k", grid=(COUNT // 128,), block=(128,), args=[a.ctypes.data for a in every], buffers=buffers
    )
    return out


def check(instruction: str, kinds: str, result: str, expected: Callable[..., Any]) -> None:
    names = kinds.split()
    arrays = sources(names)
    got = execute(instruction, names, result, arrays)
    with np.errstate(all="ignore"):
        want = np.array([expected(*values) for values in zip(*arrays, strict=True)], object).astype(TYPES[result])
    assert same(got, want), [(*v, g, w) for *v, g, w in zip(*arrays, got, want, strict=True) if not same(g, w)][:5]


def same(got: Any, want: Any) -> bool:
    """Bit for bit, but for the payload of NaN."""
    got, want = np.atleast_1d(got), np.atleast_1d(want)
    if not np.issubdtype(got.dtype, np.floating):
        return bool((got == want).all())
    unsigned = np.dtype(f"u{got.dtype.itemsize}")
    both_nan = np.isnan(got) & np.isnan(want)
    return bool((both_nan | (got.view(unsigned) == want.view(unsigned))).all())


def wrapped(value: int, width: int, signed: bool) -> int:
    value &= (1 << width) - 1
    return value - (1 << width) if signed and value >> (width - 1) else value


INTEGERS: dict[str, Callable[..., int]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul.lo": lambda a, b: a * b,
    "min": min,
    "max": max,
}


@pytest.mark.parametrize("kind", ["u16", "s16", "u32", "s32", "u64", "s64"])
@pytest.mark.parametrize("name", INTEGERS)
def test_integer_arithmetic(name, kind):
    rule = INTEGERS[name]
    check(
        f"{name}.{kind}", f"{kind} {kind}", kind, lambda a, b: wrapped(rule(int(a), int(b)), bits(kind), kind[0] == "s")
    )


@pytest.mark.parametrize("kind", ["u32", "s32", "u64", "s64"])
def test_high_half_of_a_product(kind):
    width = bits(kind)
    check(
        f"mul.hi.{kind}", f"{kind} {kind}", kind, lambda a, b: wrapped(int(a) * int(b) >> width, width, kind[0] == "s")
    )


def test_wide_multiply_add():
    check("mad.wide.s32", "s32 s32 s64", "s64", lambda a, b, c: wrapped(int(a) * int(b) + int(c), 64, True))
    check("mul.wide.u32", "u32 u32", "u64", lambda a, b: int(a) * int(b))


@pytest.mark.parametrize("kind", ["u32", "s32", "u64", "s64"])
def test_division_truncates(kind):
    def quotient(a: int, b: int) -> int:
        a, b = int(a), int(b)
        if b == 0:
            return wrapped(-1, bits(kind), kind[0] == "s")
        return wrapped(abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1), bits(kind), kind[0] == "s")

    def rest(a: int, b: int) -> int:
        return (
            int(a)
            if b == 0
            else int(math.fmod(int(a), int(b)))
            if abs(int(a)) < 1 << 50
            else int(a) - int(b) * quotient(a, b)
        )

    check(f"div.{kind}", f"{kind} {kind}", kind, quotient)
    check(f"rem.{kind}", f"{kind} {kind}", kind, lambda a, b: wrapped(rest(a, b), bits(kind), kind[0] == "s"))


@pytest.mark.parametrize(("kind", "signed"), [("u32", False), ("s32", True), ("u64", False), ("s64", True)])
def test_shifts_clamp_their_amount(kind, signed):
    width = bits(kind)
    left = lambda a, n: wrapped(int(a) << min(int(n), width), width, signed)  # noqa: E731
    right = lambda a, n: wrapped(int(a) >> min(int(n), width), width, signed)  # noqa: E731
    check(f"shl.b{width}", f"{kind} u32", kind, left)
    check(f"shr.{kind}", f"{kind} u32", kind, right)


def test_bits():
    check("popc.b32", "u32", "u32", lambda a: int(a).bit_count())
    check("popc.b64", "u64", "u32", lambda a: int(a).bit_count())
    check("clz.b32", "u32", "u32", lambda a: 32 - int(a).bit_length())
    check("brev.b32", "u32", "u32", lambda a: int(f"{int(a):032b}"[::-1], 2))
    check("bfind.u32", "u32", "u32", lambda a: (int(a).bit_length() - 1) & 0xFFFFFFFF)
    check("bfind.s32", "s32", "u32", lambda a: (int(~a if a < 0 else a).bit_length() - 1) & 0xFFFFFFFF)
    check("cnot.b32", "u32", "u32", lambda a: int(a == 0))
    check("not.b16", "u16", "u16", lambda a: ~a)
    check("shf.l.wrap.b32 {d}, {0}, {1}, 40;", "u32 u32", "u32", lambda a, b: (int(b) << 8 | int(a) >> 24) & 0xFFFFFFFF)
    check("shf.r.clamp.b32 {d}, {0}, {1}, 40;", "u32 u32", "u32", lambda a, b: b)


@pytest.mark.parametrize("table", [0x80, 0xFE, 0x96, 0xCA, 0x1B])
def test_lop3(table):
    def expected(a: int, b: int, c: int) -> int:
        rows = [row for row in range(8) if table >> row & 1]
        terms = [(a if row & 4 else ~a) & (b if row & 2 else ~b) & (c if row & 1 else ~c) for row in rows]
        return int(np.bitwise_or.reduce(terms))

    check(f"lop3.b32 {{d}}, {{0}}, {{1}}, {{2}}, {table};", "u32 u32 u32", "u32", expected)


@pytest.mark.parametrize("kind", ["u32", "s32", "u64", "s64"])
@pytest.mark.parametrize(("place", "length"), [(0, 8), (5, 7), (28, 8), (31, 1), (0, 32), (40, 4), (3, 0)])
def test_bit_fields(kind, place, length):
    width = bits(kind)

    def extract(a: int) -> int:
        """As the manual's pseudocode for bfe does it, bit by bit."""
        a = int(a) & (1 << width) - 1
        sign = 0
        if kind[0] == "s" and length:
            sign = a >> min(place + length - 1, width - 1) & 1
        value = 0
        for bit in range(width):
            inside = bit < length and place + bit < width
            value |= (a >> place + bit & 1 if inside else sign) << bit
        return wrapped(value, width, kind[0] == "s")

    check(f"bfe.{kind} {{d}}, {{0}}, {place}, {length};", kind, kind, extract)


@pytest.mark.parametrize(("place", "length"), [(0, 8), (5, 7), (28, 8), (31, 1), (0, 32), (40, 4), (3, 0)])
def test_bit_field_insert(place, length):
    mask = ((1 << length) - 1) << place & 0xFFFFFFFF
    expected = lambda a, b: int(a) << place & mask | int(b) & ~mask & 0xFFFFFFFF  # noqa: E731
    check(f"bfi.b32 {{d}}, {{0}}, {{1}}, {place}, {length};", "u32 u32", "u32", expected)


@pytest.mark.parametrize("selector", [0x3210, 0x7654, 0x5410, 0x0123, 0xFA98, 0x8888])
def test_byte_permute(selector):
    def expected(a: int, b: int) -> int:
        both = (int(a) | int(b) << 32).to_bytes(8, "little")
        chosen = [selector >> 4 * n & 15 for n in range(4)]
        return int.from_bytes([(both[c & 7] >> 7) * 255 if c & 8 else both[c] for c in chosen], "little")

    check(f"prmt.b32 {{d}}, {{0}}, {{1}}, {selector};", "u32 u32", "u32", expected)


def test_dot_product_of_bytes():
    def expected(a: int, b: int, c: int) -> int:
        pairs = zip(int(a).to_bytes(4, "little", signed=True), int(b).to_bytes(4, "little", signed=True), strict=True)
        signed = [(wrapped(x, 8, True), wrapped(y, 8, True)) for x, y in pairs]
        return wrapped(int(c) + sum(x * y for x, y in signed), 32, True)

    check("dp4a.s32.s32", "s32 s32 s32", "s32", expected)


# Floats: those that are rounded correctly must agree bit for bit


@pytest.mark.parametrize("kind", ["f32", "f64"])
def test_float_arithmetic(kind):
    number = TYPES[kind]
    check(f"add.{kind}", f"{kind} {kind}", kind, lambda a, b: number(a + b))
    check(f"sub.{kind}", f"{kind} {kind}", kind, lambda a, b: number(a - b))
    check(f"mul.{kind}", f"{kind} {kind}", kind, lambda a, b: number(a * b))
    check(f"div.rn.{kind}", f"{kind} {kind}", kind, lambda a, b: number(a / b))
    check(f"sqrt.rn.{kind}", kind, kind, np.sqrt)
    check(f"neg.{kind}", kind, kind, lambda a: -a)
    check(f"abs.{kind}", kind, kind, abs)


def fused(a: float, b: float, c: float) -> float:
    """a * b + c rounded once to float32: exact fractions, then the nearer of two neighbours."""
    values = [float(v) for v in (a, b, c)]
    if not all(map(math.isfinite, values)):
        return values[0] * values[1] + values[2]
    exact = Fraction(values[0]) * Fraction(values[1]) + Fraction(values[2])
    if exact == 0:
        return values[0] * values[1] + values[2]
    if abs(exact) >= Fraction(2) ** 128:
        return math.copysign(math.inf, exact)
    near = np.float32(float(exact))
    return min(
        (near, np.nextafter(near, np.float32(np.inf)), np.nextafter(near, np.float32(-np.inf))),
        key=lambda v: (
            abs(Fraction(float(v)) - exact) if np.isfinite(v) else Fraction(2) ** 200,
            int(np.float32(v).view(np.uint32)) & 1,
        ),
    )


def test_fused_multiply_add_rounds_once():
    check("fma.rn.f32", "f32 f32 f32", "f32", fused)


def extreme(a: float, b: float, least: bool) -> float:
    if math.isnan(a) or math.isnan(b):
        return b if math.isnan(a) else a
    if a == b == 0:
        negative = [v for v in (a, b) if math.copysign(1, v) < 0]
        positive = [v for v in (a, b) if math.copysign(1, v) > 0]
        return ((negative or positive) if least else (positive or negative))[0]
    return min(a, b) if least else max(a, b)


def test_extremes_ignore_nan_and_order_zeros():
    check("min.f32", "f32 f32", "f32", lambda a, b: extreme(a, b, True))
    check("max.f32", "f32 f32", "f32", lambda a, b: extreme(a, b, False))
    check(
        "max.NaN.f32",
        "f32 f32",
        "f32",
        lambda a, b: math.nan if math.isnan(a) or math.isnan(b) else extreme(a, b, False),
    )


def flushed(value: float) -> float:
    return math.copysign(0.0, value) if abs(value) < 2.0**-126 else value


def test_flush_to_zero():
    check("add.ftz.f32", "f32 f32", "f32", lambda a, b: flushed(np.float32(flushed(a)) + np.float32(flushed(b))))
    check("mul.f32", "f32 f32", "f32", lambda a, b: np.float32(a) * np.float32(b))


def test_saturation():
    check("add.sat.f32", "f32 f32", "f32", lambda a, b: 0.0 if math.isnan(a + b) else min(max(a + b, 0.0), 1.0) or 0.0)


def to_float32(exact: Fraction, mode: str) -> float:
    """A number other than 0 in float32, toward zero (rz), down (rm) or up (rp)."""
    away = mode != "rz" and (exact < 0) == (mode == "rm")
    size = abs(exact)
    exponent = -149
    while size >= Fraction(2) ** (exponent + 24):
        exponent += 1
    units = size / Fraction(2) ** exponent
    whole = -int(-units // 1) if away else int(units)
    value = whole * Fraction(2) ** exponent
    if value >= Fraction(2) ** 128:
        value = math.inf if away else Fraction(float(np.finfo(np.float32).max))
    return math.copysign(float(value), exact)


EXACT: dict[str, tuple[int, Callable[..., float], Callable[..., Fraction]]] = {
    "add": (2, lambda a, b: a + b, lambda a, b: a + b),
    "sub": (2, lambda a, b: a - b, lambda a, b: a - b),
    "mul": (2, lambda a, b: a * b, lambda a, b: a * b),
    "fma": (3, lambda a, b, c: a * b + c, lambda a, b, c: a * b + c),
    "div": (2, lambda a, b: np.float64(a) / np.float64(b), lambda a, b: a / b),
}


@pytest.mark.parametrize("mode", ["rz", "rm", "rp"])
@pytest.mark.parametrize("name", EXACT)
def test_directed_rounding(name, mode):
    """Also where the sum of a large and a small number, 1 and 1e-40, has more digits than float64."""
    count, roughly, exactly = EXACT[name]

    def expected(*values: float) -> float:
        numbers = [float(value) for value in values]
        if not all(map(math.isfinite, numbers)) or (name == "div" and numbers[1] == 0):
            return roughly(*numbers)
        exact = exactly(*map(Fraction, numbers))
        if exact:
            return to_float32(exact, mode)
        zero = roughly(*numbers)
        if name in ("mul", "div"):
            return zero
        terms = (
            [numbers[0], -numbers[1]]
            if name == "sub"
            else [math.prod(numbers[:2]), numbers[2]]
            if count == 3
            else numbers
        )
        return -0.0 if mode == "rm" and any(math.copysign(1, term) < 0 for term in terms) else zero

    check(f"{name}.{mode}.f32", " ".join(["f32"] * count), "f32", expected)


@pytest.mark.parametrize("mode", ["rz", "rm", "rp"])
def test_directed_roots(mode):
    def expected(a: float) -> float:
        if not (0 < float(a) < math.inf):
            return float(np.sqrt(a))
        near = np.float32(math.sqrt(float(a)))
        error = Fraction(float(near)) ** 2 - Fraction(float(a))
        wrong = error < 0 if mode == "rp" else error > 0
        return float(np.nextafter(near, np.float32(math.inf if mode == "rp" else 0))) if wrong else float(near)

    check(f"sqrt.{mode}.f32", "f32", "f32", expected)


def test_flush_to_zero_of_halves_has_their_own_threshold():
    def flushed_half(value: Any) -> Any:
        return np.copysign(np.float16(0), value) if abs(value) < 2.0**-14 else value

    text = "mul.ftz.f16 {d}, {0}, {1};"
    check(text, "f16 f16", "f16", lambda a, b: flushed_half(np.float16(flushed_half(a) * flushed_half(b))))


# name, argument → exact value, error that the manual allows (relative, absolute)
APPROXIMATIONS = {
    "rcp.approx.ftz.f32": (lambda x: 1 / x, 2.0**-23, 0),
    "sqrt.approx.f32": (np.sqrt, 2.0**-23, 0),
    "rsqrt.approx.f32": (lambda x: 1 / np.sqrt(x), 2.0**-22.9, 0),
    "ex2.approx.f32": (np.exp2, 2.0**-22.5, 0),
    "lg2.approx.f32": (np.log2, 2.0**-22, 2.0**-22),
    "sin.approx.f32": (np.sin, 0, 2.0**-20.5),
    "cos.approx.f32": (np.cos, 0, 2.0**-20.5),
    "tanh.approx.f32": (np.tanh, 2.0**-11, 0),
}


@pytest.mark.parametrize("name", APPROXIMATIONS)
def test_approximations(name):
    exact, relative, absolute = APPROXIMATIONS[name]
    x = aligned(COUNT)
    x[...] = RNG.uniform(-3, 3, COUNT)
    if name.split(".")[0] in ("sqrt", "rsqrt", "lg2"):
        x[...] = abs(x)
    want = exact(x.astype(np.float64))
    got = execute(name, ["f32"], "f32", [x])
    assert (abs(got - want) <= relative * abs(want) + absolute + 2.0**-149).all()


@pytest.mark.parametrize(
    ("name", "arguments", "values"),
    [
        ("ex2.approx.f32", [math.inf, -math.inf, math.nan, 0, -0.0, -149], [math.inf, 0, math.nan, 1, 1, 2.0**-149]),
        ("ex2.approx.ftz.f32", [-149, -130, 1e-40], [0, 0, 1]),
        ("lg2.approx.f32", [0, -0.0, math.inf, -1, 1, 8], [-math.inf, -math.inf, math.inf, math.nan, 0, 3]),
        ("rcp.approx.ftz.f32", [0, -0.0, math.inf, 1e-40, 2], [math.inf, -math.inf, 0, math.inf, 0.5]),
        ("rsqrt.approx.f32", [0, -0.0, math.inf, -1, 4], [math.inf, -math.inf, 0, math.nan, 0.5]),
        ("tanh.approx.f32", [math.inf, -math.inf, 0, -0.0, 20], [1, -1, 0, -0.0, 1]),
        ("sin.approx.f32", [0, -0.0, math.inf], [0, -0.0, math.nan]),
    ],
)
def test_approximations_of_special_values(name, arguments, values):
    x = aligned(COUNT)
    x[: len(arguments)] = arguments
    assert same(execute(name, ["f32"], "f32", [x])[: len(arguments)], np.array(values, np.float32))


# Half precision


@pytest.mark.parametrize(
    ("name", "rule"), [("add", lambda a, b: a + b), ("sub", lambda a, b: a - b), ("mul", lambda a, b: a * b)]
)
def test_half_arithmetic(name, rule):
    check(f"{name}.f16", "f16 f16", "f16", lambda a, b: np.float16(rule(np.float64(a), np.float64(b))))


def test_half_fma_rounds_once():
    expected = lambda a, b, c: np.float16(np.float64(a) * np.float64(b) + np.float64(c))  # noqa: E731
    check("fma.rn.f16", "f16 f16 f16", "f16", expected)


def to_bf16(values: np.ndarray) -> np.ndarray:
    import torch

    return torch.from_numpy(values.copy()).to(torch.bfloat16).view(torch.int16).numpy().view(np.uint16)


def test_bf16_conversion_is_to_nearest_even():
    (x,) = sources(["f32"])
    x[100:116] = np.array([0x3F808000, 0x3F818000, 0x3F808001, 0x7F7FFFFF] * 4, np.uint32).view(np.float32)
    got = execute("cvt.rn.bf16.f32", ["f32"], "bf16", [x])
    finite = ~np.isnan(x)
    assert (got[finite] == to_bf16(x)[finite]).all()
    assert (got[~finite] == 0x7FFF).all()


def test_packed_halves():
    x, y = (aligned(COUNT, np.uint32) for _ in range(2))
    for array in (x, y):
        array[...] = RNG.standard_normal(2 * COUNT).astype(np.float16).view(np.uint32)
    got = execute("fma.rn.f16x2 {d}, {0}, {1}, {1};", ["b32", "b32"], "b32", [x, y]).view(np.float16)
    a, b = x.view(np.float16).astype(np.float64), y.view(np.float16).astype(np.float64)
    assert (got == (a * b + b).astype(np.float16)).all()


# Conversions


@pytest.mark.parametrize(("mode", "rule"), [("rni", np.rint), ("rzi", np.trunc), ("rmi", np.floor), ("rpi", np.ceil)])
@pytest.mark.parametrize("to", ["s32", "u32", "s16", "s64"])
def test_float_to_integer_rounds_and_clamps(mode, rule, to):
    info = np.iinfo(TYPES[to])

    def expected(a: float) -> int:
        if math.isnan(a):
            return wrapped(1 << 63, 64, True) if to == "s64" else 0
        if math.isinf(a):
            return info.max if a > 0 else info.min
        return min(max(int(rule(np.float64(a))), info.min), info.max)

    check(f"cvt.{mode}.{to}.f32", "f32", to, expected)


def half_toward_zero(value: int) -> float:
    size = min(abs(int(value)), 65504)
    drop = max(size.bit_length() - 11, 0)
    return math.copysign(size >> drop << drop, value)


def test_conversions():
    check("cvt.rn.f32.s32", "s32", "f32", np.float32)
    check("cvt.rn.f32.u64", "u64", "f32", np.float32)
    check("cvt.rn.f16.f32", "f32", "f16", np.float16)
    check("cvt.rn.f16.s32", "s32", "f16", np.float16)
    check("cvt.rz.f16.s32", "s32", "f16", half_toward_zero)
    check("cvt.f32.f16", "f16", "f32", np.float32)
    check("cvt.rn.f32.f64", "f64", "f32", np.float32)
    check("cvt.f64.f32", "f32", "f64", np.float64)
    check("cvt.rni.f32.f32", "f32", "f32", np.rint)
    check("cvt.rzi.ftz.f32.f32", "f32", "f32", lambda a: np.trunc(np.float32(flushed(a))))
    check("cvt.rn.ftz.f32.f64", "f64", "f32", lambda a: flushed(np.float32(a)))
    check("cvt.ftz.f64.f32", "f32", "f64", lambda a: np.float64(flushed(a)))
    check("cvt.s64.s32", "s32", "s64", int)
    check("cvt.u64.u32", "u32", "u64", int)
    check("cvt.u16.u32", "u32", "u16", lambda a: int(a) & 0xFFFF)
    check("cvt.sat.s16.s32", "s32", "s16", lambda a: min(max(int(a), -32768), 32767))
    check("cvt.sat.u16.s32", "s32", "u16", lambda a: min(max(int(a), 0), 65535))


# Comparison


@pytest.mark.parametrize("kind", ["f32", "s32", "u32"])
def test_comparisons(kind):
    rules = {
        "eq": np.equal,
        "ne": np.not_equal,
        "lt": np.less,
        "le": np.less_equal,
        "gt": np.greater,
        "ge": np.greater_equal,
    }
    for name, rule in rules.items():
        ordered = lambda a, b, rule=rule, name=name: int(rule(a, b) and not (name == "ne" and (a != a or b != b)))  # noqa: E731
        text = f"{{.reg .pred %p; setp.{name}.{kind} %p, {{0}}, {{1}}; selp.b32 {{d}}, 1, 0, %p;}}"
        check(text.replace("{.", ".", 1).removesuffix("}"), f"{kind} {kind}", "u32", ordered)


def test_unordered_comparisons_hold_for_nan():
    for name, rule in {"ltu": np.less, "geu": np.greater_equal, "equ": np.equal, "neu": np.not_equal}.items():
        text = f".reg .pred %p; setp.{name}.f32 %p, {{0}}, {{1}}; selp.b32 {{d}}, 1, 0, %p;"
        either = lambda a, b, rule=rule: int(rule(a, b) or a != a or b != b)  # noqa: E731
        check(text, "f32 f32", "u32", either)


def test_carry_chain_adds_128_bits():
    text = ".reg .b64 %t; add.cc.u64 %t, {0}, {1}; addc.u64 {d}, {0}, {1};"
    check(text, "u64 u64", "u64", lambda a, b: (int(a) + int(b) + (int(a) + int(b) >> 64)) & (1 << 64) - 1)


@pytest.mark.parametrize("kind", ["u32", "s32"])
def test_products_of_24_bits(kind):
    signed = kind[0] == "s"
    product = lambda a, b: wrapped(int(a), 24, signed) * wrapped(int(b), 24, signed)  # noqa: E731
    check(f"mul24.lo.{kind}", f"{kind} {kind}", kind, lambda a, b: wrapped(product(a, b), 32, signed))
    check(f"mul24.hi.{kind}", f"{kind} {kind}", kind, lambda a, b: wrapped(product(a, b) >> 16, 32, signed))
    check(
        f"mad24.lo.{kind}", f"{kind} {kind} {kind}", kind, lambda a, b, c: wrapped(product(a, b) + int(c), 32, signed)
    )


def test_borrow_chain_subtracts_192_bits():
    def highest(a: int, b: int) -> int:
        return (int(a) - int(b) - (int(b) - int(a) - (int(a) < int(b)) < 0)) % (1 << 64)

    text = ".reg .b64 %t; sub.cc.u64 %t, {0}, {1}; subc.cc.u64 %t, {1}, {0}; subc.u64 {d}, {0}, {1};"
    check(text, "u64 u64", "u64", highest)


def test_both_predicates_of_a_comparison_read_the_third_source_first():
    text = (
        ".reg .pred %p; .reg .pred %q; .reg .b32 %x; setp.ne.s32 %p, {1}, 0; setp.lt.or.s32 %p|%q, {0}, {1}, %p;"
        "selp.b32 {d}, 1, 0, %p; selp.b32 %x, 2, 0, %q; add.s32 {d}, {d}, %x;"
    )
    check(text, "s32 s32", "s32", lambda a, b: int(a < b or b != 0) + 2 * int(not a < b or b != 0))


def test_unknown_instruction_is_named_with_its_line():
    text = """.version 8.0
.target sm_90
.address_size 64
.visible .entry k() {
    .reg .b32 %r<4>;
    .loc 1 17 5
    wgmma.fence.sync.aligned;
    ret;
}
.file 1 "mine.cu"
"""
    with pytest.raises(
        simt.Unsupported, match=r"line 17: the PTX machine has no wgmma\.fence\.sync\.aligned"
    ) as caught:
        simt.load(text).launch("k", grid=(1,), block=(32,))
    assert caught.value.line == 17
    assert caught.value.file == "mine.cu"
