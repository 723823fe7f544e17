"""Find loads that poll: the loop around them ends by the loaded value alone.

How often such a load is repeated depends on the timing of other threads, so its repetitions are not counted. A load
that is repeated because a loop counts iterations is traffic, volatile or not: a tile that is read again, for example.

A loop polls if no branch that leaves it depends on a counter or on a clock. The dependences of a branch are followed
backward from its predicate through the registers of the loop, and through memory to whatever the loop stores. A counter
is a register that depends on itself through arithmetic. A branch to a trap, as in a wait with a timeout, does not
count.
"""

from __future__ import annotations

from collections.abc import Iterator

from warpcheck.lower.control_flow import Flow, Ops, dominators, predecessors
from warpcheck.lower.load_liveness import ProgramPoint
from warpcheck.op import registers
from warpcheck.ptx import Instruction

__all__ = ["Polls"]

_LOADS = ("ld", "atom")
# Opcodes that pass a value on or latch it: a register that depends on itself only through these is not a counter.
_KEEP = ("mov", "selp", "cvt", "cvta", "prmt", "shfl", "vote", "setp", "set", "not", "and", "or", "min", "max", *_LOADS)

_CLOCKS = ("clock", "globaltimer")


class Polls:
    """Finds the loads of one kernel that poll."""

    def __init__(self, flow: Flow, ops: Ops) -> None:
        self.flow = flow
        self.ops = ops
        self._loops: list[frozenset[int]] | None = None

    def polls(self, place: ProgramPoint) -> bool:
        """Return whether the load at a place is repeated for its value alone."""
        loop = self._innermost_loop(place.block)
        if loop is None:
            return False
        # If no exit depends on a load, the loop may go on by an inner branch that does (continue): then both decide.
        definitions = self._definitions(loop)
        exits = [point for point in self._branches(loop) if self._leaves(point, loop)]
        inner_branches = [point for point in self._branches(loop) if point not in exits]
        sources = self._sources(exits, definitions)
        if not any(self._instruction(point).opcode in _LOADS for point in sources):
            sources = self._sources(exits + inner_branches, definitions)
            counting = sources
        else:
            counting = sources
            sources = sources | self._sources(inner_branches, definitions)
        return place in sources and not any(self._counts(point, definitions) for point in counting)

    def _innermost_loop(self, block_number: int) -> frozenset[int] | None:
        if self._loops is None:
            self._loops = list(self._natural_loops())
        # Two natural loops with different headers are nested or disjoint, so the smallest one is the innermost.
        return min((loop for loop in self._loops if block_number in loop), key=len, default=None)

    def _natural_loops(self) -> Iterator[frozenset[int]]:
        """Yield the blocks of each natural loop: those that reach a back edge without passing its header.

        Back edges to one header make one loop, as with `continue`.
        """
        immediate_dominators = dominators(self.flow.blocks)
        predecessors_of = predecessors(self.flow.blocks)
        # An edge to a block that dominates its source is a back edge.
        bodies: dict[int, set[int]] = {}
        for number, block in enumerate(self.flow.blocks):
            for header in block.successors:
                if self._dominates(header, number, immediate_dominators):
                    bodies.setdefault(header, {header}).update(self._reaching(number, header, predecessors_of))
        yield from map(frozenset, bodies.values())

    @staticmethod
    def _dominates(header: int, block: int, immediate_dominators: list[int]) -> bool:
        while block not in (header, immediate_dominators[block]):
            block = immediate_dominators[block]
        return block == header

    @staticmethod
    def _reaching(end: int, header: int, predecessors_of: list[list[int]]) -> set[int]:
        reaching = {header, end}
        worklist = [end] * (end != header)
        while worklist:
            for block in predecessors_of[worklist.pop()]:
                if block not in reaching:
                    reaching.add(block)
                    worklist.append(block)
        return reaching

    def _instruction(self, point: ProgramPoint) -> Instruction:
        return self.flow.blocks[point.block].instructions[point.position]

    def _branches(self, loop: frozenset[int]) -> list[ProgramPoint]:
        """Return the last instructions of the loop's blocks that depend on a register."""
        ends = [ProgramPoint(block, len(self.flow.blocks[block].instructions) - 1) for block in sorted(loop)]
        conditional = ("bra", "brx", "ret", "exit")
        return [point for point in ends if self._instruction(point).opcode in conditional and self._reads(point)]

    def _reads(self, point: ProgramPoint) -> list[str]:
        i = self._instruction(point)
        return [*self.ops[i.opcode].read(i)]

    def _leaves(self, point: ProgramPoint, loop: frozenset[int]) -> bool:
        """Return whether a branch may end the loop other than by a trap."""
        if self._instruction(point).opcode in ("ret", "exit"):
            return True
        # A timeout that ends in a trap is no way to go on, so it does not make the loop a counted one.
        outside = [
            self.flow.blocks[number] for number in self.flow.blocks[point.block].successors if number not in loop
        ]
        return any(all(i.opcode != "trap" for i in block.instructions) for block in outside)

    def _definitions(self, loop: frozenset[int]) -> dict[str, list[ProgramPoint]]:
        """Return where the loop writes each register; under the name "", where it stores to memory."""
        definitions: dict[str, list[ProgramPoint]] = {"": []}
        for block in loop:
            for position, i in enumerate(self.flow.blocks[block].instructions):
                for name in self.ops[i.opcode].written(i):
                    definitions.setdefault(name, []).append(ProgramPoint(block, position))
                if i.opcode == "st":
                    definitions[""].append(ProgramPoint(block, position))
        return definitions

    def _causes(self, point: ProgramPoint, definitions: dict[str, list[ProgramPoint]]) -> list[ProgramPoint]:
        """Return the instructions of the loop that the result of one depends on directly.

        A load depends on what is stored, not on its address; a store passes its value on.
        """
        i = self._instruction(point)
        # "" stands for memory: a load depends on every store of the loop, whatever its address.
        if i.opcode in _LOADS:
            return definitions[""] if i.opcode == "ld" else []
        names = registers(i.operands[1:]) if i.opcode == "st" else self._reads(point)
        return [definition for name in names for definition in definitions.get(name, ())]

    def _sources(self, roots: list[ProgramPoint], definitions: dict[str, list[ProgramPoint]]) -> set[ProgramPoint]:
        """Return all instructions of the loop that some of its instructions depend on."""
        sources: set[ProgramPoint] = set()
        worklist = list(roots)
        while worklist:
            for cause in self._causes(worklist.pop(), definitions):
                if cause not in sources:
                    sources.add(cause)
                    worklist.append(cause)
        return sources

    def _counts(self, point: ProgramPoint, definitions: dict[str, list[ProgramPoint]]) -> bool:
        """Return whether an instruction counts the iterations of its loop, or reads a clock."""
        i = self._instruction(point)
        if any(clock in name for name in registers(i.operands) for clock in _CLOCKS):
            return True
        # An instruction that is among its own sources, and changes the value, is a counter.
        return i.opcode not in (*_KEEP, "st") and point in self._sources([point], definitions)
