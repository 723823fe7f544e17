"""Find the predicates that hold at an instruction, and those that hold in all iterations of a loop."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from warpcheck.lower.control_flow import Flow, Ops, reverse_postorder
from warpcheck.lower.def_use import ProgramPoint, Slices
from warpcheck.lower.formulas import ALL_LANES, MAX_TERMS, NO_LANES, Formula, Literal, conjoin, disjoin
from warpcheck.op import registers
from warpcheck.ptx import Instruction, Not, Operand, Register

__all__ = ["Predicates", "is_parameter", "negate"]


class Predicates:
    """The predicates of one kernel.

    ``constants`` are the registers that have one value in a thread whenever they are computed. ``latches`` has the
    source of each back edge, the block that it leads to, and what holds on it.
    """

    def __init__(
        self, flow: Flow, ops: Ops, points: Sequence[tuple[ProgramPoint, Instruction]], slices: Slices
    ) -> None:
        self.flow = flow
        self.ops = ops
        self.slices = slices
        self._is_invariant: dict[str, bool] = {}
        self._all_invariant: dict[Formula, bool] = {}
        self.order = reverse_postorder(flow.blocks)
        self.rank = {block: number for number, block in enumerate(self.order)}
        self.loops = self._find_loops()
        self.constants = self._find_constants(points)
        self.latches = self._find_latches()

    def disjoin(self, first: Formula, second: Formula) -> Formula:
        """Return the lanes of either formula, with fewer literals if it would have too many terms."""
        result = disjoin(first, second)
        # Too many terms: try again with only the literals that hold in every iteration.
        if result == ALL_LANES and ALL_LANES not in (first, second):
            result = disjoin(self.keep_invariant(first), self.keep_invariant(second))
        return result

    def conjoin(self, literals: list[Literal], formula: Formula) -> Formula:
        """Return the lanes of a formula in which literals hold too; those of one iteration as far as there is room."""
        invariant = [literal for literal in literals if self.is_invariant(literal.predicate)]
        formula = conjoin(invariant, formula)
        return formula if len(invariant) == len(literals) else conjoin(literals, formula)

    def keep_invariant(self, formula: Formula) -> Formula:
        """Return a formula with only those predicates that are the same in all iterations of a loop."""
        if self.all_invariant(formula):
            return formula
        result = NO_LANES
        for term in formula:
            result = disjoin(
                result, frozenset([frozenset(literal for literal in term if self.is_invariant(literal.predicate))])
            )
        return result

    def all_invariant(self, formula: Formula) -> bool:
        """Return whether all predicates of a formula are the same in all iterations of a loop."""
        if formula not in self._all_invariant:
            self._all_invariant[formula] = all(
                self.is_invariant(literal.predicate) for term in formula for literal in term
            )
        return self._all_invariant[formula]

    def is_invariant(self, predicate: str) -> bool:
        """Return whether a predicate is the same in all iterations of a loop."""
        if predicate not in self._is_invariant:
            point = self.slices.definition(predicate)
            is_outside = point is not None and point.block not in self.loops
            # A register with one definition outside of all loops is written once, so every iteration reads the same
            # value.
            self._is_invariant[predicate] = predicate in self.constants or is_outside
        return self._is_invariant[predicate]

    def literals(self, predicates: Iterable[Operand], reader: ProgramPoint | None = None) -> list[Literal]:
        """Return what holds where these predicates hold, including the predicates they were computed from.

        Args:
            reader: The instruction that reads them, if predicates of one iteration may be named.
        """
        result = list[Literal]()
        worklist = list(predicates)
        # The bound keeps formulas small. A literal that is left out only makes the condition weaker.
        while worklist and len(result) < MAX_TERMS:
            register, negated = _split_negation(worklist.pop(0))
            point = self.slices.definition(register)
            if point is not None and (
                self.is_invariant(register) or (reader is not None and self.slices.is_before(register, reader))
            ):
                result.append(Literal(register, negated))
                worklist += [
                    part for part in self._parts(point, negated) if self._precedes(_split_negation(part)[0], point)
                ]
        return result

    def _parts(self, point: ProgramPoint, negated: bool) -> Sequence[Operand]:
        """Return the conjuncts of a conjunction; for a negated disjunction, its negated disjuncts."""
        i = self.flow.blocks[point.block].instructions[point.position]
        is_conjunction = i.guard is None and i.opcode == ("or" if negated else "and") and i.modifiers == ("pred",)
        return [
            negate(source) if negated else source
            for source in i.operands[1:]
            if is_conjunction and isinstance(source, Not | Register)
        ]

    def _precedes(self, predicate: str, result_point: ProgramPoint) -> bool:
        """Return whether a predicate is not of an earlier iteration than the conjunction computed from it."""
        is_single = self.slices.definition(predicate) is not None
        return not is_single or self.is_invariant(predicate) or self.slices.is_before(predicate, result_point)

    def is_known(self, predicate: str, point: ProgramPoint) -> bool:
        """Return whether a predicate has its value in front of an instruction, or can be computed there."""
        if predicate in self.constants or self.slices.is_before(predicate, point):
            return True
        return self.slices.slice_of(predicate, point) is not None

    def path_condition(self, block: int) -> list[Literal]:
        """Return what holds where a block is reached; loop-invariant literals come first."""
        result: list[Literal] = []
        for _ in range(MAX_TERMS):
            # Where paths join, nothing more is certain.
            if len(self.slices.predecessors[block]) != 1:
                break
            predecessor = self.slices.predecessors[block][0]
            branch = ProgramPoint(predecessor, len(self.flow.blocks[predecessor].instructions) - 1)
            last = self.flow.blocks[predecessor].instructions[-1]
            # A conditional branch with two different targets: its guard holds on one edge, its negation on the other.
            if (
                last.opcode == "bra"
                and last.guard is not None
                and len(set(self.flow.blocks[predecessor].successors)) == 2
            ):
                is_taken = self.flow.blocks[predecessor].successors[0] == block
                result += self.literals([last.guard if is_taken else negate(last.guard)], branch)
            block = predecessor
        return sorted(result, key=lambda literal: not self.is_invariant(literal.predicate))[:MAX_TERMS]

    def _find_loops(self) -> set[int]:
        """Return the blocks in loops: all that lie between the ends of a back edge, in order."""
        # last[r] is the rank of the latest block that jumps back to the block of rank r.
        last: dict[int, int] = {}
        for rank, number in enumerate(self.order):
            for successor in self.flow.blocks[number].successors:
                if self.rank[successor] <= rank:
                    last[self.rank[successor]] = rank
        loop_blocks = set()
        end = -1
        for rank, number in enumerate(self.order):
            end = max(end, last.get(rank, -1))
            if rank <= end:
                loop_blocks.add(number)
        return loop_blocks

    def _find_constants(self, points: Sequence[tuple[ProgramPoint, Instruction]]) -> set[str]:
        """Return the registers that have one value in a thread whenever they are computed."""
        constants: set[str] = set()
        for _, i in points:
            # By induction in program order: computed once, purely, from constants.
            if i.guard is None and (is_parameter(i) or self.slices.is_pure(i)):
                results = self.ops[i.opcode].written(i)
                is_single = all(len(self.slices.definitions[name]) == 1 for name in results)
                if is_single and all(
                    name in constants or self.slices.is_thread_constant(name) for name in self.ops[i.opcode].read(i)
                ):
                    constants.update(results)
        return constants

    def _find_latches(self) -> list[tuple[ProgramPoint, int, list[Literal]]]:
        """Return the source of each back edge, the block that it leads to, and what holds on it."""
        latches = []
        for number in self.order:
            block = self.flow.blocks[number]
            last = ProgramPoint(number, len(block.instructions) - 1)
            for header in set(block.successors):
                if self.rank[header] <= self.rank[number]:
                    guard = self.slices.instruction(last).guard
                    literals = list[Literal]()
                    if self.slices.instruction(last).opcode == "bra" and guard and len(set(block.successors)) == 2:
                        is_taken = block.successors[0] == header
                        literals = self.literals([guard if is_taken else negate(guard)], last)
                    latches.append((last, header, literals))
        return latches


def is_parameter(i: Instruction) -> bool:
    """Return whether an instruction loads a parameter of the kernel."""
    return i.opcode == "ld" and i.modifiers[0] == "param" and not registers(i.operands[1:])


def _split_negation(operand: Operand) -> tuple[str, bool]:
    """Return the register of a predicate, and whether it is negated."""
    register = operand.register if isinstance(operand, Not) else operand
    assert isinstance(register, Register)
    return register.name, isinstance(operand, Not)


def negate(predicate: Operand) -> Operand:
    """Return a predicate that holds where another one does not."""
    assert isinstance(predicate, Not | Register)
    return predicate.register if isinstance(predicate, Not) else Not(predicate)
