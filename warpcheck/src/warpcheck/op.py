"""What is known of an instruction, in one record: its forms, its operands, what it waits for, what emits it."""

from __future__ import annotations

import enum
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Generic, TypeVar

from warpcheck.forms import pattern
from warpcheck.ptx import Address, Group, Instruction, Not, Operand, Register

__all__ = ["Lanes", "Op", "Placement", "last_operand", "live_lanes", "no_lanes", "registers", "registry"]

E_contra = TypeVar("E_contra", contravariant=True)


class Lanes(enum.Enum):
    """Lanes of a warp that an instruction waits for."""

    NONE = enum.auto()
    LIVE = enum.auto()  # those that have not left the kernel


class Placement(enum.Enum):
    """Where in a basic block an instruction may stand."""

    ANYWHERE = enum.auto()
    LAST = enum.auto()  # it ends its block
    ALONE = enum.auto()  # it is a block of its own


def no_lanes(instruction: Instruction) -> Lanes | Operand:
    return Lanes.NONE


def live_lanes(instruction: Instruction) -> Lanes | Operand:
    return Lanes.LIVE


def last_operand(instruction: Instruction) -> Lanes | Operand:
    """The mask that an instruction with ``.sync`` ends in; those without it wait for nobody."""
    return instruction.operands[-1] if "sync" in instruction.modifiers else Lanes.NONE


@dataclass(frozen=True)
class Op(Generic[E_contra]):
    """One instruction of PTX, by its opcode.

    forms: what may follow the opcode; see ``forms``. Anything else is refused by name, never half understood.
    emit: emits what the instruction does to a warp; ``E_contra`` is what it emits with.
    lanes: the lanes that must be here before it runs: an operand is the mask that names them.
    place: where it may stand, for all of its forms or by the instruction; see ``place_of``.
    results: how many of its first operands it writes, unless they are addresses.
    reads: the operands that it reads, where those are not all the others.
    since: the first compute capability that has it, as in sm_90, or 0; ``since`` knows the forms that came later.
    passes: whether its integer constants are read as registers are, and may then differ from one place to another in
    code that these share; else each constant has code of its own.
    pure: whether each lane's results follow from its own operands, and nothing else happens.
    """

    opcode: str
    variants: tuple[str, ...]
    emit: Callable[[E_contra, Instruction], None]
    lanes: Callable[[Instruction], Lanes | Operand] = no_lanes
    placement: Placement | Callable[[Instruction], Placement] = Placement.ANYWHERE
    results: int = 1
    reads: Callable[[Instruction], Sequence[Operand]] | None = None
    since: int = 0
    passes: bool = False
    pure: bool = False

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        return pattern(self.opcode, self.variants)

    def accepts(self, instruction: Instruction) -> bool:
        """Whether this is an instruction with just these modifiers."""
        return self._pattern.fullmatch(instruction.name) is not None

    def placement_of(self, instruction: Instruction) -> Placement:
        """Where in a basic block an instruction may stand."""
        return self.placement if isinstance(self.placement, Placement) else self.placement(instruction)

    def written(self, instruction: Instruction) -> list[str]:
        """The registers that an instruction writes."""
        return registers(operand for operand in instruction.operands[: self.results] if not _is_memory(operand))

    def read(self, instruction: Instruction) -> list[str]:
        """The registers that it reads: its guard and the bases of addresses too, and results that a guard may keep."""
        if self.reads is not None:
            return registers(self.reads(instruction))
        results = instruction.operands[: self.results]
        others = instruction.operands[self.results :]
        found = registers([*others, *filter(_is_memory, results)])
        if instruction.guard is not None:
            found += [*registers([instruction.guard]), *self.written(instruction)]
        return found


def registry(*families: Iterable[Op[E_contra]]) -> dict[str, Op[E_contra]]:
    """Instructions by their opcodes. Raises ValueError where two have one opcode."""
    ops: dict[str, Op[E_contra]] = {}
    for family in families:
        for op in family:
            if op.opcode in ops:
                raise ValueError(f"two instructions have the opcode {op.opcode}")
            ops[op.opcode] = op
    return ops


def registers(operands: Iterable[Operand]) -> list[str]:
    """The names of the registers in operands."""
    found: list[str] = []
    for operand in operands:
        match operand:
            case Register(name) | Not(Register(name)) | Address(Register(name)):
                found.append(name)
            case Group(items):
                found += registers(items)
    return found


def _is_memory(operand: Operand) -> bool:
    return isinstance(operand, Address)
