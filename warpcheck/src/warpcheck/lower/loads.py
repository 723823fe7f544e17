"""What a load must be held to, by what the other instructions of its kernel make of it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce

from llvmlite import ir

from warpcheck.layout import LANES
from warpcheck.lower.demand import EVERYONE, Demand, Holds, Place
from warpcheck.lower.emitter import Emitter
from warpcheck.lower.flow import Flow, Ops, reached
from warpcheck.lower.polls import Polls
from warpcheck.lower.vectors import I32
from warpcheck.op import registers
from warpcheck.ptx import Function, Group, Immediate, Instruction, Module, Not, Operand, Register
from warpcheck.runtime.records import WARP

__all__ = ["Loads", "Use"]

_STRONG = frozenset(("volatile", "relaxed", "acquire"))


@dataclass(frozen=True)
class Use:
    """What is made of a load.

    wanted: the lanes that use what it gives, as a Group of the Demand's terms: each a Group of triples, a predicate,
    its spread, and whether it is constant. None for all lanes.
    half: whether a compare-and-swap of a word takes its address: compilers update half a word by one.
    polls: whether it is repeated until its value says to go on, and is for nothing else.
    spins: whether its loop goes on until its value says so, whatever else the value is for; see ``polls``.
    """

    wanted: Operand | None = None
    half: bool = False
    polls: bool = False
    spins: bool = False


class Loads(Emitter):
    """Knows the uses of loads. ``use`` is that of the load that is emitted."""

    use = Use()

    def __init__(self, module: Module, kernel: Function, flow: Flow, ops: Ops) -> None:
        self.ops = ops
        self.demands = Demand(flow, ops)
        self.polls = Polls(flow, ops)
        # Predicates that loads name, and what those follow from that is computed early, stay for the whole kernel.
        for i in self.demands.early:
            flow.blocks[0].live_in.update(ops[i.opcode].written(i))
        flow.blocks[0].live_in.update(
            holds.predicate for formula in self.demands.loads.values() for term in formula for holds in term
        )
        for parts in self.demands.ahead.values():
            for part in parts.values():
                flow.registers.update(part.kinds)
                flow.blocks[0].live_in.update(part.kinds)
        super().__init__(module, kernel, flow)
        self.swapped = {
            i.operands[1]
            for block in flow.blocks
            for i in block.instructions
            if i.opcode == "atom" and "cas" in i.modifiers and i.modifiers[-1] == "b32"
        }

    def use_of(self, place: Place) -> Use:
        """The use of what the instruction at a place gives, where that is a load."""
        i = self.flow.blocks[place.block].instructions[place.position]
        if i.opcode != "ld" or i.modifiers[0] == "param":
            return Use()
        formula = self.demands.loads.get(place, EVERYONE)
        wanted = None
        if formula != EVERYONE:
            wanted = Group(tuple(self._operand(term, place) for term in sorted(map(sorted, formula))))
        half = i.operands[-1] in self.swapped
        is_volatile = "volatile" in i.modifiers
        spins = not _STRONG.isdisjoint(i.modifiers) and self.polls.polls(place)
        return Use(wanted, half, is_volatile and self._polls(place, i), spins)

    def wanted(self) -> ir.Value | None:
        """The lanes that use what this load gives; None for all of them."""
        if self.use.wanted is None:
            return None
        assert isinstance(self.use.wanted, Group)
        return reduce(self.b.or_, map(self._lanes_of, self.use.wanted.items), self.splat(0, 1))

    def _lanes_of(self, term: Operand) -> ir.Value:
        assert isinstance(term, Group)
        return reduce(self.b.and_, map(self._lanes_where, term.items))

    def _lanes_where(self, triple: Operand) -> ir.Value:
        assert isinstance(triple, Group)
        predicate, spread, constant = triple.items
        assert isinstance(spread, Immediate)
        assert isinstance(constant, Immediate)
        b = self.b
        lanes = self.read(predicate, 1)
        # A lane that is elsewhere may use what it is sent: it may have yet to compute its predicate. A constant is
        # computed for all lanes before anything else.
        if spread.value and not constant.value:
            live = self.load_field(self.warp, WARP, "live", I32)
            lanes = self.as_lanes(b.or_(self.as_bits(lanes), b.and_(live, b.not_(self.mask_bits))))
        for bit in (1, 2, 4, 8, 16):
            if spread.value & bit:
                partners = ir.Constant(ir.VectorType(I32, LANES), [lane ^ bit for lane in range(LANES)])
                lanes = b.or_(lanes, b.shuffle_vector(lanes, ir.Constant(lanes.type, ir.Undefined), partners))
        return lanes

    def _operand(self, term: list[Holds], place: Place) -> Group:
        ahead = self.demands.ahead.get(place, {})
        literals = []
        for holds in term:
            is_constant = holds.predicate in self.demands.predicates.constants
            name = ahead[holds.predicate].register if holds.predicate in ahead else holds.predicate
            literals.append(Group((_predicate(name, holds.negated), *map(Immediate, (holds.spread, int(is_constant))))))
        return Group(tuple(literals))

    def _polls(self, place: Place, i: Instruction) -> bool:
        here = place.block
        block = self.flow.blocks[place.block]
        behind = block.instructions[place.position + 1 :]
        held = set(self.ops[i.opcode].written(i))
        for following in behind[:-1]:
            if held.intersection(self.ops[following.opcode].read(following)):
                held.update(self.ops[following.opcode].written(following))
        bases = [at for name in registers(i.operands[1:]) if (at := self.demands.slices.definition(name))]
        repeated = [block for block in reached(self.flow.blocks, [here]) if here in reached(self.flow.blocks, [block])]
        return (
            here in repeated
            and bool(behind)
            and behind[-1].opcode == "bra"
            and held.issuperset(registers([behind[-1].guard] if behind[-1].guard else []))
            and not held & block.live_out
            and len(bases) == len(registers(i.operands[1:]))
            and not {at.block for at in bases}.intersection(repeated)
        )


def _predicate(name: str, negated: bool) -> Operand:
    return Not(Register(name)) if negated else Register(name)
