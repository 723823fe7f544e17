"""Find the instruction that writes what another one reads, and the values that can be computed earlier.

If an instruction P dominates D, and D dominates U, then every path from P to U passes D: between the last P in front of
a D and the U after it there is no other P. So what P has computed when D runs is the same when U runs, in loops too.

A value that is computed after an instruction may be known there already, if nothing it is computed from changes in
between. Its slice computes it there, in registers of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from warpcheck.lower.control_flow import Flow, Ops, dominators, predecessors
from warpcheck.lower.inlining import rename_operand
from warpcheck.ptx import Instruction

__all__ = ["ProgramPoint", "Slice", "Slices"]

# The most instructions of a slice.
_LONGEST = 16

_CONSTANT = ("tid", "ntid", "ctaid", "nctaid", "laneid", "warpid")  # special registers that never change
# The carry is in no list of operands, so data flow over operands does not see it.
_HIDDEN = frozenset(("cc", "addc", "subc", "madc"))  # what reads or writes the carry


class ProgramPoint(NamedTuple):
    """The place of an instruction: its block, and its number there."""

    block: int
    position: int


class Slice(NamedTuple):
    """Instructions that compute a register elsewhere, the register that has it there, and the types of all new ones."""

    instructions: tuple[Instruction, ...]
    register: str
    kinds: Mapping[str, str]


class Slices:
    """Knows where the registers of a kernel are written, and the slices of their values."""

    def __init__(self, flow: Flow, ops: Ops, points: Iterable[tuple[ProgramPoint, Instruction]]) -> None:
        self.flow = flow
        self.ops = ops
        self.definitions: dict[str, list[ProgramPoint]] = {}
        for point, instruction in points:
            for name in ops[instruction.opcode].written(instruction):
                self.definitions.setdefault(name, []).append(point)
        self.predecessors = predecessors(flow.blocks)
        self.dominators = dominators(flow.blocks)
        self._dominated: dict[tuple[int, int], bool] = {}
        self._between: dict[tuple[int, int], frozenset[int]] = {}
        self._slices: dict[tuple[str, ProgramPoint], Slice | None] = {}

    def definition(self, name: str) -> ProgramPoint | None:
        """Return where a register is written, if in one place only."""
        points = self.definitions.get(name, [])
        return points[0] if len(points) == 1 else None

    def instruction(self, point: ProgramPoint) -> Instruction:
        return self.flow.blocks[point.block].instructions[point.position]

    def is_pure(self, i: Instruction) -> bool:
        """Return whether an instruction computes its results from its operands and does nothing else."""
        return self.ops[i.opcode].pure and _HIDDEN.isdisjoint((i.opcode, *i.modifiers))

    def is_thread_constant(self, name: str) -> bool:
        """Return whether a special register always has the same value in a thread."""
        stem = name.lstrip("%").partition(".")[0]
        return name not in self.flow.registers and (stem in _CONSTANT or stem.startswith("lanemask_"))

    def dominates(self, first: ProgramPoint, point: ProgramPoint) -> bool:
        """Return whether every path to an instruction passes another one first."""
        if first.block == point.block:
            return first.position < point.position
        if (first.block, point.block) not in self._dominated:
            # Walk up the tree of dominators, whose root is block 0.
            block = point.block
            while block not in (first.block, 0):
                block = self.dominators[block]
            self._dominated[first.block, point.block] = block == first.block
        return self._dominated[first.block, point.block]

    def is_before(self, name: str, point: ProgramPoint) -> bool:
        """Return whether a register is written in one place only, which dominates another one."""
        definition = self.definition(name)
        return definition is not None and self.dominates(definition, point)

    def writer(self, name: str, reader: ProgramPoint) -> ProgramPoint | None:
        """Return the instruction that writes what another one reads in a register, if no other one can.

        Guarded instructions after it may overwrite some lanes.
        """
        unguarded = [point for point in self.definitions.get(name, ()) if self.instruction(point).guard is None]
        dominating = [point for point in unguarded if self.dominates(point, reader)]
        if not dominating:
            return None
        # The nearest definition that dominates the reader, if no other one is on a path in between.
        nearest = dominating[0]
        for point in dominating[1:]:
            nearest = point if self.dominates(nearest, point) else nearest
        if nearest.block == reader.block:
            return nearest
        next_point = ProgramPoint(nearest.block, nearest.position + 1)
        return nearest if self._is_unchanged(name, next_point, reader) else None

    def slice_of(self, name: str, point: ProgramPoint) -> Slice | None:
        """Return what computes a register in front of an instruction that dominates all that computes it."""
        if (name, point) not in self._slices:
            definition = self.definition(name)
            needed = list[ProgramPoint]()
            result = None
            if definition is not None and self._collect(definition, point, needed):
                result = self._build_slice(needed, point, name)
            self._slices[name, point] = result
        return self._slices[name, point]

    def _collect(self, point: ProgramPoint, target: ProgramPoint, needed: list[ProgramPoint]) -> bool:
        """Collect what computes an instruction's results from registers at ``target``; return whether that is
        possible.
        """
        i = self.instruction(point)
        if point in needed:
            return True
        # All inputs must be available at the target, and the instruction must be movable there.
        if len(needed) >= _LONGEST or i.guard is not None or not self.is_pure(i) or not self.dominates(target, point):
            return False
        # Each input is either unchanged since the target, or its own computation is moved as well.
        for name in self.ops[i.opcode].read(i):
            if name not in self.flow.registers and not self.is_thread_constant(name):
                return False
            if not self._is_unchanged(name, target, point):
                source = self.writer(name, point)
                if source is None or not self._collect(source, target, needed):
                    return False
        # Behind what it is computed from: the list is in the order of execution.
        needed.append(point)
        return True

    def _build_slice(self, needed: list[ProgramPoint], target: ProgramPoint, name: str) -> Slice:
        """Return the instructions of a slice with results in registers of their own."""
        instructions = []
        kinds = dict[str, str]()
        new = ""
        for point in needed:
            i = self.instruction(point)
            count = self.ops[i.opcode].results
            sources: dict[str, str] = {}
            for operand in self.ops[i.opcode].read(i):
                source = None if self._is_unchanged(operand, target, point) else self.writer(operand, point)
                if source is not None:
                    sources[operand] = _slice_register(operand, source)
            results = {result: _slice_register(result, point) for result in self.ops[i.opcode].written(i)}
            kinds |= {new: self.flow.registers[result] for result, new in results.items() if result != "_"}
            operands = (
                *(rename_operand(operand, results) for operand in i.operands[:count]),
                *(rename_operand(operand, sources) for operand in i.operands[count:]),
            )
            instructions.append(Instruction(i.opcode, i.modifiers, operands, None, i.line))
            new = results.get(name, new)
        return Slice(tuple(instructions), new, kinds)

    def _is_unchanged(self, name: str, point: ProgramPoint, reader: ProgramPoint) -> bool:
        """Return whether a register has the same value at an instruction and at a later one that it dominates."""
        points = self.definitions.get(name, ())
        if point.block == reader.block:
            return not any(p.block == point.block and point.position <= p.position < reader.position for p in points)
        between = self._blocks_between(point.block, reader.block)
        return not any(
            definition_elsewhere.block in between
            or (definition_elsewhere.block == point.block and definition_elsewhere.position >= point.position)
            or (definition_elsewhere.block == reader.block and definition_elsewhere.position < reader.position)
            for definition_elsewhere in points
        )

    def _blocks_between(self, first: int, last: int) -> frozenset[int]:
        """Return the blocks on paths from one block to another that do not pass the first one again."""
        if (first, last) not in self._between:
            successors = [block.successors for block in self.flow.blocks]
            after = _reachable_avoiding(successors, successors[first], first)
            leading = _reachable_avoiding(self.predecessors, self.predecessors[last], first)
            self._between[first, last] = frozenset(after & leading)
        return self._between[first, last]


def _reachable_avoiding(steps: list[list[int]], starts: Iterable[int], avoided: int) -> set[int]:
    """Return the blocks that are reachable from some blocks, including these, by paths that avoid one block."""
    result: set[int] = set()
    worklist = [block for block in starts if block != avoided]
    while worklist:
        block = worklist.pop()
        if block not in result:
            result.add(block)
            worklist += [following for following in steps[block] if following != avoided]
    return result


def _slice_register(name: str, definition: ProgramPoint) -> str:
    """Return the register that has the result of an instruction where a slice computes it."""
    return f"{name}@{definition.block}.{definition.position}"
