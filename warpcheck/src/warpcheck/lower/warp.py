"""Emit control flow: from a kernel's blocks to the LLVM function that runs one warp until it stops.

Reconvergence is by minimum program counter (Collange 2011; "min-PC"). Each lane has a program counter, the number of a
basic block. The lanes with the lowest number run first, and a block's lanes are all lanes at that number. Since a
branch joins at a higher number than its arms in the code that compilers emit, lanes that diverge meet again at the
join. This is not the reconvergence of a GPU, which uses barriers that ptxas places: a program that relies on where
exactly lanes reconverge is wrong in CUDA, too. Instructions that need several lanes (shuffles, votes, barriers) wait
for them.

A program counter has flags in its upper bits, so that one unsigned minimum chooses what runs next:

    block              lanes that can run
    block | ASIDE      lanes that let the others run first, after a timeout of their wait
    block | WAITING    lanes that wait for others at a collective instruction; at the minimum, all wait: STUCK
    NOWHERE            lanes that have exited
"""

from __future__ import annotations

from collections.abc import Sequence

from llvmlite import ir

from warpcheck.layout import ASIDE, LANES, NOWHERE, WAITING, Status
from warpcheck.lower import control_flow
from warpcheck.lower.compiled_shapes import ShapeLookup, Shared, emit_uncached
from warpcheck.lower.control_flow import Block, Ops
from warpcheck.lower.lane_pcs import (
    emit_branch,
    emit_count,
    emit_end_aside,
    emit_goto,
    emit_lanes_at,
    emit_set_pcs,
    emit_uncount,
    is_barrier,
    load_pcs,
    suspends,
)
from warpcheck.lower.vectors import I32, I64
from warpcheck.lowered_kernel import Lowered
from warpcheck.op import Lanes, Placement
from warpcheck.ptx import Function, Instruction, Module, Register
from warpcheck.runtime.records import LAUNCH, WARP
from warpcheck.target import Target

__all__ = ["Lowering"]

_WRONG_OPERANDS = (AssertionError, AttributeError, IndexError, KeyError, TypeError, ValueError)
"""Raised by an emitter for an instruction with too few or too many operands, or of a kind that ptxas rejects."""


