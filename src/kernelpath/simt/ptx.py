"""Read PTX text into frozen records: modules, functions, instructions with their source lines.

The grammar is that of NVIDIA's PTX ISA manual, chapters 4 (Syntax) and 5 (State Spaces, Types, Variables). Only what
compilers emit is read. Instructions are not understood here: an unknown opcode is found when it is compiled.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import NamedTuple

__all__ = [
    "Address",
    "Function",
    "Group",
    "Immediate",
    "Instruction",
    "Module",
    "Not",
    "Operand",
    "Register",
    "Symbol",
    "Variable",
    "parse",
]

SIZES = {"b8": 1, "u8": 1, "s8": 1, "b16": 2, "u16": 2, "s16": 2, "f16": 2, "bf16": 2, "b32": 4, "u32": 4, "s32": 4}
SIZES |= {"f32": 4, "f16x2": 4, "bf16x2": 4, "b64": 8, "u64": 8, "s64": 8, "f64": 8, "b128": 16}


class Register(NamedTuple):
    """A register, special registers such as ``%tid.x`` included. The name ``_`` is the bit bucket."""

    name: str


class Not(NamedTuple):
    """A negated predicate, ``!%p1``."""

    register: Register


class Immediate(NamedTuple):
    """A constant: an integer, or the bits of a float of ``width`` bits (0 for integers)."""

    value: int
    width: int = 0


class Symbol(NamedTuple):
    """The name of a variable, function or label, with an offset in bytes."""

    name: str
    offset: int = 0


class Address(NamedTuple):
    """A memory operand: ``[base + offset]``. Other kinds of address are a Group of what stands between the brackets."""

    base: Register | Symbol | Immediate
    offset: int = 0


class Group(NamedTuple):
    """Several operands in one: ``{a, b}`` of a vector, ``a|b`` of two results, ``(a, b)`` of a call."""

    items: tuple[Operand, ...]


Operand = Register | Not | Immediate | Symbol | Address | Group


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction, as ``@guard opcode.modifiers operands``, and the source line that it stands for."""

    opcode: str
    modifiers: tuple[str, ...]
    operands: tuple[Operand, ...]
    guard: Register | Not | None = None
    line: int = 0

    @property
    def name(self) -> str:
        """The opcode with its modifiers, as in the PTX text."""
        return ".".join((self.opcode, *self.modifiers))


