"""Parse the operands of one instruction. PTX ISA manual, 4.5 (Constants), 6.4 (Using Addresses, Arrays and Vectors)."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable

from warpcheck.ptx.records import Address, Group, Immediate, Not, Operand, PtxSyntaxError, Register, Symbol

__all__ = ["number", "parse_operands"]

# The deepest nesting of brackets and signs: a tensor copy needs three.
_MAX_DEPTH = 8

# Tried in this order, because 0f3F800000 and 1.5 begin like integers. A name may have a dot, as %tid.x has.
_TOKEN = re.compile(
    r"\s*(?:(?P<float>0[fF][0-9a-fA-F]{8}\b|0[dD][0-9a-fA-F]{16}\b)"
    r"|(?P<decimal>\d+\.\d*(?:[eE][+-]?\d+)?|\d+[eE][+-]?\d+)"
    r"|(?P<integer>0[xX][0-9a-fA-F]+U?|0[bB][01]+U?|\d+U?)"
    r"|(?P<name>[%$A-Za-z_][\w$]*(?:\.\w+)?)|(?P<mark>\S))",
    re.ASCII,
)


def parse_operands(text: str, name: Callable[[str], Register | Symbol | Group]) -> tuple[Operand, ...]:
    """Parse the operands in ``text``; ``name`` resolves an identifier. Raises PtxSyntaxError."""
    return _Operands(text, name).list()


def number(text: str) -> Immediate:
    """Parse a constant. Raises PtxSyntaxError."""
    sign, digits = (-1, text[1:]) if text.startswith("-") else (1, text)
    match = _TOKEN.fullmatch(digits)
    if match is None:
        raise PtxSyntaxError(f"{text!r} is not a number")
    value = _constant(match.lastgroup or "", match[match.lastgroup or 0])
    return value if sign == 1 else _negated(value)


class _Operands:
    """Recursive descent over the operands of one instruction."""

    def __init__(self, text: str, name: Callable[[str], Register | Symbol | Group]) -> None:
        self.tokens = [(match.lastgroup or "", match[match.lastgroup or 0]) for match in _TOKEN.finditer(text.rstrip())]
        self.name = name
        self.position = 0
        self.depth = 0

    def list(self, end: str = "") -> tuple[Operand, ...]:
        """Parse operands between commas, up to and including the mark ``end``."""
        items: list[Operand] = []
        while items or self._peek() != end:
            items.append(self._operand())
            # Two results: p|q.
            if self._peek() == "|":
                self._take()
                items[-1] = Group((items[-1], self._operand()))
            if self._peek() == end:
                break
            self._expect(",")
        if end:
            self._expect(end)
        return tuple(items)

    def _operand(self) -> Operand:
        self.depth += 1
        if self.depth > _MAX_DEPTH:
            raise PtxSyntaxError("operands nested too deep")
        operand = self._alternatives(*self._take())
        self.depth -= 1
        return operand

    def _alternatives(self, kind: str, token: str) -> Operand:
        if kind == "name":
            return self._named(token)
        if kind != "mark":
            return _constant(kind, token)
        if token == "{":
            return Group(self.list("}"))
        if token == "(":
            return Group(self.list(")"))
        # [base + offset], or [base, {coordinates}] of a tensor copy.
        if token == "[":
            return self._address()
        if token == "!":
            operand = self._operand()
            if not isinstance(operand, Register):
                raise PtxSyntaxError("a negation of something other than a predicate")
            return Not(operand)
        if token == "-":
            value = self._operand()
            if not isinstance(value, Immediate):
                raise PtxSyntaxError("a minus before something other than a number")
            return _negated(value)
        raise PtxSyntaxError(f"unexpected {token!r}")

    def _named(self, token: str) -> Operand:
        meaning = self.name(token)
        return Symbol(meaning.name, self._offset()) if isinstance(meaning, Symbol) else meaning

    def _address(self) -> Address | Group:
        base = self._operand()
        # A symbol has taken its offset already; in an address it belongs to the address.
        if isinstance(base, Symbol):
            base, offset = Symbol(base.name), base.offset
        else:
            offset = self._offset()
        if self._peek() == ",":
            self._take()
            return Group((Address(base, offset), *self.list("]")))  # type: ignore[arg-type]
        if self._take()[1] != "]" or not isinstance(base, (Register, Symbol, Immediate)):
            raise PtxSyntaxError("an address that is not [base + offset]")
        return Address(base, offset)

    def _offset(self) -> int:
        offset = 0
        while self._peek() in ("+", "-"):
            # NVRTC writes a negative offset as +-4, so that a sign may follow a sign.
            sign = 1 if self._take()[1] == "+" else -1
            operand = self._operand()
            if not isinstance(operand, Immediate):
                raise PtxSyntaxError("an offset that is not a number")
            offset += sign * operand.value
        return offset

    def _peek(self) -> str:
        return self.tokens[self.position][1] if self.position < len(self.tokens) else ""

    def _take(self) -> tuple[str, str]:
        if self.position == len(self.tokens):
            raise PtxSyntaxError("an operand is missing")
        self.position += 1
        return self.tokens[self.position - 1]

    def _expect(self, mark: str) -> None:
        token = self._peek()
        if token != mark:
            raise PtxSyntaxError(f"{token!r} where {mark!r} should be" if token else f"{mark!r} is missing")
        self.position += 1


def _constant(kind: str, token: str) -> Immediate:
    # 0f and 0d are the bits of a float in hexadecimal.
    if kind == "float":
        return Immediate(int(token[2:], 16), 32 if token[1] in "fF" else 64)
    # PTX ISA, 4.5.2: a decimal constant is a double.
    if kind == "decimal":
        return _float(float(token))
    if kind != "integer":
        raise PtxSyntaxError(f"{token!r} is not a number")
    digits = token.rstrip("U")
    is_octal = digits.isdigit() and digits.startswith("0")  # as in C
    try:
        return Immediate(int(digits, 8 if is_octal else 0))
    except ValueError as error:
        raise PtxSyntaxError(f"{token!r} is not a number") from error


def _negated(number: Immediate) -> Immediate:
    # An integer changes its sign; the bits of a float do not, so the number is rebuilt, as a double.
    return Immediate(-number.value) if not number.width else _float(-_as_float(number))


def _float(value: float) -> Immediate:
    return Immediate(int(struct.unpack("<Q", struct.pack("<d", value))[0]), 64)


def _as_float(immediate: Immediate) -> float:
    code = ("<I", "<f") if immediate.width == 32 else ("<Q", "<d")
    return float(struct.unpack(code[1], struct.pack(code[0], immediate.value))[0])
