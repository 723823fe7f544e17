"""Which loads poll: a loop goes on until what they load says so, and for no other reason.

How often such a load is repeated is up to the time that other threads take, so that its repetitions cost nothing. A
load that is repeated because a loop counts its rounds is traffic, volatile or not: a tile that is read again, say.

A loop polls where no branch that leaves it depends on a counter or on a clock. What a branch depends on is followed
backwards from its predicate through the registers of the loop, and through memory to whatever the loop stores. A
counter is a register that depends on itself through arithmetic. A branch to a trap, as of a wait with a timeout, does
not count.
"""

from __future__ import annotations

from collections.abc import Iterator

from warpcheck.lower.demand import Place
from warpcheck.lower.flow import Flow, Ops, dominators, predecessors
from warpcheck.op import registers
from warpcheck.ptx import Instruction

__all__ = ["Polls"]

_LOADS = ("ld", "atom")
_KEEP = ("mov", "selp", "cvt", "cvta", "prmt", "shfl", "vote", "setp", "set", "not", "and", "or", "min", "max", *_LOADS)
"""Opcodes that pass a value on or latch it: a register that depends on itself through these alone counts nothing."""

_CLOCKS = ("clock", "globaltimer")


class Polls:
    """Tells the loads of one kernel that poll."""

    def __init__(self, flow: Flow, ops: Ops) -> None:
        self.flow = flow
        self.ops = ops
        self._loops: list[frozenset[int]] | None = None

    def polls(self, place: Place) -> bool:
        """Return whether the load at a place is repeated for its value alone."""
        loop = self._innermost_loop(place.block)
        if loop is None:
            return False
        definitions = self._definitions(loop)
        exits = [at for at in self._branches(loop) if self._leaves(at, loop)]
        within = [at for at in self._branches(loop) if at not in exits]
        sources = self._sources(exits, definitions)
        if not any(self._instruction(at).opcode in _LOADS for at in sources):
            sources = self._sources(exits + within, definitions)
            counting = sources
        else:
            counting = sources
            sources = sources | self._sources(within, definitions)
        return place in sources and not any(self._counts(at, definitions) for at in counting)

    def _innermost_loop(self, block: int) -> frozenset[int] | None:
        if self._loops is None:
            self._loops = list(self._natural_loops())
        return min((loop for loop in self._loops if block in loop), key=len, default=None)

    def _natural_loops(self) -> Iterator[frozenset[int]]:
        """Yield the blocks of each loop: those that reach a jump back without passing where it leads.

        Jumps back to one block make one loop, as `continue` does.
        """
        nearest = dominators(self.flow.blocks)
        before = predecessors(self.flow.blocks)
        bodies: dict[int, set[int]] = {}
        for number, block in enumerate(self.flow.blocks):
            for header in block.successors:
                if self._dominates(header, number, nearest):
                    bodies.setdefault(header, {header}).update(self._reaching(number, header, before))
        yield from map(frozenset, bodies.values())

    @staticmethod
    def _dominates(header: int, block: int, nearest: list[int]) -> bool:
        while block not in (header, nearest[block]):
            block = nearest[block]
        return block == header

    @staticmethod
    def _reaching(end: int, header: int, before: list[list[int]]) -> set[int]:
        found = {header, end}
        waiting = [end] * (end != header)
        while waiting:
            for block in before[waiting.pop()]:
                if block not in found:
                    found.add(block)
                    waiting.append(block)
        return found

    def _instruction(self, at: Place) -> Instruction:
        return self.flow.blocks[at.block].instructions[at.position]

    def _branches(self, loop: frozenset[int]) -> list[Place]:
        """Return the places of what ends a block of the loop, where it depends on a register."""
        ends = [Place(block, len(self.flow.blocks[block].instructions) - 1) for block in sorted(loop)]
        conditional = ("bra", "brx", "ret", "exit")
        return [at for at in ends if self._instruction(at).opcode in conditional and self._reads(at)]

    def _reads(self, at: Place) -> list[str]:
        i = self._instruction(at)
        return [*self.ops[i.opcode].read(i)]

    def _leaves(self, at: Place, loop: frozenset[int]) -> bool:
        """Return whether a branch may end the loop, but for a trap."""
        if self._instruction(at).opcode in ("ret", "exit"):
            return True
        outside = [self.flow.blocks[number] for number in self.flow.blocks[at.block].successors if number not in loop]
        return any(all(i.opcode != "trap" for i in block.instructions) for block in outside)

    def _definitions(self, loop: frozenset[int]) -> dict[str, list[Place]]:
        """Return where the loop writes each register; under the name "", where it stores to memory."""
        definitions: dict[str, list[Place]] = {"": []}
        for block in loop:
            for position, i in enumerate(self.flow.blocks[block].instructions):
                for name in self.ops[i.opcode].written(i):
                    definitions.setdefault(name, []).append(Place(block, position))
                if i.opcode == "st":
                    definitions[""].append(Place(block, position))
        return definitions

    def _causes(self, at: Place, definitions: dict[str, list[Place]]) -> list[Place]:
        """Return the instructions of the loop that what a place computes depends on.

        A load depends on what is stored, not on its address; a store hands on its value.
        """
        i = self._instruction(at)
        if i.opcode in _LOADS:
            return definitions[""] if i.opcode == "ld" else []
        names = registers(i.operands[1:]) if i.opcode == "st" else self._reads(at)
        return [definition for name in names for definition in definitions.get(name, ())]

    def _sources(self, roots: list[Place], definitions: dict[str, list[Place]]) -> set[Place]:
        """Return all instructions of the loop that some of its instructions depend on."""
        found: set[Place] = set()
        waiting = list(roots)
        while waiting:
            for cause in self._causes(waiting.pop(), definitions):
                if cause not in found:
                    found.add(cause)
                    waiting.append(cause)
        return found

    def _counts(self, at: Place, definitions: dict[str, list[Place]]) -> bool:
        """Return whether an instruction counts the rounds of its loop, or reads a clock."""
        i = self._instruction(at)
        if any(clock in name for name in registers(i.operands) for clock in _CLOCKS):
            return True
        return i.opcode not in (*_KEEP, "st") and at in self._sources([at], definitions)
