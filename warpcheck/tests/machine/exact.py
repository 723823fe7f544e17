"""Model single instructions in exact arithmetic, for one lane. See the PTX ISA manual, 9.7.

Integers are Python integers that hold the bits, floats are Python floats, and predicates are bools. ``rule`` returns
the model of an instruction, or None if it has none.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

__all__ = ["Rule", "float_rounded", "rule"]


@dataclass(frozen=True)
class Rule:
    """The register kinds of an instruction's target and sources (b16 b32 b64 f32 f64 pred), and what it computes."""

    target: str
    sources: tuple[str, ...]
    apply: Callable[..., Any]


ROUNDINGS = ("rn", "rz", "rm", "rp")
# Bits of the significand, the exponent of the smallest subnormal number, and the exponent of overflow.
FORMATS = {"f32": (24, -149, 128), "f64": (53, -1074, 1024)}
LEAST_NORMAL = {"f32": 2.0**-126, "f64": 2.0**-1022}


def width(kind: str) -> int:
    return int(kind[1:])


def register(kind: str) -> str:
    """Return the kind of register that holds numbers of a kind. Bytes are held in 16 bits."""
    return kind if kind in FORMATS or kind == "pred" else f"b{max(width(kind), 16)}"


def cut(value: int, bits: int) -> int:
    return value & (1 << bits) - 1


def number(value: int, kind: str) -> int:
    """Interpret bits as an integer of a kind."""
    bits = width(kind)
    value = cut(value, bits)
    return value - (1 << bits) if kind[0] == "s" and value >> (bits - 1) else value


def clamped(value: int, kind: str) -> int:
    bits = width(kind)
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if kind[0] == "s" else (0, (1 << bits) - 1)
    return min(max(value, low), high)


# Floats


def float_rounded(exact: Fraction, kind: str, mode: str = "rn") -> float:
    """Round a number other than 0 to a float."""
    precision, min_exponent, overflow_exponent = FORMATS[kind]
    magnitude = abs(exact)
    negative = exact < 0
    exponent = magnitude.numerator.bit_length() - magnitude.denominator.bit_length()
    exponent -= magnitude < Fraction(2) ** exponent
    unit = Fraction(2) ** max(exponent - precision + 1, min_exponent)
    steps, remainder = divmod(magnitude, unit)
    remainder /= unit
    rounds_up = {
        "rn": remainder > Fraction(1, 2) or (remainder == Fraction(1, 2) and steps % 2 == 1),
        "rz": False,
        "rm": negative and remainder > 0,
        "rp": not negative and remainder > 0,
    }[mode]
    result = (steps + rounds_up) * unit
    if result >= Fraction(2) ** overflow_exponent:
        infinite = mode == "rn" or mode == ("rm" if negative else "rp")
        largest = float((2 - Fraction(2) ** (1 - precision)) * Fraction(2) ** (overflow_exponent - 1))
        return math.copysign(math.inf if infinite else largest, -1 if negative else 1)
    return math.copysign(float(result), -1 if negative else 1)


def fused(x: float, y: float, z: float, kind: str, mode: str) -> float:
    """Return x * y + z, rounded once."""
    if not (math.isfinite(x) and math.isfinite(y)):
        return x * y + z
    if not math.isfinite(z):
        return z
    product = Fraction(x) * Fraction(y)
    exact = product + Fraction(z)
    if exact:
        return float_rounded(exact, kind, mode)
    negative = math.copysign(1, x) * math.copysign(1, y) < 0
    if not product and negative == (math.copysign(1, z) < 0):
        return -0.0 if negative else 0.0
    return -0.0 if mode == "rm" else 0.0


def multiplied(x: float, y: float, kind: str, mode: str) -> float:
    if not (math.isfinite(x) and math.isfinite(y)):
        return x * y
    exact = Fraction(x) * Fraction(y)
    sign = math.copysign(1, x) * math.copysign(1, y)
    return float_rounded(exact, kind, mode) if exact else math.copysign(0.0, sign)


