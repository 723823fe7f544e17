"""Attach to each load how its result is used: this decides what the load is checked for."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from warpcheck.lower.control_flow import Flow, Ops, reachable
from warpcheck.lower.load_liveness import ALL_LANES, Demand, Literal, ProgramPoint
from warpcheck.lower.polling_loops import Polls
from warpcheck.op import registers
from warpcheck.ptx import Group, Immediate, Instruction, Not, Operand, Register

__all__ = ["LoadUse", "LoadUses"]

_STRONG = frozenset(("volatile", "relaxed", "acquire"))


@dataclass(frozen=True)
class LoadUse:
    """How the result of a load is used.

    Args:
        using_lanes: The lanes that use the result, as a Group of the Demand's terms: each is a Group of triples of a
            predicate, its spread, and whether it is constant. None for all lanes.
        half: Whether a compare-and-swap of a word has the same address: compilers update half a word by one.
        polls: Whether the load is repeated until its value ends the loop, and has no other use.
        spins: Whether its loop ends by its value alone, whatever else the value is used for; see ``polling_loops``.
        overwrites: Whether it is an atomic exchange whose result nothing reads.
    """

    using_lanes: Operand | None = None
    half: bool = False
    polls: bool = False
    spins: bool = False
    overwrites: bool = False


class LoadUses:
    """The uses of a kernel's loads.

    Registers that the checks of loads need live for the whole kernel: they are added to the live registers of ``flow``.
    So the analysis comes before registers get their slots.
    """

    def __init__(self, flow: Flow, ops: Ops) -> None:
        self.flow = flow
        self.ops = ops
        self.demands = Demand(flow, ops)
        self.polls = Polls(flow, ops)
        # Predicates that loads name, and what those follow from that is computed early, stay for the whole kernel.
        for i in self.demands.early:
            flow.blocks[0].live_in.update(ops[i.opcode].written(i))
        flow.blocks[0].live_in.update(
            literal.predicate for formula in self.demands.loads.values() for term in formula for literal in term
        )
        for parts in self.demands.ahead.values():
            for part in parts.values():
                flow.registers.update(part.kinds)
                flow.blocks[0].live_in.update(part.kinds)
        self.swapped = {
            i.operands[1]
            for block in flow.blocks
            for i in block.instructions
            if i.opcode == "atom" and "cas" in i.modifiers and i.modifiers[-1] == "b32"
        }

    @cached_property
    def read(self) -> set[str]:
        """The registers that any instruction reads."""
        instructions = (i for block in self.flow.blocks for i in block.instructions)
        return {name for i in instructions for name in self.ops[i.opcode].read(i)}

    def use_of(self, point: ProgramPoint) -> LoadUse:
        """Return the use of the result of the instruction at a place, if it is a load or an atomic operation."""
        i = self.flow.blocks[point.block].instructions[point.position]
        if i.opcode == "atom":
            overwrites = "exch" in i.modifiers and self.read.isdisjoint(self.ops[i.opcode].written(i))
            return LoadUse(overwrites=overwrites, spins=self.polls.polls(point))
        if i.opcode != "ld" or i.modifiers[0] == "param":
            return LoadUse()
        formula = self.demands.loads.get(point, ALL_LANES)
        lanes_using_load = None
        if formula != ALL_LANES:
            lanes_using_load = Group(tuple(self._operand(term, point) for term in sorted(map(sorted, formula))))
        # A load whose address is also that of a 32-bit compare-and-swap belongs to a 16-bit atomic update.
        half = i.operands[-1] in self.swapped
        is_volatile = "volatile" in i.modifiers
        spins = not _STRONG.isdisjoint(i.modifiers) and self.polls.polls(point)
        return LoadUse(lanes_using_load, half, is_volatile and self._polls(point, i), spins)

    def _operand(self, term: list[Literal], point: ProgramPoint) -> Group:
        computed_ahead = self.demands.ahead.get(point, {})
        literals = []
        for literal in term:
            is_constant = literal.predicate in self.demands.predicates.constants
            name = (
                computed_ahead[literal.predicate].register if literal.predicate in computed_ahead else literal.predicate
            )
            literals.append(
                Group((_predicate(name, literal.negated), *map(Immediate, (literal.spread, int(is_constant)))))
            )
        return Group(tuple(literals))

    def _polls(self, point: ProgramPoint, i: Instruction) -> bool:
        """Return whether a load is repeated for the branch of its own block alone."""
        block_number = point.block
        block = self.flow.blocks[point.block]
        later = block.instructions[point.position + 1 :]
        derived = set(self.ops[i.opcode].written(i))
        for following in later[:-1]:
            if derived.intersection(self.ops[following.opcode].read(following)):
                derived.update(self.ops[following.opcode].written(following))
        # The definitions of the address: outside of the loop, so that each iteration loads the same word.
        bases = [
            definition for name in registers(i.operands[1:]) if (definition := self.demands.slices.definition(name))
        ]
        # The blocks on a cycle through this one.
        loop_blocks = [
            block
            for block in reachable(self.flow.blocks, [block_number])
            if block_number in reachable(self.flow.blocks, [block])
        ]
        # Repeated, up to a branch at the end of the block that depends on the loaded value alone, with no use of the
        # value behind the block and an address that does not change.
        return (
            block_number in loop_blocks
            and bool(later)
            and later[-1].opcode == "bra"
            and derived.issuperset(registers([later[-1].guard] if later[-1].guard else []))
            and not derived & block.live_out
            and len(bases) == len(registers(i.operands[1:]))
            and not {definition.block for definition in bases}.intersection(loop_blocks)
        )


def _predicate(name: str, negated: bool) -> Operand:
    return Not(Register(name)) if negated else Register(name)
