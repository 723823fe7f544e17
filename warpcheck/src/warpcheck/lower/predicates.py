"""What is known of predicates: which of them hold where, and for how long."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from warpcheck.lower.flow import Flow, Ops, in_order
from warpcheck.lower.formulas import EVERYONE, MOST, NOBODY, Formula, Holds, both, either
from warpcheck.lower.slices import Place, Slices
from warpcheck.op import registers
from warpcheck.ptx import Instruction, Not, Operand, Register

__all__ = ["Predicates", "is_parameter", "negation"]


class Predicates:
    """The predicates of one kernel.

    ``constants`` has the registers that hold the same in a thread whenever they are computed; ``latches`` the last
    instruction of each block that leads back, the block that it leads to, and what holds then.
    """

    def __init__(self, flow: Flow, ops: Ops, places: Sequence[tuple[Place, Instruction]], slices: Slices) -> None:
        self.flow = flow
        self.ops = ops
        self.slices = slices
        self._lasts: dict[str, bool] = {}
        self._all_last: dict[Formula, bool] = {}
        self.order = in_order(flow.blocks)
        self.rank = {block: number for number, block in enumerate(self.order)}
        self.loops = self._find_loops()
        self.constants = self._find_constants(places)
        self.latches = self._find_latches()

    def either(self, one: Formula, other: Formula) -> Formula:
        """Return the lanes of either formula, in fewer words if their terms grow many."""
        united = either(one, other)
        if united == EVERYONE and EVERYONE not in (one, other):
            united = either(self.lasting(one), self.lasting(other))
        return united

    def both(self, literals: list[Holds], formula: Formula) -> Formula:
        """Return the lanes of a formula in which predicates hold too; those of a loop's round where there is room."""
        lasting = [holds for holds in literals if self.lasts(holds.predicate)]
        formula = both(lasting, formula)
        return formula if len(lasting) == len(literals) else both(literals, formula)

    def lasting(self, formula: Formula) -> Formula:
        """A formula with the predicates alone that are the same in all rounds of a loop."""
        if self.all_last(formula):
            return formula
        found = NOBODY
        for term in formula:
            found = either(found, frozenset([frozenset(one for one in term if self.lasts(one.predicate))]))
        return found

    def all_last(self, formula: Formula) -> bool:
        """Whether all predicates of a formula are the same in all rounds of a loop."""
        if formula not in self._all_last:
            self._all_last[formula] = all(self.lasts(holds.predicate) for term in formula for holds in term)
        return self._all_last[formula]

    def lasts(self, predicate: str) -> bool:
        """Whether a predicate is the same in all rounds of a loop."""
        if predicate not in self._lasts:
            place = self.slices.definition(predicate)
            is_outside = place is not None and place.block not in self.loops
            self._lasts[predicate] = predicate in self.constants or is_outside
        return self._lasts[predicate]

    def literals(self, predicates: Iterable[Operand], reader: Place | None = None) -> list[Holds]:
        """What holds where predicates do, and what they were made of.

        reader: the instruction that reads them, if what a loop computes again may be named.
        """
        found = list[Holds]()
        todo = list(predicates)
        while todo and len(found) < MOST:
            register, negated = _plain(todo.pop(0))
            place = self.slices.definition(register)
            if place is not None and (
                self.lasts(register) or (reader is not None and self.slices.is_before(register, reader))
            ):
                found.append(Holds(register, negated))
                todo += [one for one in self._parts(place, negated) if self._precedes(_plain(one)[0], place)]
        return found

    def _parts(self, place: Place, negated: bool) -> Sequence[Operand]:
        """What holds where a conjunction does; what does not, negated, where a disjunction does not."""
        i = self.flow.blocks[place.block].instructions[place.position]
        made = i.guard is None and i.opcode == ("or" if negated else "and") and i.modifiers == ("pred",)
        return [negation(one) if negated else one for one in i.operands[1:] if made and isinstance(one, Not | Register)]

    def _precedes(self, predicate: str, made: Place) -> bool:
        """Whether a predicate is not of an earlier round of a loop than what was made of it there."""
        is_single = self.slices.definition(predicate) is not None
        return not is_single or self.lasts(predicate) or self.slices.is_before(predicate, made)

    def is_known(self, predicate: str, place: Place) -> bool:
        """Whether a predicate has its value in front of an instruction, or can be computed there."""
        if predicate in self.constants or self.slices.is_before(predicate, place):
            return True
        return self.slices.slice_of(predicate, place) is not None

    def way_to(self, block: int) -> list[Holds]:
        """What holds where a block is reached; what always holds comes first."""
        found: list[Holds] = []
        for _ in range(MOST):
            if len(self.slices.predecessors[block]) != 1:
                break
            before = self.slices.predecessors[block][0]
            branch = Place(before, len(self.flow.blocks[before].instructions) - 1)
            last = self.flow.blocks[before].instructions[-1]
            if last.opcode == "bra" and last.guard is not None and len(set(self.flow.blocks[before].successors)) == 2:
                taken = self.flow.blocks[before].successors[0] == block
                found += self.literals([last.guard if taken else negation(last.guard)], branch)
            block = before
        return sorted(found, key=lambda holds: not self.lasts(holds.predicate))[:MOST]

    def _find_loops(self) -> set[int]:
        """The blocks that a jump back may lead to twice: all that lie between the ends of such a jump."""
        last: dict[int, int] = {}
        for rank, number in enumerate(self.order):
            for successor in self.flow.blocks[number].successors:
                if self.rank[successor] <= rank:
                    last[self.rank[successor]] = rank
        found = set()
        end = -1
        for rank, number in enumerate(self.order):
            end = max(end, last.get(rank, -1))
            if rank <= end:
                found.add(number)
        return found

    def _find_constants(self, places: Sequence[tuple[Place, Instruction]]) -> set[str]:
        """The registers that hold the same in a thread whenever they are computed."""
        found: set[str] = set()
        for _, i in places:
            if i.guard is None and (is_parameter(i) or self.slices.is_pure(i)):
                results = self.ops[i.opcode].written(i)
                alone = all(len(self.slices.definitions[name]) == 1 for name in results)
                if alone and all(name in found or self.slices.is_given(name) for name in self.ops[i.opcode].read(i)):
                    found.update(results)
        return found

    def _find_latches(self) -> list[tuple[Place, int, list[Holds]]]:
        """The last instruction of each block that leads back, the block that it leads to, and what holds then."""
        found = []
        for number in self.order:
            block = self.flow.blocks[number]
            last = Place(number, len(block.instructions) - 1)
            for header in set(block.successors):
                if self.rank[header] <= self.rank[number]:
                    guard = self.slices.instruction(last).guard
                    literals = list[Holds]()
                    if self.slices.instruction(last).opcode == "bra" and guard and len(set(block.successors)) == 2:
                        taken = block.successors[0] == header
                        literals = self.literals([guard if taken else negation(guard)], last)
                    found.append((last, header, literals))
        return found


def is_parameter(i: Instruction) -> bool:
    """Whether an instruction loads a parameter of the kernel."""
    return i.opcode == "ld" and i.modifiers[0] == "param" and not registers(i.operands[1:])


def _plain(predicate: Operand) -> tuple[str, bool]:
    """The register of a predicate, and whether it is negated."""
    register = predicate.register if isinstance(predicate, Not) else predicate
    assert isinstance(register, Register)
    return register.name, isinstance(predicate, Not)


def negation(predicate: Operand) -> Operand:
    """Return a predicate that holds where another one does not."""
    assert isinstance(predicate, Not | Register)
    return predicate.register if isinstance(predicate, Not) else Not(predicate)
