"""Find the liveness of loaded values: which lanes use what a load gives them.

Compilers load more than they use: Triton distributes a tile that is smaller than a block to several threads, of which
one stores; a select drops one of two values. A value that a lane drops can neither race nor be uninitialized.

The demand for a register is a disjunction of terms, each a conjunction of predicates: the lanes for which one of the
terms holds. It is a backward data-flow analysis. One pass from the last block to the first finds all demands, except
for registers that are read before they are written and so are carried around a loop: another pass begins with what the
last one found for them. Demands may include too many lanes, never too few: in another iteration of a loop only
predicates that do not change hold.

A predicate that a loop computes again in each iteration says which lanes use a value of the same iteration: it must
have the value where the load runs that it has where the value is used. So a demand passes from an instruction to the
one that writes its operand as long as the predicate is known there, as ``def_use`` explains, or can be computed there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from warpcheck.lower.control_flow import Flow, Ops, reverse_postorder
from warpcheck.lower.def_use import ProgramPoint, Slice, Slices
from warpcheck.lower.formulas import ALL_LANES, NO_ARMS, NO_LANES, Arms, Formula, Literal, disjoin
from warpcheck.lower.predicates import Predicates, is_parameter, negate
from warpcheck.op import registers
from warpcheck.ptx import Immediate, Instruction, Operand

__all__ = ["ALL_LANES", "Demand", "Literal", "ProgramPoint"]


_PASSES = 4


# The demand for registers: for what one instruction writes there, or, with None, for whatever is there.
Demanded = dict[tuple[str, ProgramPoint | None], Formula]


class Demand:
    """The demand for the loads of one kernel.

    ``loads`` has the formula of each load. ``early`` are the instructions that run first in the kernel, in order,
    because loads name the predicates that they compute. ``ahead`` is what runs in front of a load, for each predicate.
    """

    def __init__(self, flow: Flow, ops: Ops) -> None:
        self.flow = flow
        self.ops = ops
        self.loads: dict[ProgramPoint, Formula] = {}
        self.early: list[Instruction] = []
        self.ahead: dict[ProgramPoint, dict[str, Slice]] = {}
        self.arms: dict[int, Arms] = {}
        self.order = reverse_postorder(flow.blocks)
        self.rank = {block: number for number, block in enumerate(self.order)}
        points = list(self._places())
        # Parameters are written before the launch and never during it: their loads need no check.
        if not any(i.opcode == "ld" and i.modifiers[0] != "param" for _, i in points):
            return
        self.slices = Slices(flow, ops, points)
        # The passes need what each instruction writes, and what it reads not just to preserve it.
        self.written = {point: ops[i.opcode].written(i) for point, i in points}
        self.used = {
            point: [name for name in ops[i.opcode].read(i) if not self._is_only_preserved(name, i)]
            for point, i in points
        }
        self.loop_carried: set[str] = set()  # registers that are read before they are written, in the blocks' order
        read_before: set[str] = set()
        for point, _ in points:
            read_before.update(self.used[point])
            self.loop_carried.update(read_before.intersection(self.written[point]))
        self.predicates = Predicates(flow, ops, points, self.slices)
        self.writers: dict[tuple[str, ProgramPoint], ProgramPoint | None] = {}
        self._iterate()
        for point, formula in self.loads.items():
            self._move_ahead(point, formula)
        self.early = self._find_early(points)

    def _places(self) -> Iterator[tuple[ProgramPoint, Instruction]]:
        for number in self.order:
            for position, instruction in enumerate(self.flow.blocks[number].instructions):
                yield ProgramPoint(number, position), instruction

    def _iterate(self) -> None:
        """Repeat the pass until the demand for registers that loops carry no longer changes."""
        demand = dict.fromkeys(self.loop_carried, NO_LANES)
        for _ in range(_PASSES):
            previous = demand
            at_entry = self._pass(demand)
            demand = {name: self.predicates.keep_invariant(at_entry[name]) for name in previous}
            if demand == previous:
                return
        # No fixed point within _PASSES: assume that later iterations use every lane.
        self._pass(dict.fromkeys(self.loop_carried, ALL_LANES))

    def _pass(self, loop_demand: Mapping[str, Formula]) -> dict[str, Formula]:
        """Walk from the last instruction to the first: the demand for an instruction's results is known when it is
        reached.

        Args:
            loop_demand: The demand in later iterations of a loop.
        """
        demand: Demanded = {}
        for name, formula in loop_demand.items():
            self._demand_around(demand, name, formula)
        for number in reversed(self.order):
            condition = self.predicates.path_condition(number)
            for position, i in reversed(list(enumerate(self.flow.blocks[number].instructions))):
                results = NO_LANES
                arms = self._arms(number) if i.opcode == "bra" else NO_ARMS
                point = ProgramPoint(number, position)
                # A branch is used by the lanes that store in its arms, or that use what its arms compute.
                for name in arms.written:
                    results = disjoin(results, self._total_demand(demand, name))
                for name in self.written[point]:
                    results = disjoin(results, demand.get((name, None), NO_LANES))
                    results = disjoin(results, demand.get((name, point), NO_LANES))
                results = disjoin(results, arms.stores)
                if i.opcode == "ld":
                    self.loads[point] = self._restrict_to_known(point, results, condition)
                for name in self.used[point]:
                    writer = self._writer(name, point)
                    if demand.get((name, writer)) != ALL_LANES:
                        use = self._carry(name, point, self._use(name, i, point, condition, results))
                        demand[name, writer] = self.predicates.disjoin(demand.get((name, writer), NO_LANES), use)
        return {name: self._total_demand(demand, name) for name in loop_demand}

    def _total_demand(self, demand: Demanded, name: str) -> Formula:
        """Return the demand for a register, whichever instruction has written it."""
        total = demand.get((name, None), NO_LANES)
        for writer in self.slices.definitions.get(name, ()):
            total = self.predicates.disjoin(total, demand.get((name, writer), NO_LANES))
        return total

    def _writer(self, name: str, reader: ProgramPoint) -> ProgramPoint | None:
        """Return which of several instructions has written what another one reads; None if that is unknown."""
        if (name, reader) not in self.writers:
            points = self.slices.definitions.get(name, ())
            is_unguarded = all(self.slices.instruction(point).guard is None for point in points)
            self.writers[name, reader] = self.slices.writer(name, reader) if len(points) > 1 and is_unguarded else None
        return self.writers[name, reader]

    def _demand_around(self, demand: Demanded, name: str, formula: Formula) -> None:
        """Add the lanes that use a register in a later iteration of a loop: those that take the back edge."""
        for latch, header, literals in self.predicates.latches if formula else ():
            if name in self.flow.blocks[header].live_in:
                writer = self._writer(name, latch)
                use = self._carry(name, latch, self.predicates.conjoin(literals, formula))
                demand[name, writer] = self.predicates.disjoin(demand.get((name, writer), NO_LANES), use)

    def _carry(self, name: str, reader: ProgramPoint, formula: Formula) -> Formula:
        """Return the part of a formula that holds where a register is read and also where it was written."""
        if self.predicates.all_invariant(formula):
            return formula
        writer = self.slices.writer(name, reader)
        carried = NO_LANES
        for term in formula:
            valid = (
                literal
                for literal in term
                if self.predicates.is_invariant(literal.predicate)
                or (writer is not None and self.predicates.is_known(literal.predicate, writer))
            )
            carried = disjoin(carried, frozenset([frozenset(valid)]))
        return carried

    def _use(
        self, name: str, i: Instruction, point: ProgramPoint, condition: list[Literal], results: Formula
    ) -> Formula:
        """Return the lanes for which an instruction uses a register, by the demand for its results."""
        guards = [i.guard] if i.guard is not None else []
        # The results are those of instructions after the branch, so only invariant predicates mean the same here.
        if i.opcode == "bra" and self._arms(point.block) != NO_ARMS:
            return self.predicates.conjoin(condition, self.predicates.keep_invariant(results))
        if name not in registers(guards):
            # A pure instruction uses an operand only in lanes that use its results and in which its guard holds.
            if self.slices.is_pure(i):
                return self.predicates.conjoin(
                    self.predicates.literals([*guards, *_selection(name, i)], point), results
                )
            # The shuffled value is used by the lanes that receive it; the lane, clamp and mask operands by every lane
            # that executes the shuffle.
            if i.opcode == "shfl" and name not in registers(i.operands[2:]):
                spread = _spread(i)
                # A lane that takes the value may be in another iteration of a loop when this one loads.
                return frozenset(
                    frozenset(literal._replace(spread=literal.spread | spread) for literal in term)
                    for term in self.predicates.keep_invariant(results)
                )
        # Any other instruction uses its operands wherever it is executed.
        return self.predicates.conjoin([*self.predicates.literals(guards, point), *condition], ALL_LANES)

    def _arms(self, number: int) -> Arms:
        """Return what the two arms of a branch do until they join; NO_ARMS if they do more than compute and store."""
        if number not in self.arms:
            self.arms[number] = self._find_arms(number)
        return self.arms[number]

    def _find_arms(self, number: int) -> Arms:
        written = set[str]()
        stores = NO_LANES
        # In reverse postorder the arms lie between the branch and their join; a back edge in between is too complex.
        end = self._last_rank(number)
        position_in_order = self.rank[number] + 1
        while position_in_order < end:
            block = self.order[position_in_order]
            for i in self.flow.blocks[block].instructions:
                if i.opcode == "st" and (guards := self.predicates.literals([i.guard] if i.guard is not None else [])):
                    stores = disjoin(stores, frozenset([frozenset(guards)]))
                elif not self.slices.is_pure(i) and i.opcode != "bra" and not is_parameter(i):
                    # Anything else that has an effect, an unguarded store too, could tell which arm a lane has taken.
                    return NO_ARMS
                written.update(self.ops[i.opcode].written(i))
            if (
                min((self.rank[successor] for successor in self.flow.blocks[block].successors), default=0)
                <= position_in_order
            ):
                return NO_ARMS
            end = max(end, self._last_rank(block))
            position_in_order = position_in_order + 1
        return Arms(frozenset(written), stores)

    def _last_rank(self, block: int) -> int:
        return max((self.rank[successor] for successor in self.flow.blocks[block].successors), default=0)

    def _is_only_preserved(self, name: str, i: Instruction) -> bool:
        """Return whether an instruction reads a register only because its guard may leave it unchanged."""
        op = self.ops[i.opcode]
        if i.guard is None or name not in op.written(i):
            return False
        return name not in registers([*i.operands[op.results :], i.guard])

    def _restrict_to_known(self, load: ProgramPoint, formula: Formula, condition: list[Literal]) -> Formula:
        """Return a formula without predicates that are unknown when the load runs, or certain on its path."""
        if formula in (ALL_LANES, NO_LANES):
            return formula
        guard = self.slices.instruction(load).guard
        certain = {*condition, *self.predicates.literals([guard] if guard is not None else [], load)}
        restricted = NO_LANES
        for term in formula:
            uncertain = (literal for literal in term - certain if self.predicates.is_known(literal.predicate, load))
            restricted = disjoin(restricted, frozenset([frozenset(uncertain)]))
        return restricted

    def _move_ahead(self, load: ProgramPoint, formula: Formula) -> None:
        """Compute the predicates that a load names, and that are computed after it, in front of it."""
        for predicate in sorted(
            {literal.predicate for term in formula for literal in term} - self.predicates.constants
        ):
            # is_known held for it, so it is computed either before the load or by a slice in front of it.
            if not self.slices.is_before(predicate, load):
                computation = self.slices.slice_of(predicate, load)
                assert computation is not None
                self.ahead.setdefault(load, {})[predicate] = computation

    def _find_early(self, points: list[tuple[ProgramPoint, Instruction]]) -> list[Instruction]:
        """Return the instructions that compute the constant predicates that loads name."""
        predicates = {
            literal.predicate for formula in self.loads.values() for term in formula for literal in term
        } & self.predicates.constants
        early = []
        for _, i in reversed(points) if predicates else ():
            if predicates.intersection(self.ops[i.opcode].written(i)):
                predicates.update(self.ops[i.opcode].read(i))
                early.append(i)
        return early[::-1]


def _selection(name: str, i: Instruction) -> list[Operand]:
    """Return the predicate under which a select passes a register on."""
    if i.opcode != "selp" or name in registers(i.operands[3:]):
        return []
    # selp d, a, b, p takes a where p holds, else b (PTX ISA, "selp"). The value in both places is always used.
    first, second = (name in registers([source]) for source in i.operands[1:3])
    selector = i.operands[3]
    return [] if first and second else [selector if first else negate(selector)]


def _spread(i: Instruction) -> int:
    """Return the bits in which a lane's number may differ from that of the lane whose value a shuffle gives it."""
    # bfly reads the lane whose number is this lane's, exclusive or the mask. Other modes, and masks in registers, may
    # read any lane.
    lanes = i.operands[2]
    return lanes.value & 31 if "bfly" in i.modifiers and isinstance(lanes, Immediate) else 31