def divided(x: float, y: float, kind: str, mode: str) -> float:
    sign = math.copysign(1, x) * math.copysign(1, y)
    if math.isnan(x) or math.isnan(y) or (x == 0 and y == 0) or (math.isinf(x) and math.isinf(y)):
        return math.nan
    if math.isinf(x) or y == 0:
        return math.copysign(math.inf, sign)
    if math.isinf(y) or x == 0:
        return math.copysign(0.0, sign)
    return float_rounded(Fraction(x) / Fraction(y), kind, mode)


def flushed(value: float, kind: str) -> float:
    return math.copysign(0.0, value) if abs(value) < LEAST_NORMAL[kind] else value


def saturated(value: float) -> float:
    return 0.0 if math.isnan(value) or value <= 0 else min(value, 1.0)


def extreme(x: float, y: float, is_min: bool, modifiers: tuple[str, ...]) -> float:
    if "xorsign" in modifiers:  # the extreme absolute value gets the sign of the product
        magnitude = extreme(abs(x), abs(y), is_min, tuple({*modifiers} - {"xorsign"}))
        if math.isnan(magnitude):
            return math.nan  # the canonical NaN has no sign to change
        return math.copysign(magnitude, math.copysign(1, x) * math.copysign(1, y))
    keeps_nan = "NaN" in modifiers
    if math.isnan(x) or math.isnan(y):
        return math.nan if keeps_nan else y if math.isnan(x) else x
    order = lambda v: (v, math.copysign(1, v))  # noqa: E731
    return min(x, y, key=order) if is_min else max(x, y, key=order)


SCALES = {"mul": (64, 0), "fma": (64, 0, 64), "mad": (64, 0, 64), "div": (64, 0), "rcp": (-64,)}


def float_rule(opcode: str, modifiers: tuple[str, ...]) -> Rule | None:
    kind = modifiers[-1]
    mode = next((m for m in modifiers if m in ROUNDINGS), "rn")
    rules: dict[str, tuple[int, Callable[..., float]]] = {
        "add": (2, lambda x, y: fused(x, 1.0, y, kind, mode)),
        "sub": (2, lambda x, y: fused(x, 1.0, -y, kind, mode)),
        "mul": (2, lambda x, y: multiplied(x, y, kind, mode)),
        "fma": (3, lambda x, y, z: fused(x, y, z, kind, mode)),
        "mad": (3, lambda x, y, z: fused(x, y, z, kind, mode)),
        "div": (2, lambda x, y: divided(x, y, kind, mode)),
        "rcp": (1, lambda x: divided(1.0, x, kind, mode)),
        "neg": (1, lambda x: -x),
        "abs": (1, abs),
        "min": (2, lambda x, y: extreme(x, y, True, modifiers)),
        "max": (2, lambda x, y: extreme(x, y, False, modifiers)),
    }
    if opcode not in rules or not {"approx", "full", "relu"}.isdisjoint(modifiers):
        return None
    if kind == "f64" and mode != "rn":
        return None  # the machine rejects directed rounding of f64
    count, operation = rules[opcode]

    def apply(*values: float) -> float:
        if "ftz" in modifiers:
            operands = [flushed(v, kind) for v in values]
            result = flushed(operation(*operands), kind)
            if kind == "f32" and opcode in SCALES:
                # Hardware rounds to the precision of a normal number before it tests for a subnormal result. The
                # operands are scaled by 2**64 here to round the same way.
                larger = operation(*(v * 2.0**n for v, n in zip(operands, SCALES[opcode], strict=True)))
                result = math.copysign(0.0, result) if abs(larger) < 2.0**-62 else result
        else:
            result = operation(*values)
        return saturated(result) if "sat" in modifiers else result

    return Rule(kind, (kind,) * count, apply)


# Integers


def divide(x: int, y: int, bits: int) -> tuple[int, int]:
    """Divide as GPUs do: by zero the quotient is all ones and the remainder x."""
    if y == 0:
        return -1, x
    quotient = abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1)
    return quotient, x - quotient * y


def product(x: int, y: int, part: str, bits: int) -> int:
    return x * y >> bits if part == "hi" else x * y


