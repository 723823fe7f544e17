"""Which lanes use what a load gives them.

Compilers load more than they use: Triton gives a tile that is smaller than a block to several threads, of which one
stores; a select drops one of two values. What a lane drops can neither race nor be unwritten.

The demand for a register is the sum of terms, each a product of predicates: the lanes that one of the terms names. A
pass from the last block to the first finds all demands, but for those of registers that are read before they
are written, so go round a loop: another pass begins with what the last one found of them. Demands may say too much,
never too little: in another round of a loop only what does not change holds.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from kernelpath.simt.lower.flow import Flow, Ops, dominators, in_order, predecessors
from kernelpath.simt.lower.formulas import EVERYONE, MOST, NO_ARMS, NOBODY, Arms, Formula, Holds, both, either
from kernelpath.simt.op import registers
from kernelpath.simt.ptx import Immediate, Instruction, Not, Operand, Register

__all__ = ["EVERYONE", "Demand", "Holds", "Place"]


_PASSES = 4
_CONSTANT = ("tid", "ntid", "ctaid", "nctaid", "laneid", "warpid")  # special registers that never change
_HIDDEN = frozenset(("cc", "addc", "subc", "madc"))  # what reads or writes the carry


class Place(NamedTuple):
    """Where an instruction stands: its block, and its number there."""

    block: int
    position: int


class Demand:
    """The demand for the loads of one kernel.

    ``loads`` has the formula of each; ``early`` the instructions that are to run first, each behind what it reads, for
    loads name what these compute.
    """

    def __init__(self, flow: Flow, ops: Ops) -> None:
        self.flow, self.ops = flow, ops
        self.definitions: dict[str, list[Place]] = {}
        self.loads: dict[Place, Formula] = {}
        self.early: list[Instruction] = []
        self.arms: dict[int, Arms] = {}
        self.order = in_order(flow.blocks)
        self.rank = {block: number for number, block in enumerate(self.order)}
        places = list(self._places())
        if not any(i.opcode == "ld" and i.modifiers[0] != "param" for _, i in places):
            return
        self.round: set[str] = set()  # registers that are read before they are written, in the blocks' order
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
        for number in self.order:
            for position, instruction in enumerate(self.flow.blocks[number].instructions):
                yield Place(number, position), instruction

    def _follow(self) -> None:
        """Pass over the kernel until nothing more is found of the registers that go round a loop."""
        demand = dict.fromkeys(self.round, NOBODY)
        for _ in range(_PASSES):
            before, found = demand, self._pass(demand)
            demand = {name: self._lasting(found[name]) for name in before}
            if demand == before:
                return
        self._pass(dict.fromkeys(self.round, EVERYONE))

    def _pass(self, around: Mapping[str, Formula]) -> dict[str, Formula]:
        """Go from the last instruction to the first: what is made of its results is known when one is reached.

        around: the demand in later rounds of a loop.
        """
        demand = dict(around)
        for number in reversed(self.order):
            way = self._literals(self._way_to(number))
            for position, i in reversed(list(enumerate(self.flow.blocks[number].instructions))):
                op = self.ops[i.opcode]
                results = NOBODY
                arms = self._arms(number) if i.opcode == "bra" else NO_ARMS
                for name in arms.written if i.opcode == "bra" else op.written(i):
                    results = either(results, demand.get(name, NOBODY))
                results = either(results, arms.stores)
                if i.opcode == "ld":
                    self.loads[Place(number, position)] = self._at(Place(number, position), results)
                for name in op.read(i):
                    if demand.get(name) != EVERYONE and not self._is_kept(name, i):
                        use = self._use(name, i, number, way, results)
                        demand[name] = either(demand.get(name, NOBODY), use)
        return demand

    def _lasting(self, formula: Formula) -> Formula:
        """A formula with the predicates alone that are the same in all rounds of a loop."""
        found = NOBODY
        for term in formula:
            found = either(found, frozenset([frozenset(one for one in term if self._lasts(one.predicate))]))
        return found

    def _lasts(self, predicate: str) -> bool:
        place = self.definition(predicate)
        return predicate in self.constants or (place is not None and place.block not in self.loops)

    def _use(self, name: str, i: Instruction, block: int, way: list[Holds], results: Formula) -> Formula:
        """The lanes for which an instruction uses a register, by the demand for its results."""
        guards = [i.guard] if i.guard is not None else []
        if i.opcode == "bra" and self._arms(block) != NO_ARMS:
            return both(way, results)
        if name not in registers(guards):
            if self._is_pure(i):
                return both(self._literals([*guards, *_selection(name, i)], block), results)
            if i.opcode == "shfl" and name not in registers(i.operands[2:]):
                spread = _spread(i)
                return frozenset(
                    frozenset(one._replace(spread=one.spread | spread) for one in term) for term in results
                )
        return both([*self._literals(guards, block), *way], EVERYONE)

    def _arms(self, number: int) -> Arms:
        """What is done between the branch of a block and where its two ways meet again; NO_ARMS where it is more."""
        if number not in self.arms:
            self.arms[number] = self._find_arms(number)
        return self.arms[number]

    def _find_arms(self, number: int) -> Arms:
        written, stores = set[str](), NOBODY
        end, inner = self._last_rank(number), self.rank[number] + 1
        while inner < end:
            block = self.order[inner]
            for i in self.flow.blocks[block].instructions:
                if i.opcode == "st" and (guards := self._literals([i.guard] if i.guard is not None else [])):
                    stores = either(stores, frozenset([frozenset(guards)]))
                elif not self._is_pure(i) and i.opcode != "bra" and not _is_parameter(i):
                    return NO_ARMS
                written.update(self.ops[i.opcode].written(i))
            if min((self.rank[one] for one in self.flow.blocks[block].successors), default=0) <= inner:
                return NO_ARMS
            end, inner = max(end, self._last_rank(block)), inner + 1
        return Arms(frozenset(written), stores)

    def _last_rank(self, block: int) -> int:
        return max((self.rank[one] for one in self.flow.blocks[block].successors), default=0)

    def _is_pure(self, i: Instruction) -> bool:
        return self.ops[i.opcode].pure and _HIDDEN.isdisjoint((i.opcode, *i.modifiers))

    def _is_kept(self, name: str, i: Instruction) -> bool:
        """Whether an instruction has to do with a register for no other reason than that its guard keeps it."""
        op = self.ops[i.opcode]
        if i.guard is None or name not in op.written(i):
            return False
        return name not in registers([*i.operands[op.results :], i.guard])

    def _literals(self, predicates: Iterable[Operand], block: int = -1) -> list[Holds]:
        """What holds where predicates do, and what they were made of: each has one value only as long as a value is
        followed that ``block`` uses."""
        found, todo = list[Holds](), list(predicates)
        while todo and len(found) < MOST:
            register, negated = _plain(todo.pop(0))
            place = self.definition(register)
            if place is not None and (self._lasts(register) or place.block == block):
                found.append(Holds(register, negated))
                todo += [one for one in self._parts(place, negated) if self._precedes(_plain(one)[0], place)]
        return found

    def _parts(self, place: Place, negated: bool) -> Sequence[Operand]:
        """What holds where a conjunction does; what does not, negated, where a disjunction does not."""
        i = self.flow.blocks[place.block].instructions[place.position]
        made = i.guard is None and i.opcode == ("or" if negated else "and") and i.modifiers == ("pred",)
        return [_negated(one) if negated else one for one in i.operands[1:] if made and isinstance(one, Not | Register)]

    def _precedes(self, predicate: str, made: Place) -> bool:
        """Whether a predicate is not of an earlier round of a loop than what was made of it there."""
        place = self.definition(predicate)
        return place is None or place.block != made.block or place.position < made.position

    def _at(self, load: Place, formula: Formula) -> Formula:
        """A formula without the predicates that are not known yet when a load runs."""
        if formula in (EVERYONE, NOBODY):
            return formula
        known = NOBODY
        for term in formula:
            known = either(known, frozenset([frozenset(one for one in term if self._is_known(one.predicate, load))]))
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
        for _ in range(MOST):
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
        for rank, number in enumerate(self.order):
            for successor in self.flow.blocks[number].successors:
                if self.rank[successor] <= rank:
                    last[self.rank[successor]] = rank
        found, end = set(), -1
        for rank, number in enumerate(self.order):
            end = max(end, last.get(rank, -1))
            if rank <= end:
                found.add(number)
        return found

    def _find_constants(self, places: list[tuple[Place, Instruction]]) -> set[str]:
        """The registers that hold the same in a thread whenever they are computed."""
        found: set[str] = set()
        for _, i in places:
            if i.guard is None and (_is_parameter(i) or self._is_pure(i)):
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


def _is_parameter(i: Instruction) -> bool:
    """Whether an instruction loads a parameter of the kernel."""
    return i.opcode == "ld" and i.modifiers[0] == "param" and not registers(i.operands[1:])


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


def _plain(predicate: Operand) -> tuple[str, bool]:
    """The register of a predicate, and whether it is negated."""
    register = predicate.register if isinstance(predicate, Not) else predicate
    assert isinstance(register, Register)
    return register.name, isinstance(predicate, Not)


def _negated(predicate: Operand) -> Operand:
    assert isinstance(predicate, Not | Register)
    return predicate.register if isinstance(predicate, Not) else Not(predicate)
