"""What a load must be held to: the lanes that use what it gives them, computed where it stands."""

from __future__ import annotations

from functools import reduce

from llvmlite import ir

from kernelpath.simt.layout import LANES
from kernelpath.simt.lower.demand import EVERYONE, Demand, Every, Exchanged, Formula, Holds
from kernelpath.simt.lower.emitter import Emitter
from kernelpath.simt.lower.flow import Block, Flow, Ops, reached
from kernelpath.simt.lower.vectors import I32
from kernelpath.simt.op import registers
from kernelpath.simt.ptx import Function, Instruction, Module, Operand

__all__ = ["Loads"]


class Loads(Emitter):
    """Tells of a load what the other instructions of its kernel make of it."""

    index: int
    block: Block

    def __init__(self, module: Module, kernel: Function, flow: Flow, ops: Ops) -> None:
        super().__init__(module, kernel, flow)
        self.ops = ops
        self.demands = Demand(flow, ops)
        self.swapped = {
            i.operands[1]
            for block in flow.blocks
            for i in block.instructions
            if i.opcode == "atom" and "cas" in i.modifiers and i.modifiers[-1] == "b32"
        }

    def is_swapped(self, address: Operand) -> bool:
        """Whether a compare-and-swap of a word takes this address: compilers update half a word by one."""
        return address in self.swapped

    def polls(self, i: Instruction) -> bool:
        """Whether a load is repeated until its value says to go on, and is for nothing else."""
        here, behind = self.index, self.flow.blocks[self.index].instructions[self.position + 1 :]
        held = set(self.ops[i.opcode].written(i))
        for following in behind[:-1]:
            if held.intersection(self.ops[following.opcode].read(following)):
                held.update(self.ops[following.opcode].written(following))
        bases = [place for name in registers(i.operands[1:]) if (place := self.demands.definition(name))]
        repeated = [block for block in reached(self.flow.blocks, [here]) if here in reached(self.flow.blocks, [block])]
        return (
            here in repeated
            and behind[-1].opcode == "bra"
            and held.issuperset(registers([behind[-1].guard] if behind[-1].guard else []))
            and not held & self.block.live_out
            and len(bases) == len(registers(i.operands[1:]))
            and not {place.block for place in bases}.intersection(repeated)
        )

    def wanted(self) -> ir.Value | None:
        """The lanes that use what this load gives; None for all of them."""
        formula = self.demands.of(self.index, self.position)
        return None if formula == EVERYONE else self._lanes_of(formula)

    def _lanes_of(self, formula: Formula) -> ir.Value:
        match formula:
            case Holds(predicate, negated):
                value = self._early(predicate)
                return self.b.not_(value) if negated else value
            case Exchanged(inner, distance):
                lanes = self._lanes_of(inner)
                if not distance:
                    return self.broadcast(self.b.icmp_unsigned("!=", self.as_bits(lanes), I32(0)))
                partners = ir.Constant(ir.VectorType(I32, LANES), [lane ^ distance for lane in range(LANES)])
                return self.b.or_(lanes, self.b.shuffle_vector(lanes, ir.Constant(lanes.type, ir.Undefined), partners))
        both = isinstance(formula, Every)
        combine = self.b.and_ if both else self.b.or_
        return reduce(combine, map(self._lanes_of, formula.formulas), self.splat(both, 1))

    def _early(self, name: str) -> ir.Value:
        """A register that the demand for a load names; computed here, where that comes later."""
        place = self.demands.definition(name)
        if place is None or name in self.values or self.demands.is_set(place, name, self.index):
            return self.read_register(name)
        for source in self.ops[place.instruction.opcode].read(place.instruction):
            self._early(source)
        state = self.instruction, self.guarded, self.active
        self.instruction, self.guarded = place.instruction, False
        self.ops[place.instruction.opcode].emit(self, place.instruction)
        self.instruction, self.guarded, self.active = state
        return self.values[name]
