"""Which instruction writes what another one reads, and what may be computed before its place.

If an instruction P dominates D, and D dominates U, then every way from P to U passes D: between the last P in front of
a D and the U behind it there is no other P. So what P has computed when D runs is the same when U runs, in loops too.

A value that is computed behind an instruction may be known there already: where nothing that it is computed from
changes in between. Its slice is what computes it there, in registers of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from warpcheck.lower.calls import renamed
from warpcheck.lower.flow import Flow, Ops, dominators, predecessors
from warpcheck.ptx import Instruction

__all__ = ["Place", "Slice", "Slices"]

_LONGEST = 16
"""Instructions of a slice."""

_CONSTANT = ("tid", "ntid", "ctaid", "nctaid", "laneid", "warpid")  # special registers that never change
_HIDDEN = frozenset(("cc", "addc", "subc", "madc"))  # what reads or writes the carry


class Place(NamedTuple):
    """Where an instruction stands: its block, and its number there."""

    block: int
    position: int


class Slice(NamedTuple):
    """Instructions that compute a register elsewhere, the register that has it there, and the types of all new ones."""

    instructions: tuple[Instruction, ...]
    register: str
    kinds: Mapping[str, str]


class Slices:
    """Knows where the registers of a kernel are written, and the slices of their values."""

    def __init__(self, flow: Flow, ops: Ops, places: Iterable[tuple[Place, Instruction]]) -> None:
        self.flow = flow
        self.ops = ops
        self.definitions: dict[str, list[Place]] = {}
        for place, instruction in places:
            for name in ops[instruction.opcode].written(instruction):
                self.definitions.setdefault(name, []).append(place)
        self.predecessors = predecessors(flow.blocks)
        self.dominators = dominators(flow.blocks)
        self._dominated: dict[tuple[int, int], bool] = {}
        self._between: dict[tuple[int, int], frozenset[int]] = {}
        self._slices: dict[tuple[str, Place], Slice | None] = {}

    def definition(self, name: str) -> Place | None:
        """Where a register is written, if in one place alone."""
        places = self.definitions.get(name, [])
        return places[0] if len(places) == 1 else None

    def instruction(self, place: Place) -> Instruction:
        return self.flow.blocks[place.block].instructions[place.position]

    def is_pure(self, i: Instruction) -> bool:
        """Whether an instruction computes its results from its operands and does nothing else."""
        return self.ops[i.opcode].pure and _HIDDEN.isdisjoint((i.opcode, *i.modifiers))

    def is_given(self, name: str) -> bool:
        """Whether a special register always has the same value in a thread."""
        stem = name.lstrip("%").partition(".")[0]
        return name not in self.flow.registers and (stem in _CONSTANT or stem.startswith("lanemask_"))

    def dominates(self, first: Place, place: Place) -> bool:
        """Whether every way to an instruction passes another one first."""
        if first.block == place.block:
            return first.position < place.position
        if (first.block, place.block) not in self._dominated:
            block = place.block
            while block not in (first.block, 0):
                block = self.dominators[block]
            self._dominated[first.block, place.block] = block == first.block
        return self._dominated[first.block, place.block]

    def is_before(self, name: str, place: Place) -> bool:
        """Whether a register is written in one place alone, which dominates another one."""
        written = self.definition(name)
        return written is not None and self.dominates(written, place)

    def writer(self, name: str, reader: Place) -> Place | None:
        """Return the instruction that writes what another one reads in a register, if it can be no other one.

        Guarded instructions behind it may write some lanes again.
        """
        whole = [place for place in self.definitions.get(name, ()) if self.instruction(place).guard is None]
        before = [place for place in whole if self.dominates(place, reader)]
        if not before:
            return None
        nearest = before[0]
        for place in before[1:]:
            nearest = place if self.dominates(nearest, place) else nearest
        if nearest.block == reader.block:
            return nearest
        behind = Place(nearest.block, nearest.position + 1)
        return nearest if self._is_unchanged(name, behind, reader) else None

    def slice_of(self, name: str, place: Place) -> Slice | None:
        """Return what computes a register in front of an instruction that dominates all that computes it."""
        if (name, place) not in self._slices:
            written = self.definition(name)
            found = list[Place]()
            part = None
            if written is not None and self._collect(written, place, found):
                part = self._moved(found, place, name)
            self._slices[name, place] = part
        return self._slices[name, place]

    def _collect(self, written: Place, place: Place, found: list[Place]) -> bool:
        """Add what computes the results of an instruction from values of registers at ``place``; whether it all can."""
        i = self.instruction(written)
        if written in found:
            return True
        if len(found) >= _LONGEST or i.guard is not None or not self.is_pure(i) or not self.dominates(place, written):
            return False
        for name in self.ops[i.opcode].read(i):
            if name not in self.flow.registers and not self.is_given(name):
                return False
            if not self._is_unchanged(name, place, written):
                source = self.writer(name, written)
                if source is None or not self._collect(source, place, found):
                    return False
        found.append(written)
        return True

    def _moved(self, found: list[Place], place: Place, name: str) -> Slice:
        """The instructions of a slice with results in registers of their own."""
        instructions = []
        kinds = dict[str, str]()
        new = ""
        for written in found:
            i = self.instruction(written)
            count = self.ops[i.opcode].results
            sources: dict[str, str] = {}
            for operand in self.ops[i.opcode].read(i):
                source = None if self._is_unchanged(operand, place, written) else self.writer(operand, written)
                if source is not None:
                    sources[operand] = _at(operand, source)
            results = {result: _at(result, written) for result in self.ops[i.opcode].written(i)}
            kinds |= {new: self.flow.registers[result] for result, new in results.items() if result != "_"}
            operands = (
                *(renamed(operand, results) for operand in i.operands[:count]),
                *(renamed(operand, sources) for operand in i.operands[count:]),
            )
            instructions.append(Instruction(i.opcode, i.modifiers, operands, None, i.line))
            new = results.get(name, new)
        return Slice(tuple(instructions), new, kinds)

    def _is_unchanged(self, name: str, place: Place, reader: Place) -> bool:
        """Whether a register has the same value at an instruction and at a later one that the first dominates."""
        places = self.definitions.get(name, ())
        if place.block == reader.block:
            return not any(p.block == place.block and place.position <= p.position < reader.position for p in places)
        between = self._blocks_between(place.block, reader.block)
        return not any(
            written.block in between
            or (written.block == place.block and written.position >= place.position)
            or (written.block == reader.block and written.position < reader.position)
            for written in places
        )

    def _blocks_between(self, first: int, last: int) -> frozenset[int]:
        """The blocks on the ways from one block to another one that do not come through the first again."""
        if (first, last) not in self._between:
            successors = [block.successors for block in self.flow.blocks]
            behind = _reached(successors, successors[first], first)
            before = _reached(self.predecessors, self.predecessors[last], first)
            self._between[first, last] = frozenset(behind & before)
        return self._between[first, last]


def _reached(steps: list[list[int]], starts: Iterable[int], without: int) -> set[int]:
    """The blocks that some blocks lead to, they among them, by ways that avoid one block."""
    found: set[int] = set()
    waiting = [block for block in starts if block != without]
    while waiting:
        block = waiting.pop()
        if block not in found:
            found.add(block)
            waiting += [following for following in steps[block] if following != without]
    return found


def _at(name: str, written: Place) -> str:
    """The register that has what an instruction writes to another one, where a slice computes it."""
    return f"{name}@{written.block}.{written.position}"
