"""Which lanes use what a load gives them.

Compilers load more than they use: Triton gives a tile that is smaller than a block to several threads, of which one
stores; a select drops one of two values. What a lane drops can neither race nor be unwritten.

A lane's demand is a formula over predicates, at the place of the load. It may say too much, never too little.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from kernelpath.simt.lower.flow import Flow, Ops
from kernelpath.simt.op import registers
from kernelpath.simt.ptx import Immediate, Instruction, Not, Operand, Register

__all__ = ["EVERYONE", "Demand", "Every", "Exchanged", "Formula", "Holds", "Some"]


@dataclass(frozen=True)
class Holds:
    """The lanes in which a predicate holds, or does not."""

    predicate: str
    negated: bool = False


@dataclass(frozen=True)
class Every:
    """The lanes that all of some formulas name: all lanes, where there are none."""

    formulas: tuple[Formula, ...] = ()


@dataclass(frozen=True)
class Some:
    """The lanes that one of some formulas names."""

    formulas: tuple[Formula, ...] = ()


@dataclass(frozen=True)
class Exchanged:
    """The lanes that a formula names, and their partners: those ``distance`` apart, or the whole warp for 0."""

    formula: Formula
    distance: int


Formula = Holds | Every | Some | Exchanged
EVERYONE, NOBODY = Every(), Some()

_LONGEST = 256  # instructions that a value is followed through
_DEEPEST = 12  # instructions that a predicate is computed by before its time
_NEVER = 1 << 20
_CONSTANT = ("tid", "ntid", "ctaid", "nctaid", "laneid", "warpid")  # special registers that never change
_HIDDEN = frozenset(("cc", "addc", "subc", "madc"))  # what reads or writes the carry


@dataclass(frozen=True)
class Place:
    """An instruction, and where it stands."""

    block: int
    position: int
    instruction: Instruction


class Demand:
    """The demand for the loads of one kernel."""

    def __init__(self, flow: Flow, ops: Ops) -> None:
        self.flow, self.ops = flow, ops
        self._steps: dict[str, int] = {}

    def of(self, block: int, position: int) -> Formula:
        """The lanes that use what the load at this place gives."""
        load = Place(block, position, self.flow.blocks[block].instructions[position])
        walk = _Walk(self, load)
        return _some(tuple(walk.demand(name) for name in self.ops[load.instruction.opcode].written(load.instruction)))

    def definition(self, name: str) -> Place | None:
        """What writes a register, where one instruction alone does."""
        places = self._definitions.get(name, [])
        return places[0] if len(places) == 1 else None

    def is_constant(self, name: str) -> bool:
        """Whether a register holds the same in a thread whenever it is computed, in not too many steps."""
        return self._steps_to(name) <= _DEEPEST

    def _steps_to(self, name: str) -> int:
        """The longest way from what never changes to a register; more than any where there is none."""
        if name not in self.flow.registers:
            stem = name.lstrip("%").partition(".")[0]
            return 0 if stem in _CONSTANT or stem.startswith("lanemask_") else _NEVER
        if name not in self._steps:
            self._steps[name] = _NEVER  # while it is looked at: one that depends on itself changes
            place = self.definition(name)
            if place is not None and place.instruction.guard is None and self._computes(place.instruction):
                sources = self.ops[place.instruction.opcode].read(place.instruction)
                self._steps[name] = 1 + max(map(self._steps_to, sources), default=0)
        return self._steps[name]

    def precedes(self, first: Place, second: Place) -> bool:
        """Whether every way to the second instruction passes the first."""
        if first.block == second.block:
            return first.position < second.position
        block = second.block
        while block != first.block and block:
            block = self._dominators[block]
        return block == first.block

    def is_set(self, place: Place, name: str, block: int) -> bool:
        """Whether the register that an instruction writes comes to a block with its value."""
        return name in self.flow.blocks[block].live_in and self.precedes(place, Place(block, 0, place.instruction))

    def uses(self, name: str) -> list[Place]:
        return self._uses.get(name, [])

    def way_to(self, place: Place, start: int) -> Iterator[Operand]:
        """The predicates under which a block is reached, back to the block ``start``."""
        block = place.block
        while block != start and len(self._predecessors[block]) == 1:
            before = self._predecessors[block][0]
            last = self.flow.blocks[before].instructions[-1]
            if last.opcode == "bra" and last.guard is not None and len(set(self.flow.blocks[before].successors)) == 2:
                taken = self.flow.blocks[before].successors[0] == block
                yield last.guard if taken else _negated(last.guard)
            block = before

    def _computes(self, instruction: Instruction) -> bool:
        if instruction.opcode == "ld":
            return instruction.modifiers[0] == "param" and not registers(instruction.operands[1:])
        return self.ops[instruction.opcode].pure and _HIDDEN.isdisjoint((instruction.opcode, *instruction.modifiers))

    @cached_property
    def _definitions(self) -> dict[str, list[Place]]:
        found: dict[str, list[Place]] = {}
        for place in self._places():
            for name in self.ops[place.instruction.opcode].written(place.instruction):
                found.setdefault(name, []).append(place)
        return found

    @cached_property
    def _uses(self) -> dict[str, list[Place]]:
        found: dict[str, list[Place]] = {}
        for place in self._places():
            for name in set(self.ops[place.instruction.opcode].read(place.instruction)):
                found.setdefault(name, []).append(place)
        return found

    def _places(self) -> Iterator[Place]:
        for number, block in enumerate(self.flow.blocks):
            for position, instruction in enumerate(block.instructions):
                yield Place(number, position, instruction)

    @cached_property
    def _predecessors(self) -> list[list[int]]:
        found: list[list[int]] = [[] for _ in self.flow.blocks]
        for number, block in enumerate(self.flow.blocks):
            for successor in set(block.successors):
                found[successor].append(number)
        return found

    @cached_property
    def _dominators(self) -> list[int]:
        """For each block the nearest that every way to it passes; Cooper, Harvey and Kennedy's algorithm."""
        nearest: list[int] = [-1] * len(self.flow.blocks)
        nearest[0] = 0
        order = self._order()
        rank = {block: number for number, block in enumerate(order)}
        changed = True
        while changed:
            changed = False
            for block in order[1:]:
                known = [before for before in self._predecessors[block] if nearest[before] >= 0]
                common = known[0]
                for other in known[1:]:
                    while common != other:
                        if rank[common] > rank[other]:
                            common = nearest[common]
                        else:
                            other = nearest[other]
                changed |= nearest[block] != common
                nearest[block] = common
        return [max(block, 0) for block in nearest]

    def _order(self) -> list[int]:
        """The blocks that can be reached, each before its successors but for loops."""
        order: list[int] = []
        seen = {0}
        stack = [(0, iter(self.flow.blocks[0].successors))]
        while stack:
            block, successors = stack[-1]
            following = next((one for one in successors if one not in seen), None)
            if following is None:
                order.append(block)
                stack.pop()
            else:
                seen.add(following)
                stack.append((following, iter(self.flow.blocks[following].successors)))
        return order[::-1]