class Lowering(Shared):
    """Emits ``run(launch, cta, warp) -> Status``; ``ops`` has the instructions.

    Raises Rejected for what the PTX's target does not have; ``target`` counts if the PTX names none.
    """

    def __init__(
        self, module: Module, kernel: Function, ops: Ops, target: Target, lookup: ShapeLookup = emit_uncached
    ) -> None:
        super().__init__(
            module, kernel, control_flow.analyze(module, kernel, ops, module.target or target.name), ops, lookup
        )
        self.after_barriers = control_flow.reachable(
            self.flow.blocks, [n for n, block in enumerate(self.flow.blocks) if is_barrier(block.instructions[0])]
        )
        self.suspends = any(suspends(block.instructions[0]) for block in self.flow.blocks)
        self.dispatch = self.function.append_basic_block("dispatch")
        self.heads = [self.function.append_basic_block(f"block{index}") for index in range(len(self.flow.blocks))]

    def lower(self) -> Lowered:
        """Lower the kernel.

        Raises:
            Unsupported: An instruction that the machine does not know.
            ValueError: Wrong operands.
        """
        self.b.branch(self.dispatch)
        self._emit_dispatch()
        for index, block in enumerate(self.flow.blocks):
            self._emit_block(index, block)
        self.place_rows()
        self.out.ir = str(self.unit)
        return self.out

    def _emit_dispatch(self) -> None:
        """Emit the choice of the lanes to run: those with the minimum program counter."""
        b = self.b
        b.position_at_end(self.dispatch)
        pcs = load_pcs(self, self.warp)
        lowest_pc = self.intrinsic("llvm.vector.reduce.umin.v32i32", I32, pcs)
        # The largest program counter of all is the minimum only if every lane has exited.
        with b.if_then(b.icmp_unsigned("==", lowest_pc, I32(NOWHERE)), likely=False):
            b.ret(I64(Status.EXITED))
        # Only lanes that stepped aside are left: their turn begins again.
        if self.suspends:
            is_aside = b.icmp_unsigned("==", b.and_(lowest_pc, I32(WAITING | ASIDE)), I32(ASIDE))
            with b.if_then(is_aside, likely=False):
                self.call_common(ir.VoidType(), [self.warp], emit_end_aside)
                b.ret(I64(Status.SUSPENDED))
        self.store_field(self.warp, WARP, "mask", self.as_bits(b.icmp_unsigned("==", pcs, self.broadcast(lowest_pc))))
        self.store_field(self.warp, WARP, "only_waiting", b.and_(lowest_pc, I32(WAITING)))
        nowhere = self.function.append_basic_block("nowhere")
        # Lanes that wait go on in the block at which they wait: the flag is no part of its number.
        switch = b.switch(b.and_(lowest_pc, I32(WAITING - 1)), nowhere)
        for index, head in enumerate(self.heads):
            switch.add_case(I32(index), head)
        b.position_at_end(nowhere)
        b.unreachable()

    def _emit_block(self, index: int, block: Block) -> None:
        b = self.b
        b.position_at_end(self.heads[index])
        self.values = {}
        self.block = block
        self.index = index
        self.location = (I32(index), I32(0))
        self.instruction = block.instructions[0]
        # A preempted or waiting warp enters its block again, so the block is counted only after both.
        self._use_mask()
        # Only the target of a back edge can keep a warp running without end.
        if block.loop:
            self._preempt()
        self._wait_for_lanes(block.instructions[0])
        self._count(block)
        self.out.blocks.append([(i.line, "@" * (i.guard is not None) + i.name) for i in block.instructions])
        self.out.successors.append(block.successors)
        last = block.instructions[-1]
        # The last instruction may end the block (branches, barriers): its code is part of the kernel's function.
        count = len(block.instructions) - (self.ops[last.opcode].placement_of(last) is not Placement.ANYWHERE)
        self.emit_shared(block.instructions[:count])
        for last in block.instructions[count:]:
            self.location = I32(index), I32(count)
            self.emit(last)
        if not b.block.is_terminated:
            self.jump(index + 1)

    def _use_mask(self) -> None:
        self.mask_bits = self.load_field(self.warp, WARP, "mask", I32)
        self.mask_lanes = self.active = self.as_lanes(self.mask_bits)

    def emit(self, instruction: Instruction) -> None:
        self.instruction = instruction
        self.active = self.mask_lanes
        if instruction.guard is not None:
            self.active = self.b.and_(self.mask_lanes, self.read(instruction.guard, 1))
        try:
            self.ops[instruction.opcode].emit(self, instruction)
        except _WRONG_OPERANDS as error:
            raise ValueError(f"line {instruction.line}: {instruction.name} does not take these operands") from error

    def _count(self, block: Block) -> None:
        spent = I64(-LANES * len(block.instructions))  # of the machine's time: absent lanes cost as much
        self.call_common(ir.VoidType(), [self.launch, self.mask_bits, I32(self.index), spent], emit_count)

    def _preempt(self) -> None:
        """End the slice at a loop when it is used up: a thread may be waiting for another warp."""
        is_exhausted = self.b.icmp_signed("<", self.load_field(self.launch, LAUNCH, "budget", I64), I64(0))
        with self.b.if_then(is_exhausted, likely=False):
            self._set_pcs(self.mask_bits, self.index)
            self.b.ret(I64(Status.PREEMPTED))

    def _wait_for_lanes(self, instruction: Instruction) -> None:
        """Wait, at a block that begins with a collective instruction, until all lanes that it names are here."""
        b = self.b
        lanes = self.ops[instruction.opcode].lanes(instruction)
        same_mask = self._select_group(lanes) if isinstance(lanes, Register) else I32(-1)
        needed = self.lanes_needed(instruction)
        if needed is None:
            return
        with b.if_then(b.icmp_unsigned("!=", needed, self.mask_bits), likely=False):
            # Lanes that came here earlier have the flag WAITING at this block.
            waiting = self.call_common(I32, [self.warp, I32(self.index + WAITING)], emit_lanes_at)
            arrived = b.or_(self.mask_bits, b.and_(waiting, same_mask))
            with b.if_else(b.icmp_unsigned("==", arrived, needed)) as (complete, incomplete):
                with complete:
                    self.store_field(self.warp, WARP, "mask", arrived)
                with incomplete:
                    # Lanes that wait have the highest program counters, so reaching this in a round in which the
                    # minimum was a waiting lane means that no lane can run any more.
                    only_waiting = self.load_field(self.warp, WARP, "only_waiting", I32)
                    with b.if_then(b.icmp_unsigned("!=", only_waiting, I32(0))):
                        self.store_field(self.launch, LAUNCH, "fault_block", I32(self.index))
                        self.record_lanes(needed, arrived)
                        b.ret(I64(Status.STUCK))
                    self._set_pcs(self.mask_bits, self.index + WAITING)
                    b.branch(self.dispatch)
        # The mask may have grown by the lanes that were waiting here: values read before are of fewer lanes.
        self.values = {}
        self._use_mask()

    def _select_group(self, masks: Register) -> ir.Value:
        """Select the lanes with the first lane's mask: lanes whose masks differ run one group after another."""
        b = self.b
        value = self.read(masks, 32)
        same_mask = self.as_bits(b.icmp_unsigned("==", value, self.broadcast(self.first_lane(value))))
        group = b.and_(self.mask_bits, same_mask)
        # The other lanes stay at this block and run next; this group goes on alone.
        with b.if_then(b.icmp_unsigned("!=", group, self.mask_bits), likely=False):
            self._set_pcs(self.mask_bits, self.index)
            self.store_field(self.warp, WARP, "mask", group)
        self._use_mask()
        return same_mask

    def jump(self, target: int) -> None:
        """End the block: all its lanes go to block ``target``."""
        self.save()
        self._goto(target)

    def branch(self, taken: ir.Value, target: int, otherwise: int) -> None:
        """End the block: lanes in ``taken`` go to ``target``, the block's other lanes to ``otherwise``."""
        self.save()
        places = [I32(number) for number in (self.index, self.pc(target), self.pc(otherwise))]
        arguments = [self.launch, self.warp, self.mask_bits, self.as_bits(taken), *places]
        self._branch_to(self.call_common(I32, arguments, emit_branch), target, otherwise)

    def branch_table(self, index: ir.Value, targets: Sequence[int]) -> None:
        """End the block: each lane goes to the target that its index chooses."""
        self.save()
        # An index outside of the table is undefined (PTX ISA, "brx.idx"): here such lanes take the last target.
        self._set_pcs(self.mask_bits, self.pc(targets[-1]))
        for number, target in enumerate(targets[:-1]):
            is_chosen = self.b.icmp_unsigned("==", index, self.splat(number, 32))
            self._set_pcs(self.as_bits(self.b.and_(is_chosen, self.mask_lanes)), self.pc(target))
        self.b.branch(self.dispatch)

    def exit(self) -> None:
        """Let the active lanes leave the kernel; the block's other lanes go on."""
        self.save()
        # Where other warps wait at a barrier, exiting after an earlier barrier is a fault, before the first one only a
        # warning; see runtime.barrier_divergence.
        if len(self.block.instructions) > 1 and self.index in self.after_barriers:
            any_active = self.b.icmp_unsigned("!=", self.as_bits(self.active), I32(0))
            with self.b.if_then(any_active):
                self.store_field(self.warp, WARP, "exited_after_barrier", I32(1))
        self._set_pcs(self.mask_bits, self.pc(self.index + 1))
        self._exit_lanes(self.as_bits(self.active))
        self.b.branch(self.dispatch)

    def stop(self, status: Status, resume: int) -> None:
        """End the block and return to the scheduler; the warp will go on at block ``resume``."""
        self.save()
        self._set_pcs(self.mask_bits, self.pc(resume))
        self.b.ret(I64(status))

    def suspend(self, gives_up: bool = False, returns: bool = False) -> None:
        """End a block of one instruction: the warp's ``blocked_lanes`` wait, the other lanes go on.

        Once their wait times out, the blocked lanes let the other lanes go on first.

        Args:
            gives_up: Whether a lane whose wait timed out goes on, with the result that it has written (try_wait). In a
                launch
                in another order it gives up at once, which finds kernels that do not test the result.
            returns: Whether the instruction never waits (test_wait): its lanes are suspended after it.
        """
        self.save()
        b = self.b
        blocked = self.load_field(self.warp, WARP, "blocked_lanes", I32)
        with b.if_then(b.icmp_unsigned("==", blocked, I32(0))):
            self._goto(self.index + 1)
        self._set_pcs(self.mask_bits, self.pc(self.index + 1))
        expired = b.icmp_unsigned("!=", self.load_field(self.warp, WARP, "expired", I32), I32(0))
        with b.if_then(expired):
            # The block has one instruction: the next block is behind it, and this one repeats it.
            self._set_pcs(blocked, ASIDE + self.index + (gives_up or returns))
            b.branch(self.dispatch)
        if gives_up:
            reverse = b.icmp_unsigned("!=", self.load_field(self.launch, LAUNCH, "reverse", I64), I64(0))
            with b.if_then(reverse):
                b.ret(I64(Status.SUSPENDED))
        if not returns:
            self._set_pcs(blocked, self.index)
            # A wait counts once, when it succeeds: the count of the lanes that will repeat it is undone, and that of
            # the instruction if no lane went on.
            executions = b.zext(b.icmp_unsigned("==", blocked, self.mask_bits), I64)
            arguments = [self.launch, blocked, I32(self.index), executions]
            self.call_common(ir.VoidType(), arguments, emit_uncount)
        b.ret(I64(Status.SUSPENDED))

    def rejoin(self) -> None:
        """End a block that may release lanes that stepped aside: they run first again."""
        self.save()
        expired = self.b.icmp_unsigned("!=", self.load_field(self.warp, WARP, "expired", I32), I32(0))
        with self.b.if_then(expired, likely=False):
            self._set_pcs(self.mask_bits, self.pc(self.index + 1))
            self.call_common(ir.VoidType(), [self.warp], emit_end_aside)
            self.b.branch(self.dispatch)
        self._goto(self.index + 1)

    def fault(self, kind: int) -> None:
        """Stop the launch with a fault of the first active lane."""
        block, position = self.location
        self.store_field(self.launch, LAUNCH, "fault_kind", I32(kind))
        # Below 0 the field is no access site but an instruction in fault_block; see records.
        self.store_field(self.launch, LAUNCH, "fault_site", self.b.not_(position))
        self.store_field(self.launch, LAUNCH, "fault_block", block)
        self.store_field(self.launch, LAUNCH, "fault_lane", self.first_active())
        self.store_field(self.launch, LAUNCH, "fault_warp", self.load_field(self.warp, WARP, "index", I32))
        self.b.ret(I64(Status.FAULT))

    def pc(self, block: int) -> int:
        return block if block < len(self.heads) else NOWHERE

    def _goto(self, target: int) -> None:
        arguments = [self.warp, self.mask_bits, I32(self.pc(target))]
        self._branch_to(self.call_common(I32, arguments, emit_goto), target)

    def _branch_to(self, next_block: ir.Value, *targets: int) -> None:
        """End the block: go to the one of ``targets`` that was chosen, or else to the dispatch."""
        switch = self.b.switch(next_block, self.dispatch)
        for target in set(targets):
            if target < len(self.heads):
                switch.add_case(I32(target), self.heads[target])

    def _exit_lanes(self, lanes: ir.Value) -> None:
        live = self.load_field(self.warp, WARP, "live", I32)
        self.store_field(self.warp, WARP, "live", self.b.and_(live, self.b.not_(lanes)))
        # A lane that has exited is not waited for (Lanes.LIVE, lanes_needed).
        self._set_pcs(lanes, NOWHERE)

    def _set_pcs(self, lanes: ir.Value, pc: int) -> None:
        """Set the program counters of ``lanes``, given as bits."""
        self.call_common(ir.VoidType(), [self.warp, lanes, I32(pc)], emit_set_pcs)

    def lanes_needed(self, i: Instruction) -> ir.Value | None:
        """Return the lanes that a collective instruction waits for, as bits; None if it does not wait.

        Of the lanes in its mask, these are all that have not left the kernel.
        """
        match self.ops[i.opcode].lanes(i):
            case Lanes.NONE:
                return None
            case Lanes.LIVE:
                return self.load_field(self.warp, WARP, "live", I32)
            case mask:
                return self.b.and_(self.first_lane(self.read(mask, 32)), self.load_field(self.warp, WARP, "live", I32))
