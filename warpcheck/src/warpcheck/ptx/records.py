"""Define the records of PTX text: modules, functions, instructions with their source lines, operands."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from warpcheck.ptx.directives import Directives

__all__ = [
    "SIZES",
    "Address",
    "Function",
    "Group",
    "Immediate",
    "Instruction",
    "Module",
    "Not",
    "Operand",
    "PtxSyntaxError",
    "Register",
    "Symbol",
    "Variable",
]

SIZES = {"b8": 1, "u8": 1, "s8": 1, "b16": 2, "u16": 2, "s16": 2, "f16": 2, "bf16": 2, "b32": 4, "u32": 4, "s32": 4}
SIZES |= {
    "f32": 4,
    "f16x2": 4,
    "bf16x2": 4,
    "u16x2": 4,
    "s16x2": 4,
    "b64": 8,
    "u64": 8,
    "s64": 8,
    "f64": 8,
    "f32x2": 8,
    "b128": 16,
}


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
    """A memory operand: ``[base + offset]``. Other kinds of address are a Group of the items in the brackets."""

    base: Register | Symbol | Immediate
    offset: int = 0


class Group(NamedTuple):
    """Several operands in one: ``{a, b}`` of a vector, ``a|b`` of two results, ``(a, b)`` of a call."""

    items: tuple[Operand, ...]


Operand = Register | Not | Immediate | Symbol | Address | Group


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction, ``@guard opcode.modifiers operands``, with its source line and its own line.

    ``ptx_line`` is its line in the PTX text, from 1 on; 0 for an instruction that is in no text.
    """

    opcode: str
    modifiers: tuple[str, ...]
    operands: tuple[Operand, ...]
    guard: Register | Not | None = None
    line: int = 0
    ptx_line: int = field(default=0, compare=False)

    @property
    def name(self) -> str:
        """Return the opcode with its modifiers, as in the PTX text."""
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
    directives: Directives = field(default_factory=Directives)


@dataclass(frozen=True, slots=True)
class Module:
    """A PTX file: its functions, its module-level variables, and the source file that line numbers refer to.

    ``of_triton`` is whether Triton's compiler made it, by the back end that no other compiler of the course uses.
    ``text`` is the whole file.
    """

    functions: dict[str, Function]
    variables: dict[str, Variable]
    file: str
    target: str
    of_triton: bool = False
    text: str = field(default="", repr=False)

    def code_address(self, name: str) -> int:
        """Return the address of a function, for calls through pointers: no memory has such an address."""
        return 16 * (1 + list(self.functions).index(name))


class PtxSyntaxError(ValueError):
    """The text is not PTX that this parser reads."""
