"""Which lanes use what a load gives them.

Compilers load more than they use: Triton gives a tile that is smaller than a block to several threads, of which one
stores; a select drops one of two values. What a lane drops can neither race nor be unwritten.

The demand for a register is the sum of terms, each a product of predicates: the lanes that one of the terms names. One
pass over the text from its end to its beginning finds all demands. They may say too much, never too little: a register
that is read before it is written, so goes round a loop, is used by everyone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from kernelpath.simt.lower.flow import Flow, Ops, dominators, predecessors
from kernelpath.simt.op import registers
from kernelpath.simt.ptx import Immediate, Instruction, Not, Operand, Register

__all__ = ["EVERYONE", "Demand", "Holds", "Place"]


class Holds(NamedTuple):
    """The lanes in which a predicate holds, or does not; and their partners, by shuffles.

    The number of a partner differs from theirs in bits of ``spread``.
    """

    predicate: str
    negated: bool
    spread: int = 0


Term = frozenset[Holds]
Formula = frozenset[Term]
NOBODY: Formula = frozenset()
EVERYONE: Formula = frozenset([frozenset()])

_MOST = 16  # terms of a formula, and predicates of a term
_CONSTANT = ("tid", "ntid", "ctaid", "nctaid", "laneid", "warpid")  # special registers that never change
_HIDDEN = frozenset(("cc", "addc", "subc", "madc"))  # what reads or writes the carry


class Place(NamedTuple):
    """Where an instruction stands: its block, and its number there."""

    block: int
    position: int


class Demand:
    """The demand for the loads of one kernel.

    ``loads`` has the formula of each; ``early`` the instructions that are to run first, in the text's order, for loads
    name what these compute.
    """

    def __init__(self, flow: Flow, ops: Ops) -> None:
        self.flow, self.ops = flow, ops
        self.definitions: dict[str, list[Place]] = {}
        self.loads: dict[Place, Formula] = {}
        self.early: list[Instruction] = []
        places = list(self._places())
        if not any(i.opcode == "ld" and i.modifiers[0] != "param" for _, i in places):
            return
        self.round: set[str] = set()  # registers that are read before they are written, in the order of the text
        read: set[str] = set()
        for place, i in places:
            read.update(name for name in ops[i.opcode].read(i) if not self._is_kept(name, i))
            for name in ops[i.opcode].written(i):
                self.definitions.setdefault(name, []).append(place)
                if name in read:
                    self.round.add(name)
        self.loops = self._find_loops()
        self.predecessors = predecessors(flow.blocks)
        self.constants = self._find_constants(places)
        self.dominators = dominators(flow.blocks)
        self._follow()
        self.early = self._find_early(places)

    def definition(self, name: str) -> Place | None:
        """Where a register is written, if in one place alone."""
        places = self.definitions.get(name, [])
        return places[0] if len(places) == 1 else None

    def _places(self) -> Iterator[tuple[Place, Instruction]]:
        for number, block in enumerate(self.flow.blocks):
            for position, instruction in enumerate(block.instructions):
                yield Place(number, position), instruction

    def _follow(self) -> None:
        """Go from the last instruction to the first: what is made of its results is known when one is reached."""
        demand: dict[str, Formula] = dict.fromkeys(self.round, EVERYONE)
        for number in reversed(range(len(self.flow.blocks))):
            way = [literal for guard in self._way_to(number) if (literal := self._literal(guard))]
            for position, i in reversed(list(enumerate(self.flow.blocks[number].instructions))):
                op = self.ops[i.opcode]
                results = NOBODY
                for name in op.written(i):
                    results = _either(results, demand.get(name, NOBODY))
                if i.opcode == "ld":
                    self.loads[Place(number, position)] = self._at(Place(number, position), results)
                for name in op.read(i):
                    if demand.get(name) != EVERYONE and not self._is_kept(name, i):
                        use = self._use(name, i, number, way, results)
                        demand[name] = _either(demand.get(name, NOBODY), use)

    def _use(self, name: str, i: Instruction, block: int, way: list[Holds], results: Formula) -> Formula:
        """The lanes for which an instruction uses a register, by the demand for its results."""
        guards = [i.guard] if i.guard is not None else []
        if name not in registers(guards):
            if self._is_pure(i):
                return _both(self._literals([*guards, *_selection(name, i)], block), results)
            if i.opcode == "shfl" and name not in registers(i.operands[2:]):
                spread = _spread(i)
                return frozenset(
                    frozenset(one._replace(spread=one.spread | spread) for one in term) for term in results
                )
        return _both([*self._literals(guards, block), *way], EVERYONE)

    def _is_pure(self, i: Instruction) -> bool:
        return self.ops[i.opcode].pure and _HIDDEN.isdisjoint((i.opcode, *i.modifiers))

    def _is_kept(self, name: str, i: Instruction) -> bool:
        """Whether an instruction has to do with a register for no other reason than that its guard keeps it."""
        op = self.ops[i.opcode]
        if i.guard is None or name not in op.written(i):
            return False
        return name not in registers([*i.operands[op.results :], i.guard])

    def _literals(self, predicates: Sequence[Operand], block: int) -> list[Holds]:
        return [literal for predicate in predicates if (literal := self._literal(predicate, block))]

    def _literal(self, predicate: Operand, block: int = -1) -> Holds | None:
        """A predicate, if it has one value only as long as a value is followed that ``block`` uses."""
        register = predicate.register if isinstance(predicate, Not) else predicate
        assert isinstance(register, Register)
        place, constant = self.definition(register.name), register.name in self.constants
        if place is None or (place.block in self.loops and place.block != block and not constant):
            return None
        return Holds(register.name, isinstance(predicate, Not))

    def _at(self, load: Place, formula: Formula) -> Formula:
        """A formula without the predicates that are not known yet when a load runs."""
        if formula in (EVERYONE, NOBODY):
            return formula
        known = NOBODY
        for term in formula:
            known = _either(known, frozenset([frozenset(one for one in term if self._is_known(one.predicate, load))]))
        return known

    def _is_known(self, predicate: str, load: Place) -> bool:
        if predicate in self.constants:
            return True
        (place,) = self.definitions[predicate]
        if place.block == load.block:
            return place.position < load.position
        block = load.block
        while block not in (place.block, 0):
            block = self.dominators[block]
        return block == place.block and block not in self.loops

    def _way_to(self, block: int) -> Iterator[Operand]:
        """The predicates under which a block is reached."""
        for _ in range(_MOST):
            if len(self.predecessors[block]) != 1:
                return
            before = self.predecessors[block][0]
            last = self.flow.blocks[before].instructions[-1]
            if last.opcode == "bra" and last.guard is not None and len(set(self.flow.blocks[before].successors)) == 2:
                taken = self.flow.blocks[before].successors[0] == block
                yield last.guard if taken else _negated(last.guard)
            block = before

    def _find_loops(self) -> set[int]:
        """The blocks that a jump back may lead to twice: all that lie between the ends of such a jump."""
        last: dict[int, int] = {}
        for number, block in enumerate(self.flow.blocks):
            for successor in block.successors:
                if successor <= number:
                    last[successor] = number
        found, end = set(), -1
        for number in range(len(self.flow.blocks)):
            end = max(end, last.get(number, -1))
            if number <= end:
                found.add(number)
        return found

    def _find_constants(self, places: list[tuple[Place, Instruction]]) -> set[str]:
        """The registers that hold the same in a thread whenever they are computed."""
        found: set[str] = set()
        for _, i in places:
            parameter = i.opcode == "ld" and i.modifiers[0] == "param" and not registers(i.operands[1:])
            if i.guard is None and (parameter or self._is_pure(i)):
                results = self.ops[i.opcode].written(i)
                alone = all(len(self.definitions[name]) == 1 for name in results)
                if alone and all(name in found or self._is_given(name) for name in self.ops[i.opcode].read(i)):
                    found.update(results)
        return found

    def _is_given(self, name: str) -> bool:
        stem = name.lstrip("%").partition(".")[0]
        return name not in self.flow.registers and (stem in _CONSTANT or stem.startswith("lanemask_"))

    def _find_early(self, places: list[tuple[Place, Instruction]]) -> list[Instruction]:
        """What computes the constant predicates that loads name."""
        named = {one.predicate for formula in self.loads.values() for term in formula for one in term} & self.constants
        found = []
        for _, i in reversed(places) if named else ():
            if named.intersection(self.ops[i.opcode].written(i)):
                named.update(self.ops[i.opcode].read(i))
                found.append(i)
        return found[::-1]


def _selection(name: str, i: Instruction) -> list[Operand]:
    """The predicate under which a select passes a register on."""
    if i.opcode != "selp" or name in registers(i.operands[3:]):
        return []
    first, second = (name in registers([source]) for source in i.operands[1:3])
    chosen = i.operands[3]
    return [] if first and second else [chosen if first else _negated(chosen)]


def _spread(i: Instruction) -> int:
    """The bits in which a lane's number may differ from that of the lane whose value it takes in a shuffle."""
    lanes = i.operands[2]
    return lanes.value & 31 if "bfly" in i.modifiers and isinstance(lanes, Immediate) else 31


def _either(one: Formula, other: Formula) -> Formula:
    """The lanes of one formula or of the other; all lanes, where the terms grow many."""
    if one == other or not other:
        return one
    if not one or other == EVERYONE:
        return other
    terms = one | other
    least = frozenset(term for term in terms if not any(fewer < term for fewer in terms))
    return least if len(least) <= _MOST else EVERYONE


def _both(literals: list[Holds], formula: Formula) -> Formula:
    """The lanes of a formula in which predicates hold too, as far as a term has room for them."""
    more = frozenset(literals)
    if not more:
        return formula
    grown = NOBODY
    for term in formula:
        whole = term | more
        grown = _either(grown, frozenset([whole if len(whole) <= _MOST else term]))
    return grown


def _negated(predicate: Operand) -> Operand:
    assert isinstance(predicate, Not | Register)
    return predicate.register if isinstance(predicate, Not) else Not(predicate)