def integer_rule(opcode: str, modifiers: tuple[str, ...]) -> Rule | None:
    kind, part = modifiers[-1], modifiers[0]
    bits = width(kind)
    rules: dict[str, tuple[int, Callable[..., int]]] = {
        "add": (2, lambda x, y: x + y),
        "sub": (2, lambda x, y: x - y),
        "mul": (2, lambda x, y: product(x, y, part, bits)),
        "mad": (3, lambda x, y, z: product(x, y, part, bits) + z),
        "min": (2, min),
        "max": (2, max),
        "neg": (1, lambda x: -x),
        "abs": (1, abs),
        "sad": (3, lambda x, y, z: z + abs(x - y)),
        "div": (2, lambda x, y: divide(x, y, bits)[0]),
        "rem": (2, lambda x, y: divide(x, y, bits)[1]),
    }
    if opcode not in rules or "cc" in modifiers or (part == "wide" and bits == 64):
        return None
    count, operation = rules[opcode]
    wide_kind = kind[0] + str(2 * bits) if part == "wide" else kind

    def apply(*values: int) -> int:
        kinds = [kind, kind, wide_kind][: len(values)]
        result = operation(*(number(v, k) for v, k in zip(values, kinds, strict=True)))
        result = max(result, 0) if "relu" in modifiers else result
        return cut(clamped(result, kind) if "sat" in modifiers else result, width(wide_kind))

    sources = (register(kind), register(kind), register(wide_kind))[:count]
    return Rule(register(wide_kind), sources, apply)


def bit_rule(opcode: str, modifiers: tuple[str, ...]) -> Rule | None:
    kind = modifiers[-1]
    if kind == "pred":
        logic = {"and": lambda x, y: x and y, "or": lambda x, y: x or y, "xor": lambda x, y: x != y}
        if opcode == "not":
            return Rule("pred", ("pred",), lambda x: not x)
        return Rule("pred", ("pred", "pred"), logic[opcode]) if opcode in logic else None
    bits = width(kind)
    reg = register(kind)
    rules: dict[str, tuple[str, tuple[str, ...], Callable[..., int]]] = {
        "and": (reg, (reg, reg), lambda x, y: x & y),
        "or": (reg, (reg, reg), lambda x, y: x | y),
        "xor": (reg, (reg, reg), lambda x, y: x ^ y),
        "not": (reg, (reg,), lambda x: cut(~x, bits)),
        "cnot": (reg, (reg,), lambda x: int(x == 0)),
        "shl": (reg, (reg, "b32"), lambda x, n: cut(x << min(n, bits), bits)),
        "shr": (reg, (reg, "b32"), lambda x, n: cut(number(x, kind) >> min(n, bits), bits)),
        "popc": ("b32", (reg,), int.bit_count),
        "clz": ("b32", (reg,), lambda x: bits - x.bit_length()),
        "brev": (reg, (reg,), lambda x: int(f"{x:0{bits}b}"[::-1], 2)),
        "shf": ("b32", ("b32", "b32", "b32"), lambda low, high, n: funnel(low, high, n, modifiers)),
        "bfe": (reg, (reg, "b32", "b32"), lambda x, place, length: field(x, place & 255, length & 255, kind)),
        "bfi": (
            reg,
            (reg, reg, "b32", "b32"),
            lambda x, y, place, length: insert(x, y, place & 255, length & 255, bits),
        ),
        "prmt": ("b32", ("b32", "b32", "b32"), permute),
        "selp": (reg, (reg, reg, "pred"), lambda x, y, p: x if p else y),
    }
    return Rule(*rules[opcode]) if opcode in rules else None


def funnel(low: int, high: int, amount: int, modifiers: tuple[str, ...]) -> int:
    amount = amount & 31 if "wrap" in modifiers else min(amount, 32)
    pair = high << 32 | low
    return cut(pair << amount >> 32 if "l" in modifiers else pair >> amount, 32)


