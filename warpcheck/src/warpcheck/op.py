"""The record of an instruction: its variants, its operands, the lanes it waits for, and what emits it."""

from __future__ import annotations

import enum
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Generic, TypeVar

from warpcheck.ptx import Address, Group, Instruction, Not, Operand, Register
from warpcheck.variants import variant_pattern

__all__ = ["Lanes", "Op", "Placement", "last_operand", "live_lanes", "no_lanes", "registers", "registry"]

E_contra = TypeVar("E_contra", contravariant=True)


class Lanes(enum.Enum):
    """The lanes of a warp that an instruction waits for."""

    NONE = enum.auto()
    LIVE = enum.auto()  # those that have not left the kernel


class Placement(enum.Enum):
    """The places in a basic block where an instruction may be."""

    ANYWHERE = enum.auto()
    LAST = enum.auto()  # it ends its block
    ALONE = enum.auto()  # it is a block of its own


def no_lanes(instruction: Instruction) -> Lanes | Operand:
    return Lanes.NONE


def live_lanes(instruction: Instruction) -> Lanes | Operand:
    return Lanes.LIVE


def last_operand(instruction: Instruction) -> Lanes | Operand:
    """Return the mask in which an instruction with ``.sync`` ends; an instruction without it does not wait."""
    return instruction.operands[-1] if "sync" in instruction.modifiers else Lanes.NONE


@dataclass(frozen=True)
class Op(Generic[E_contra]):
    """One instruction of PTX, by its opcode.

    Args:
        variants: What may follow the opcode; see the module ``variants``. Anything else is refused by name, never half
            understood.
        emit: Emits what the instruction does to a warp; ``E_contra`` is the type of the emitter.
        lanes: The lanes that must be here before it runs: an operand is the mask that names them.
        placement: Where in a block it may be, for all of its variants or by the instruction; see ``placement_of``.
        results: How many of its first operands it writes, unless they are addresses.
        reads: The operands that it reads, if these are not all the others.
        since: The first compute capability that has it, as in sm_90, or 0; ``isa_availability`` knows the variants that
            came later.
        passes: Whether its integer constants are operands of a row, so that instructions that differ by them share a
            compiled shape; otherwise each constant has code of its own.
        pure: Whether each lane's results follow from its own operands, and nothing else happens.
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
        return variant_pattern(self.opcode, self.variants)

    def accepts(self, instruction: Instruction) -> bool:
        """Return whether this is an instruction with exactly these modifiers."""
        return self._pattern.fullmatch(instruction.name) is not None

    def placement_of(self, instruction: Instruction) -> Placement:
        """Return where in a basic block an instruction may be."""
        return self.placement if isinstance(self.placement, Placement) else self.placement(instruction)

    def written(self, instruction: Instruction) -> list[str]:
        """Return the registers that an instruction writes."""
        return registers([operand for operand in instruction.operands[: self.results] if not _is_memory(operand)])

    def read(self, instruction: Instruction) -> list[str]:
        """Return the registers that it reads: its guard and the bases of addresses too, and results that a guard may
        preserve.
        """
        if self.reads is not None:
            return registers(self.reads(instruction))
        results = instruction.operands[: self.results]
        sources = instruction.operands[self.results :]
        names = registers([*sources, *filter(_is_memory, results)])
        # Where its guard is false an instruction preserves its results, so it reads them.
        if instruction.guard is not None:
            names += [*registers([instruction.guard]), *self.written(instruction)]
        return names


def registry(*families: Iterable[Op[E_contra]]) -> dict[str, Op[E_contra]]:
    """Return instructions by their opcodes. Raises ValueError if two have the same opcode."""
    ops: dict[str, Op[E_contra]] = {}
    for family in families:
        for op in family:
            if op.opcode in ops:
                raise ValueError(f"two instructions have the opcode {op.opcode}")
            ops[op.opcode] = op
    return ops


def registers(operands: Iterable[Operand]) -> list[str]:
    """Return the names of the registers in operands."""
    names: list[str] = []
    # Lowering calls this for every operand several times. A match statement, which binds attributes by position, would
    # take three times as long, and isinstance twice as long.
    for operand in operands:
        if type(operand) is Register:
            names.append(operand.name)
        elif type(operand) is Address:
            if type(operand.base) is Register:
                names.append(operand.base.name)
        elif type(operand) is Group:
            names += registers(operand.items)
        elif type(operand) is Not:
            names.append(operand.register.name)
    return names


def _is_memory(operand: Operand) -> bool:
    return isinstance(operand, Address)