class _Walk:
    """Follows the value of one load."""

    def __init__(self, demand: Demand, load: Place) -> None:
        self.whole, self.load = demand, load
        self.known: dict[str, Formula] = {}
        self.left = _LONGEST

    def demand(self, name: str) -> Formula:
        """The lanes that use a register; all, where it goes round a loop."""
        if name not in self.known:
            self.known[name] = EVERYONE
            found: list[Formula] = []
            for place in self.whole.uses(name):
                found.append(self._use(name, place))
                if found[-1] == EVERYONE:
                    break
            self.known[name] = _some(tuple(found))
        return self.known[name]

    def _use(self, name: str, place: Place) -> Formula:
        i = place.instruction
        op = self.whole.ops[i.opcode]
        self.left -= 1
        if self.left < 0:
            return EVERYONE
        guards = [i.guard] if i.guard is not None else []
        if guards and name in op.written(i) and name not in registers([*i.operands[op.results :], *guards]):
            return NOBODY  # the guard keeps what the register holds
        if name not in registers(guards):
            results = tuple(self.demand(result) for result in op.written(i))
            if op.pure and _HIDDEN.isdisjoint((i.opcode, *i.modifiers)):
                return self._under(place, [*guards, *self._selection(name, i)], _some(results))
            if i.opcode == "shfl" and name not in registers(i.operands[2:]):
                lanes = i.operands[2]
                distance = lanes.value & 31 if "bfly" in i.modifiers and isinstance(lanes, Immediate) else 0
                inner = _some(results)
                return inner if inner in (EVERYONE, NOBODY) else Exchanged(inner, distance)
        return self._under(place, [*guards, *self.whole.way_to(place, self.load.block)], EVERYONE)

    def _selection(self, name: str, i: Instruction) -> list[Operand]:
        """The predicate under which a select passes a register on."""
        if i.opcode != "selp" or name in registers(i.operands[3:]):
            return []
        first, second = (name in registers([source]) for source in i.operands[1:3])
        chosen = i.operands[3]
        return [] if first and second else [chosen if first else _negated(chosen)]

    def _under(self, place: Place, predicates: list[Operand], formula: Formula) -> Formula:
        literals = [literal for predicate in predicates if (literal := self._literal(predicate, place))]
        if formula == NOBODY:
            return NOBODY
        return Every((*literals, *([formula] if formula != EVERYONE else []))) if literals else formula

    def _literal(self, predicate: Operand, place: Place) -> Holds | None:
        """A predicate of an instruction, if its value there can be told at the load."""
        negated = isinstance(predicate, Not)
        register = predicate.register if isinstance(predicate, Not) else predicate
        assert isinstance(register, Register)
        whole, defined = self.whole, self.whole.definition(register.name)
        if defined is None or self.load.instruction is defined.instruction:
            return None
        told = whole.precedes(defined, self.load) and whole.precedes(self.load, place)
        return Holds(register.name, negated) if told or whole.is_constant(register.name) else None


def _some(formulas: tuple[Formula, ...]) -> Formula:
    if EVERYONE in formulas:
        return EVERYONE
    inner = tuple(dict.fromkeys(formula for formula in formulas if formula != NOBODY))
    return inner[0] if len(inner) == 1 else Some(inner)


def _negated(predicate: Operand) -> Operand:
    assert isinstance(predicate, Not | Register)
    return predicate.register if isinstance(predicate, Not) else Not(predicate)
