"""Which lanes use what a load gives them.

Compilers load more than they use: Triton gives a tile that is smaller than a block to several threads, of which one
stores; a select drops one of two values. What a lane drops can neither race nor be unwritten.

The demand for a register is the sum of terms, each a product of predicates: the lanes that one of the terms names. A
pass from the last block to the first finds all demands, but for those of registers that are read before they
are written, so go round a loop: another pass begins with what the last one found of them. Demands may say too much,
never too little: in another round of a loop only what does not change holds.

A predicate that a loop computes again in each round says which lanes use a value of the same round: it must have the
value where the load runs that it has where the value is used. So it goes from an instruction to the one that writes
what that reads as long as it is known there, as ``slices`` explains, or can be computed there from what is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from warpcheck.lower.flow import Flow, Ops, in_order
from warpcheck.lower.formulas import EVERYONE, NO_ARMS, NOBODY, Arms, Formula, Holds, either
from warpcheck.lower.predicates import Predicates, is_parameter, negation
from warpcheck.lower.slices import Place, Slice, Slices
from warpcheck.op import registers
from warpcheck.ptx import Immediate, Instruction, Operand

__all__ = ["EVERYONE", "Demand", "Holds", "Place"]


_PASSES = 4


Demanded = dict[tuple[str, Place | None], Formula]
"""The demand for registers: for what one instruction writes there, where that is known, else for whatever is there."""


class Demand:
    """The demand for the loads of one kernel.

    ``loads`` has the formula of each; ``early`` the instructions that are to run first, each behind what it reads, for
    loads name what these compute; ``ahead`` what is to run in front of a load, for each predicate that it computes.
    """

    def __init__(self, flow: Flow, ops: Ops) -> None:
        self.flow = flow
        self.ops = ops
        self.loads: dict[Place, Formula] = {}
        self.early: list[Instruction] = []
        self.ahead: dict[Place, dict[str, Slice]] = {}
        self.arms: dict[int, Arms] = {}
        self.order = in_order(flow.blocks)
        self.rank = {block: number for number, block in enumerate(self.order)}
        places = list(self._places())
        if not any(i.opcode == "ld" and i.modifiers[0] != "param" for _, i in places):
            return
        self.slices = Slices(flow, ops, places)
        self.round: set[str] = set()  # registers that are read before they are written, in the blocks' order
        read: set[str] = set()
        for _, i in places:
            read.update(name for name in ops[i.opcode].read(i) if not self._is_kept(name, i))
            self.round.update(read.intersection(ops[i.opcode].written(i)))
        self.predicates = Predicates(flow, ops, places, self.slices)
        self.writers: dict[tuple[str, Place], Place | None] = {}
        self._follow()
        for place, formula in self.loads.items():
            self._move_ahead(place, formula)
        self.early = self._find_early(places)

    def _places(self) -> Iterator[tuple[Place, Instruction]]:
        for number in self.order:
            for position, instruction in enumerate(self.flow.blocks[number].instructions):
                yield Place(number, position), instruction

    def _follow(self) -> None:
        """Pass over the kernel until nothing more is found of the registers that go round a loop."""
        demand = dict.fromkeys(self.round, NOBODY)
        for _ in range(_PASSES):
            before = demand
            found = self._pass(demand)
            demand = {name: self.predicates.lasting(found[name]) for name in before}
            if demand == before:
                return
        self._pass(dict.fromkeys(self.round, EVERYONE))

    def _pass(self, around: Mapping[str, Formula]) -> dict[str, Formula]:
        """Go from the last instruction to the first: what is made of its results is known when one is reached.

        around: the demand in later rounds of a loop.
        """
        demand: Demanded = {}
        for name, formula in around.items():
            self._demand_around(demand, name, formula)
        for number in reversed(self.order):
            way = self.predicates.way_to(number)
            for position, i in reversed(list(enumerate(self.flow.blocks[number].instructions))):
                op = self.ops[i.opcode]
                results = NOBODY
                arms = self._arms(number) if i.opcode == "bra" else NO_ARMS
                place = Place(number, position)
                for name in arms.written:
                    results = either(results, self._of_all(demand, name))
                for name in op.written(i):
                    results = either(results, demand.get((name, None), NOBODY))
                    results = either(results, demand.get((name, place), NOBODY))
                results = either(results, arms.stores)
                if i.opcode == "ld":
                    self.loads[place] = self._at(place, results, way)
                for name in op.read(i):
                    writer = self._writer(name, place)
                    if demand.get((name, writer)) != EVERYONE and not self._is_kept(name, i):
                        use = self._carry(name, place, self._use(name, i, place, way, results))
                        demand[name, writer] = self.predicates.either(demand.get((name, writer), NOBODY), use)
        return {name: self._of_all(demand, name) for name in around}

    def _of_all(self, demand: Demanded, name: str) -> Formula:
        """Return the demand for a register, whichever instruction has written it."""
        united = demand.get((name, None), NOBODY)
        for writer in self.slices.definitions.get(name, ()):
            united = self.predicates.either(united, demand.get((name, writer), NOBODY))
        return united

    def _writer(self, name: str, reader: Place) -> Place | None:
        """Return which of several instructions has written what another one reads; None where that is not known."""
        if (name, reader) not in self.writers:
            places = self.slices.definitions.get(name, ())
            is_whole = all(self.slices.instruction(place).guard is None for place in places)
            self.writers[name, reader] = self.slices.writer(name, reader) if len(places) > 1 and is_whole else None
        return self.writers[name, reader]

    def _demand_around(self, demand: Demanded, name: str, formula: Formula) -> None:
        """Add the lanes that use a register in a later round of a loop: those that go round it once more."""
        for latch, header, literals in self.predicates.latches if formula else ():
            if name in self.flow.blocks[header].live_in:
                writer = self._writer(name, latch)
                use = self._carry(name, latch, self.predicates.both(literals, formula))
                demand[name, writer] = self.predicates.either(demand.get((name, writer), NOBODY), use)

    def _carry(self, name: str, reader: Place, formula: Formula) -> Formula:
        """Return what of a formula, which holds where a register is read, holds where that was written as well."""
        if self.predicates.all_last(formula):
            return formula
        writer = self.slices.writer(name, reader)
        carried = NOBODY
        for term in formula:
            kept = (
                holds
                for holds in term
                if self.predicates.lasts(holds.predicate)
                or (writer is not None and self.predicates.is_known(holds.predicate, writer))
            )
            carried = either(carried, frozenset([frozenset(kept)]))
        return carried

    def _use(self, name: str, i: Instruction, place: Place, way: list[Holds], results: Formula) -> Formula:
        """The lanes for which an instruction uses a register, by the demand for its results."""
        guards = [i.guard] if i.guard is not None else []
        if i.opcode == "bra" and self._arms(place.block) != NO_ARMS:
            return self.predicates.both(
                way, self.predicates.lasting(results)
            )  # which are of instructions behind the branch
        if name not in registers(guards):
            if self.slices.is_pure(i):
                return self.predicates.both(self.predicates.literals([*guards, *_selection(name, i)], place), results)
            if i.opcode == "shfl" and name not in registers(i.operands[2:]):
                spread = _spread(i)
                # A lane that takes the value may be in another round of a loop when this one loads.
                return frozenset(
                    frozenset(one._replace(spread=one.spread | spread) for one in term)
                    for term in self.predicates.lasting(results)
                )
        return self.predicates.both([*self.predicates.literals(guards, place), *way], EVERYONE)

    def _arms(self, number: int) -> Arms:
        """What is done between the branch of a block and where its two ways meet again; NO_ARMS where it is more."""
        if number not in self.arms:
            self.arms[number] = self._find_arms(number)
        return self.arms[number]

    def _find_arms(self, number: int) -> Arms:
        written = set[str]()
        stores = NOBODY
        end = self._last_rank(number)
        inner = self.rank[number] + 1
        while inner < end:
            block = self.order[inner]
            for i in self.flow.blocks[block].instructions:
                if i.opcode == "st" and (guards := self.predicates.literals([i.guard] if i.guard is not None else [])):
                    stores = either(stores, frozenset([frozenset(guards)]))
                elif not self.slices.is_pure(i) and i.opcode != "bra" and not is_parameter(i):
                    return NO_ARMS
                written.update(self.ops[i.opcode].written(i))
            if min((self.rank[one] for one in self.flow.blocks[block].successors), default=0) <= inner:
                return NO_ARMS
            end = max(end, self._last_rank(block))
            inner = inner + 1
        return Arms(frozenset(written), stores)

    def _last_rank(self, block: int) -> int:
        return max((self.rank[one] for one in self.flow.blocks[block].successors), default=0)

    def _is_kept(self, name: str, i: Instruction) -> bool:
        """Whether an instruction has to do with a register for no other reason than that its guard keeps it."""
        op = self.ops[i.opcode]
        if i.guard is None or name not in op.written(i):
            return False
        return name not in registers([*i.operands[op.results :], i.guard])

    def _at(self, load: Place, formula: Formula, way: list[Holds]) -> Formula:
        """A formula without the predicates that are not known yet when a load runs, and without those of its way."""
        if formula in (EVERYONE, NOBODY):
            return formula
        guard = self.slices.instruction(load).guard
        certain = {*way, *self.predicates.literals([guard] if guard is not None else [], load)}
        known = NOBODY
        for term in formula:
            uncertain = (holds for holds in term - certain if self.predicates.is_known(holds.predicate, load))
            known = either(known, frozenset([frozenset(uncertain)]))
        return known

    def _move_ahead(self, load: Place, formula: Formula) -> None:
        """Have a load compute the predicates that it names and that are computed behind it."""
        for predicate in sorted({holds.predicate for term in formula for holds in term} - self.predicates.constants):
            if not self.slices.is_before(predicate, load):
                part = self.slices.slice_of(predicate, load)
                assert part is not None
                self.ahead.setdefault(load, {})[predicate] = part

    def _find_early(self, places: list[tuple[Place, Instruction]]) -> list[Instruction]:
        """What computes the constant predicates that loads name."""
        named = {
            one.predicate for formula in self.loads.values() for term in formula for one in term
        } & self.predicates.constants
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
    return [] if first and second else [chosen if first else negation(chosen)]


def _spread(i: Instruction) -> int:
    """The bits in which a lane's number may differ from that of the lane whose value it takes in a shuffle."""
    lanes = i.operands[2]
    return lanes.value & 31 if "bfly" in i.modifiers and isinstance(lanes, Immediate) else 31