def field(x: int, place: int, length: int, kind: str) -> int:
    """Extract a bit field with the manual's pseudocode, bit by bit."""
    bits = width(kind)
    sign = x >> min(place + length - 1, bits - 1) & 1 if kind[0] == "s" and length else 0
    inside = (x >> place + bit & 1 if bit < length and place + bit < bits else sign for bit in range(bits))
    return sum(value << bit for bit, value in enumerate(inside))


def insert(x: int, y: int, place: int, length: int, bits: int) -> int:
    mask = cut((1 << length) - 1 << place, bits)
    return cut(x << place, bits) & mask | y & ~mask


def permute(x: int, y: int, selector: int) -> int:
    result = 0
    for byte in range(4):
        chosen = selector >> 4 * byte & 15
        value = (y << 32 | x) >> 8 * (chosen & 7) & 255
        result |= (255 * (value >> 7) if chosen & 8 else value) << 8 * byte
    return result


def word_rule(opcode: str, modifiers: tuple[str, ...]) -> Rule | None:
    """Model instructions on 32-bit words by the manual's tables and pseudocode, 9.7.1.23, 9.7.8.7 and 9.7.1.18."""
    words = ("b32", "b32", "b32")
    if opcode == "prmt" and modifiers[-1] in PERMUTED:
        table = [[int(place) for place in places] for places in PERMUTED[modifiers[-1]]]
        return Rule("b32", words, lambda x, y, n: chosen(y << 32 | x, table[n & 3]))
    if opcode == "bmsk":
        return Rule("b32", words[:2], lambda place, length: ones(place, length, modifiers[0]))
    if opcode == "fns":
        return Rule("b32", words, nth_set)
    if opcode == "szext":
        return Rule("b32", words[:2], lambda x, length: extended(x, length, modifiers))
    if opcode in ("dp2a", "dp4a"):
        signs = [kind[0] for kind in modifiers[-2:]]
        size, first = (16, 2 * (modifiers[0] == "hi")) if opcode == "dp2a" else (8, 0)
        parts = range(32 // size)

        def dot(x: int, y: int, z: int) -> int:
            x_parts = [number(x >> size * n, f"{signs[0]}{size}") for n in parts]
            y_parts = [number(y >> 8 * (first + n), f"{signs[1]}8") for n in parts]
            return cut(z + sum(a * b for a, b in zip(x_parts, y_parts, strict=True)), 32)

        return Rule("b32", words, dot)
    if opcode in ("vabsdiff2", "vabsdiff4"):
        size = 32 // int(opcode[-1])

        def differences(x: int, y: int, z: int) -> int:
            kinds = [f"{kind[0]}{size}" for kind in modifiers[1:3]]
            distances = [abs(number(x >> n, kinds[0]) - number(y >> n, kinds[1])) for n in range(0, 32, size)]
            if "add" in modifiers:
                return cut(z + sum(distances), 32)
            return sum(cut(distance, size) << size * n for n, distance in enumerate(distances))

        return Rule("b32", words, differences)
    return None


# For each mode of prmt, the source bytes that each selector picks, the lowest byte of the result first.
PERMUTED = {
    "f4e": ("0123", "1234", "2345", "3456"),
    "b4e": ("0765", "1076", "2107", "3210"),
    "rc8": ("0000", "1111", "2222", "3333"),
    "ecl": ("0123", "1123", "2223", "3333"),
    "ecr": ("0000", "0111", "0122", "0123"),
    "rc16": ("0101", "2323", "0101", "2323"),
}


def chosen(pair: int, sources: list[int]) -> int:
    return sum((pair >> 8 * byte & 255) << 8 * target for target, byte in enumerate(sources))


def ones(place: int, length: int, mode: str) -> int:
    if mode == "wrap":
        place, length = place & 31, length & 31
    return sum(1 << bit for bit in range(32) if place <= bit < place + length)


def nth_set(mask: int, base: int, offset: int) -> int:
    """Execute the manual's pseudocode for fns.

    The manual leaves a base above 31 undefined. The machine then finds no bit.
    """
    offset = number(offset, "s32")
    positions = [base] if not offset else range(base, 32) if offset > 0 else range(base, -1, -1)
    set_bits = [bit for bit in positions if mask >> bit & 1] if base < 32 else []
    count = max(abs(offset), 1)
    return set_bits[count - 1] if count <= len(set_bits) else 0xFFFFFFFF


def extended(x: int, length: int, modifiers: tuple[str, ...]) -> int:
    length = length & 31 if modifiers[0] == "wrap" else min(length, 32)
    return cut(number(x, f"{modifiers[1][0]}{length}"), 32) if length else 0


# Comparison and conversion

ORDERS: dict[str, Callable[[Any, Any], bool]] = {
    "eq": lambda x, y: x == y,
    "ne": lambda x, y: x != y,
    "lt": lambda x, y: x < y,
    "le": lambda x, y: x <= y,
    "gt": lambda x, y: x > y,
    "ge": lambda x, y: x >= y,
}
UNSIGNED = {"lo": "lt", "ls": "le", "hi": "gt", "hs": "ge"}
LOGIC: dict[str, Callable[[bool, bool], bool]] = {
    "and": lambda x, y: x and y,
    "or": lambda x, y: x or y,
    "xor": lambda x, y: x != y,
}


def compared(name: str, x: float, y: float) -> bool:
    unordered = math.isnan(x) or math.isnan(y)
    if name in ("num", "nan"):
        return unordered == (name == "nan")
    if name.endswith("u") and name[:-1] in ORDERS:
        return unordered or ORDERS[name[:-1]](x, y)
    return not unordered and ORDERS[name](x, y)


def comparison_rule(opcode: str, modifiers: tuple[str, ...]) -> Rule | None:
    name, kind = modifiers[0], modifiers[-1]
    if "x2" in kind or kind in ("f16", "bf16") or opcode != "setp":
        return None
    if kind in FORMATS:
        is_valid = name not in UNSIGNED and not ("ftz" in modifiers and kind == "f64")
    else:
        is_valid = "ftz" not in modifiers and (name in ORDERS or (name in UNSIGNED and kind[0] == "u"))
        is_valid &= kind[0] != "b" or name in ("eq", "ne")
    if not is_valid:
        return None

    def holds(x: Any, y: Any) -> bool:
        if kind not in FORMATS:
            return ORDERS[UNSIGNED.get(name, name)](number(x, kind), number(y, kind))
        return compared(name, *(flushed(v, kind) if "ftz" in modifiers else v for v in (x, y)))

    reg = register(kind)
    logic = LOGIC.get(modifiers[1])
    if logic:
        return Rule("pred", (reg, reg, "pred"), lambda x, y, p: logic(holds(x, y), p))
    return Rule("pred", (reg, reg), holds)


INTEGRAL: dict[str, Callable[[Fraction], int]] = {"rni": round, "rzi": math.trunc, "rmi": math.floor, "rpi": math.ceil}


def pack_rule(modifiers: tuple[str, ...]) -> Rule:
    """Model cvt.pack: saturate two integers, and put the lower bits of a third word above them if there is one."""
    kind = modifiers[2]

    def pack(x: int, y: int, z: int = 0) -> int:
        high, low = (cut(clamped(number(v, "s32"), kind), width(kind)) for v in (x, y))
        return cut(z << 2 * width(kind) | high << width(kind) | low, 32)

    return Rule("b32", ("b32",) * (3 if modifiers[-1] == "b32" else 2), pack)


def conversion_rule(modifiers: tuple[str, ...]) -> Rule | None:
    to, source = modifiers[-2:]
    if modifiers[0] == "pack":
        return pack_rule(modifiers)
    if not {to, source}.isdisjoint(("f16", "bf16", "f16x2", "bf16x2", "tf32")):
        return None
    rounding = next((m for m in modifiers if m in (*ROUNDINGS, *INTEGRAL)), "")
    if "ftz" in modifiers and "f32" not in (to, source):
        return None
    if source in FORMATS:
        kinds = float_to_float if to in FORMATS else float_to_integer
    else:
        kinds = integer_to_float if to in FORMATS else integer_to_integer
    convert = kinds(to, source, rounding, modifiers)
    return Rule(register(to), (register(source),), convert) if convert else None


Convert = Callable[[Any], Any]


def integer_to_integer(to: str, source: str, rounding: str, modifiers: tuple[str, ...]) -> Convert | None:
    bounds = (
        [0, (1 << width(source)) - 1] if source[0] == "u" else [-1 << width(source) - 1, (1 << width(source) - 1) - 1]
    )
    fits = [clamped(bound, to) for bound in bounds] == bounds
    if rounding or "ftz" in modifiers or (fits and "sat" in modifiers):
        return None

    def convert(x: int) -> int:
        value = number(x, source)
        return cut(clamped(value, to) if "sat" in modifiers else number(value, to), max(width(to), 16))

    return convert


def float_to_integer(to: str, source: str, rounding: str, modifiers: tuple[str, ...]) -> Convert | None:
    if rounding not in INTEGRAL or ("ftz" in modifiers and source != "f32"):
        return None

    def convert(x: float) -> int:
        if math.isnan(x):
            value = 1 << width(to) - 1 if width(to) == 64 or source == "f64" else 0
            return cut(number(value, to), max(width(to), 16))
        if math.isinf(x):
            value = 1 << 70 if x > 0 else -1 << 70
        else:
            value = INTEGRAL[rounding](Fraction(flushed(x, source) if "ftz" in modifiers else x))
        return cut(clamped(value, to), max(width(to), 16))

    return convert


def integer_to_float(to: str, source: str, rounding: str, modifiers: tuple[str, ...]) -> Convert | None:
    directed = rounding != "rn"
    if rounding not in ROUNDINGS or "ftz" in modifiers or (directed and width(source) == 64):
        return None

    def convert(x: int) -> float:
        value = number(x, source)
        result = float_rounded(Fraction(value), to, rounding) if value else 0.0
        return saturated(result) if "sat" in modifiers else result

    return convert


def float_to_float(to: str, source: str, rounding: str, modifiers: tuple[str, ...]) -> Convert | None:
    if to == source:
        if rounding in ROUNDINGS or ("ftz" in modifiers and to == "f64"):
            return None
    elif (to == "f32") != (rounding in ROUNDINGS) or rounding in INTEGRAL:
        return None

    def convert(x: float) -> float:
        if "ftz" in modifiers and source == "f32":
            x = flushed(x, source)
        if math.isfinite(x) and x:
            if rounding in INTEGRAL:
                x = math.copysign(float(INTEGRAL[rounding](Fraction(x))), x)
            elif to == "f32":
                larger = float_rounded(Fraction(x) * 2**64, to, rounding or "rn")
                x = float_rounded(Fraction(x), to, rounding or "rn")
                if "ftz" in modifiers and abs(larger) < 2.0**-62:
                    x = math.copysign(0.0, x)
        if "ftz" in modifiers and to == "f32":
            x = flushed(x, to)
        return saturated(x) if "sat" in modifiers else x

    return convert


def rule(opcode: str, modifiers: tuple[str, ...]) -> Rule | None:
    """Return the model of an instruction, or None if it is not modeled or ptxas rejects it."""
    if not modifiers or "x2" in modifiers[-1] or modifiers[-1] in ("f16", "bf16"):
        return None
    if word := word_rule(opcode, modifiers):
        return word
    if opcode == "cvt":
        return conversion_rule(modifiers)
    if opcode in ("setp", "set"):
        return comparison_rule(opcode, modifiers)
    if opcode in ("selp", "mov") and modifiers[-1] in FORMATS:
        kind = modifiers[-1]
        return Rule(kind, (kind, kind, "pred"), lambda x, y, p: x if p else y) if opcode == "selp" else None
    if modifiers[-1] in FORMATS:
        return float_rule(opcode, modifiers)
    if modifiers[-1] == "pred":
        return bit_rule(opcode, modifiers)
    if modifiers[-1][0] not in "bus" or not modifiers[-1][1:].isdigit():
        return None
    return integer_rule(opcode, modifiers) or bit_rule(opcode, modifiers)