@dataclass(frozen=True, slots=True)
class Variable:
    """A variable of a state space. ``size`` is in bytes; 0 for ``extern .shared`` arrays.

    ``initial`` holds the bytes it starts with; ``pointers`` the (offset, symbol) of addresses among them.
    """

    name: str
    space: str
    type: str
    size: int
    align: int
    initial: bytes | None = None
    pointers: tuple[tuple[int, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Function:
    """A kernel (``entry``) or device function. ``labels`` maps a label to the index of the instruction after it."""

    name: str
    entry: bool
    params: tuple[Variable, ...]
    results: tuple[Variable, ...]
    registers: dict[str, str]
    variables: dict[str, Variable]
    body: tuple[Instruction, ...]
    labels: dict[str, int]
    tables: dict[str, tuple[str, ...]]
    reqntid: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Module:
    """A PTX file: its functions, its module-level variables, and the source file that line numbers refer to."""

    functions: dict[str, Function]
    variables: dict[str, Variable]
    file: str
    target: str


class PtxSyntaxError(ValueError):
    """The text is not PTX that this parser reads."""


def parse(text: str, source: str | None = None) -> Module:
    """Parse PTX ``text``.

    Line numbers are those of ``source`` where the PTX names that file, else of the first ``.file``. Code inlined from
    other files (headers, Triton's standard library) counts for the line that called it.

    Raises PtxSyntaxError.
    """
    return _Parser(text, source).module()


_IGNORED = re.compile(r'("[^"\n]*")|//[^\n]*|/\*.*?\*/|\.section\s+\S+\s*\{[^}]*\}', re.DOTALL)
_ASM = {"// begin inline asm": ".asm_begins;", "// end inline asm": ".asm_ends;"}


def _kept(match: re.Match[str]) -> str:
    """What stays of text that is ignored: strings, and where inline assembly begins and ends."""
    return match[1] or _ASM.get(match[0].strip(), " ")


_FILE = re.compile(r'\.file\s+(\d+)\s+"([^"]*)"[^\n]*')
_LOC = re.compile(r"\.loc\s+(\d+)\s+(\d+)\s+(\d+)(?:[^\n]*?,\s*inlined_at\s+(\d+)\s+(\d+)\s+(\d+))?[^\n]*")
_SPACE = re.compile(r"\s+")
_LABEL = re.compile(r"([A-Za-z_$][\w$]*)\s*:")
_STATEMENT = re.compile(r"([^;]*);")
_LINE = re.compile(r"[^\n]*")
_VARIABLE = re.compile(
    r"(?:\.(?:visible|extern|weak|common)\s+)*\.(?P<space>global|const|shared|local|param|reg)\s*"
    r"(?:\.align\s+(?P<align>\d+)\s*)?(?:\.attribute\([^)]*\)\s*)?(?:\.v(?P<vector>[24])\s*)?\.(?P<type>\w+)\s+"
    r"(?:\.ptr\s*(?:\.(?:global|const|shared|local)\s*)?(?:\.align\s+\d+\s*)?)?(?P<rest>.*)",
    re.DOTALL,
)
_FUNCTION = re.compile(
    r"(?:\.(?:visible|extern|weak)\s+)*\.(?P<kind>entry|func)\s*(?:\.noreturn\s*)?(?:\((?P<results>[^)]*)\)\s*)?"
    r"(?P<name>[\w$%]+)\s*(?:\((?P<params>[^)]*)\))?(?P<directives>[^;{]*)(?P<end>[;{])",
)
_TOKEN = re.compile(
    r"\s*(?:(?P<float>0[fF][0-9a-fA-F]{8}|0[dD][0-9a-fA-F]{16})"
    r"|(?P<decimal>\d+\.\d*(?:[eE][+-]?\d+)?)"
    r"|(?P<integer>0[xX][0-9a-fA-F]+U?|0[bB][01]+U?|\d+U?)"
    r"|(?P<name>[%$A-Za-z_][\w$]*(?:\.\w+)?(?:@\d+)?)|(?P<mark>[^\s]))"
)


class _Parser:
    def __init__(self, text: str, source: str | None) -> None:
        self.text = _IGNORED.sub(_kept, text)
        files = {int(number): path for number, path in _FILE.findall(self.text)}
        wanted = [number for number, path in files.items() if source and path.rsplit("/", 1)[-1] in source]
        self.main = min(wanted or files or [1])
        self.file = source or files.get(self.main, "")
        self.at = 0

    def module(self) -> Module:
        functions: dict[str, Function] = {}
        variables: dict[str, Variable] = {}
        target = re.search(r"\.target\s+(\w+)", self.text)
        while self._skip_space():
            if match := self._match(_FUNCTION):
                if match["end"] == "{":
                    functions[match["name"]] = self._function(match)
            elif self._match(_FILE) or self._match(re.compile(r"\.(version|target|address_size|loc|pragma)[^\n]*")):
                continue
            elif match := self._match(_STATEMENT):
                variables |= {variable.name: variable for variable in _variables(match[1])}
            else:
                raise PtxSyntaxError(f"cannot read {self._here()!r}")
        return Module(functions, variables, self.file, target[1] if target else "")

    def _function(self, head: re.Match[str]) -> Function:
        body = _Body(self.main)
        depth = 1
        while depth:
            if not self._skip_space():
                raise PtxSyntaxError(f"{head['name']} has no end")
            if match := self._match(re.compile(r"[{}]")):
                depth += 1 if match[0] == "{" else -1
                body.scope(match[0] == "{")
            elif match := self._match(_LOC):
                body.locate(match)
            elif match := self._match(_LABEL):
                body.label(match[1])
            elif match := self._match(_STATEMENT):
                body.statement(match[1])
            else:
                raise PtxSyntaxError(f"cannot read {self._here()!r}")
        reqntid = re.search(r"\.reqntid\s+([\d\s,]+)", head["directives"])
        return Function(
            name=head["name"],
            entry=head["kind"] == "entry",
            params=tuple(_parameters(head["params"])),
            results=tuple(_parameters(head["results"])),
            registers=body.registers,
            variables=body.variables,
            body=tuple(body.instructions),
            labels=body.labels,
            tables=body.tables,
            reqntid=tuple(int(n) for n in reqntid[1].split(",")) if reqntid else (),
        )

    def _skip_space(self) -> bool:
        self._match(_SPACE)
        return self.at < len(self.text)

    def _match(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        match = pattern.match(self.text, self.at)
        if match:
            self.at = match.end()
        return match

    def _here(self) -> str:
        return self.text[self.at : self.at + 60]


@dataclass
class _Body:
    """The statements of one function, with nested scopes flattened by renaming what they declare."""

    main: int
    registers: dict[str, str] = field(default_factory=dict)
    variables: dict[str, Variable] = field(default_factory=dict)
    instructions: list[Instruction] = field(default_factory=list)
    labels: dict[str, int] = field(default_factory=dict)
    tables: dict[str, tuple[str, ...]] = field(default_factory=dict)
    line: int = 0
    callers: dict[tuple[int, int, int], tuple[int, int, int]] = field(default_factory=dict)
    scopes: list[dict[str, str]] = field(default_factory=list)
    opened: int = 0
    pending: str = ""
    in_asm: bool = False

    def scope(self, opens: bool) -> None:
        if opens:
            self.opened += 1
            self.scopes.append({})
        elif self.scopes:
            self.scopes.pop()

    def locate(self, match: re.Match[str]) -> None:
        """Take the line of a ``.loc``; inlined code from another file takes the line of its caller."""
        if self.in_asm:  # subtle: Triton counts the lines of inline assembly as if they were the source's
            return
        place = (int(match[1]), int(match[2]), int(match[3]))
        if match[4]:
            self.callers[place] = (int(match[4]), int(match[5]), int(match[6]))
        seen = set()
        while place[0] != self.main and place in self.callers and place not in seen:
            seen.add(place)
            place = self.callers[place]
        if place[0] == self.main and place[1]:
            self.line = place[1]

    def label(self, name: str) -> None:
        self.pending = name
        self.labels[name] = len(self.instructions)

    def statement(self, text: str) -> None:
        if text.startswith("."):
            self._directive(text)
        else:
            self.instructions.append(self._instruction(text))

    def _directive(self, text: str) -> None:
        if text.startswith(".branchtargets"):
            self.tables[self.pending] = tuple(name.strip() for name in text[len(".branchtargets") :].split(","))
        elif text.startswith((".pragma", ".callprototype")):
            return
        elif text.startswith(".asm_"):
            self.in_asm = text == ".asm_begins"
        elif text.startswith(".reg"):
            for name, kind in _registers(text):
                self.registers[self._rename(name, declare=bool(self.scopes))] = kind
        else:
            for variable in _variables(text):
                name = self._rename(variable.name, declare=bool(self.scopes))
                self.variables[name] = replace(variable, name=name)

    def _rename(self, name: str, declare: bool = False) -> str:
        if declare:
            self.scopes[-1][name] = f"{name}@{self.opened}"
        for scope in reversed(self.scopes):
            if name in scope:
                return scope[name]
        return name

    def _name(self, name: str) -> Register | Symbol:
        renamed = self._rename(name)
        is_register = name.startswith("%") or name == "_" or renamed in self.registers
        return Register(renamed) if is_register else Symbol(renamed)

    def _instruction(self, text: str) -> Instruction:
        guard: Register | Not | None = None
        text = text.strip()
        if text.startswith("@"):
            predicate, text = text[1:].split(None, 1)
            register = Register(self._rename(predicate.lstrip("!")))
            guard = Not(register) if predicate.startswith("!") else register
        head, _, rest = text.partition(" ") if " " in text else text.partition("\t")
        head, _, tail = head.partition("\t")
        opcode, *modifiers = head.split(".")
        try:
            operands = _Operands(f"{tail} {rest}", self._name).list()
        except PtxSyntaxError as error:
            raise PtxSyntaxError(f"line {self.line}: {error} in {text!r}") from error
        return Instruction(opcode, tuple(modifiers), operands, guard, self.line)


class _Operands:
    """Recursive descent over the operands of one instruction."""

    def __init__(self, text: str, name: Callable[[str], Register | Symbol]) -> None:
        self.tokens = [(match.lastgroup or "", match[match.lastgroup or 0]) for match in _TOKEN.finditer(text.rstrip())]
        self.name = name
        self.at = 0

    def list(self, end: str = "") -> tuple[Operand, ...]:
        items: list[Operand] = []
        while self._peek() not in ("", end):
            items.append(self._operand())
            if self._peek() in (",", "|"):
                joined = self._take()[1] == "|"
                if joined:
                    items[-1] = Group((items[-1], self._operand()))
                    if self._peek() == ",":
                        self._take()
        return tuple(items)

    def _operand(self) -> Operand:
        kind, token = self._take()
        if token in "{(" and kind == "mark":
            group = Group(self.list("}" if token == "{" else ")"))
            self._take()
            return group
        if token == "[":
            return self._address()
        if token == "!":
            operand = self._operand()
            if not isinstance(operand, Register):
                raise PtxSyntaxError("a negation of something else than a predicate")
            return Not(operand)
        if token == "-":
            value = self._operand()
            if not isinstance(value, Immediate):
                raise PtxSyntaxError("a minus before something else than a number")
            return Immediate(-value.value) if not value.width else _float(-_as_float(value))
        if kind == "name":
            return self._named(token)
        return _constant(kind, token)

    def _named(self, token: str) -> Operand:
        named = self.name(token)
        return named if isinstance(named, Register) else Symbol(named.name, self._offset())

    def _address(self) -> Address | Group:
        base = self._operand()
        if isinstance(base, Symbol):
            base, offset = Symbol(base.name), base.offset
        else:
            offset = self._offset()
        if self._peek() == ",":
            self._take()
            group = Group((base, *self.list("]")))
            self._take()
            return group
        if self._take()[1] != "]" or not isinstance(base, (Register, Symbol, Immediate)):
            raise PtxSyntaxError("an address that is not [base + offset]")
        return Address(base, offset)

    def _offset(self) -> int:
        offset = 0
        while self._peek() in ("+", "-"):
            sign = 1 if self._take()[1] == "+" else -1
            operand = self._operand()
            if not isinstance(operand, Immediate):
                raise PtxSyntaxError("an offset that is not a number")
            offset += sign * operand.value
        return offset

    def _peek(self) -> str:
        return self.tokens[self.at][1] if self.at < len(self.tokens) else ""

    def _take(self) -> tuple[str, str]:
        if self.at == len(self.tokens):
            raise PtxSyntaxError("an operand is missing")
        self.at += 1
        return self.tokens[self.at - 1]


def _constant(kind: str, token: str) -> Immediate:
    if kind == "float":
        return Immediate(int(token[2:], 16), 32 if token[1] in "fF" else 64)
    if kind == "decimal":
        return _float(float(token))
    if kind == "integer":
        return Immediate(int(token.rstrip("U"), 0))
    raise PtxSyntaxError(f"unexpected {token!r}")


def _float(value: float) -> Immediate:
    return Immediate(int(struct.unpack("<Q", struct.pack("<d", value))[0]), 64)


def _as_float(immediate: Immediate) -> float:
    code = ("<I", "<f") if immediate.width == 32 else ("<Q", "<d")
    return float(struct.unpack(code[1], struct.pack(code[0], immediate.value))[0])


def _registers(text: str) -> Iterator[tuple[str, str]]:
    """The (name, type) of each register in a ``.reg`` directive; ``%r<3>`` stands for %r0, %r1 and %r2."""
    match = re.match(r"\.reg\s*(?:\.v[24]\s*)?\.(\w+)\s+(.*)", text, re.DOTALL)
    if not match:
        raise PtxSyntaxError(f"cannot read {text!r}")
    for item in match[2].split(","):
        name, _, count = item.strip().rstrip(">").partition("<")
        if count:
            yield from ((f"{name}{index}", match[1]) for index in range(int(count)))
        else:
            yield name, match[1]


def _parameters(text: str | None) -> Iterator[Variable]:
    return _variables(text) if text and text.strip() else iter(())


def _variables(text: str) -> Iterator[Variable]:
    """The variables of one or several comma-separated declarations, each perhaps with an initial value."""
    text = text.strip()
    if not text.startswith(
        (".global", ".const", ".shared", ".local", ".param", ".visible", ".extern", ".weak", ".reg")
    ):
        return
    for declaration in re.split(r",\s*(?=\.(?:param|reg)\b)", text):
        match = _VARIABLE.match(declaration.strip())
        if not match:
            raise PtxSyntaxError(f"cannot read {declaration!r}")
        names, _, value = match["rest"].partition("=")
        step = SIZES[match["type"]] * int(match["vector"] or 1)
        for name, dimensions in re.findall(r"([%\w$]+)((?:\s*\[\s*\w*\s*\])*)", names):
            size = step
            for extent in re.findall(r"\[\s*(\w*)\s*\]", dimensions):
                size *= int(extent or "0", 0)
            initial, pointers = _initial(value, step, size) if value else (None, ())
            align = int(match["align"] or step)
            yield Variable(name, match["space"], match["type"], size, align, initial, pointers)


def _initial(text: str, step: int, size: int) -> tuple[bytes, tuple[tuple[int, str], ...]]:
    data = bytearray()
    pointers: list[tuple[int, str]] = []
    for item in re.findall(r"[^\s,{}]+", text):
        if re.match(r"[-\d]", item):
            match = _TOKEN.match(item.lstrip("-"))
            assert match is not None
            value = _constant(match.lastgroup or "", match[0]).value * (-1 if item.startswith("-") else 1)
        else:
            generic = re.fullmatch(r"generic\(([\w$]+)\)", item)
            pointers.append((len(data), generic[1] if generic else item))
            value = 0
        data += (value % (1 << 8 * step)).to_bytes(step, "little")
    return bytes(data.ljust(size, b"\0")), tuple(pointers)
