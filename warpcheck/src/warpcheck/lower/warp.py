"""Control flow: from a kernel's blocks to the LLVM function that runs one warp until it stops.

Each lane has its own program counter, a block number. Lanes that agree go on together; after a divergent branch the
lanes with the least number run first, so that they meet the others where the branch joins. Instructions that need
several lanes (shuffles, barriers) wait for them.
"""

from __future__ import annotations

from collections.abc import Sequence

from llvmlite import ir

from warpcheck.layout import ASIDE, LANES, NOWHERE, WAITING, Status
from warpcheck.lower import flow
from warpcheck.lower.flow import Block, Ops
from warpcheck.lower.places import (
    emit_branch,
    emit_count,
    emit_goto,
    emit_return,
    emit_send,
    emit_uncount,
    emit_waiting,
    is_barrier,
    load_pcs,
    suspends,
)
from warpcheck.lower.shared import Recall, Shared, emit_anew
from warpcheck.lower.vectors import I32, I64
from warpcheck.lowered import Lowered
from warpcheck.op import Lanes, Place
from warpcheck.ptx import Function, Instruction, Module, Register
from warpcheck.runtime.records import LAUNCH, WARP
from warpcheck.target import Target

__all__ = ["Lowering"]

_WRONG_OPERANDS = (AssertionError, AttributeError, IndexError, KeyError, TypeError, ValueError)
"""What taking apart an instruction raises whose operands are too few, too many, or of a kind that ptxas refuses."""


class Lowering(Shared):
    """Emits ``run(launch, cta, warp) -> Status``; ``ops`` has the instructions.

    Raises Rejected for what the PTX's target does not have; ``target`` counts where the PTX names none.
    """

    def __init__(self, module: Module, kernel: Function, ops: Ops, target: Target, recall: Recall = emit_anew) -> None:
        super().__init__(module, kernel, flow.analyze(module, kernel, ops, module.target or target.name), ops, recall)
        self.behind_barriers = flow.reached(
            self.flow.blocks, [n for n, block in enumerate(self.flow.blocks) if is_barrier(block.instructions[0])]
        )
        self.suspends = any(suspends(block.instructions[0]) for block in self.flow.blocks)
        self.dispatch = self.function.append_basic_block("dispatch")
        self.heads = [self.function.append_basic_block(f"block{index}") for index in range(len(self.flow.blocks))]

    def lower(self) -> Lowered:
        """Lower the kernel. Raises Unsupported for what the machine does not know, ValueError for wrong operands."""
        self.b.branch(self.dispatch)
        self._emit_dispatch()
        for index, block in enumerate(self.flow.blocks):
            self._emit_block(index, block)
        self.place_rows()
        self.out.ir = str(self.unit)
        return self.out

    def _emit_dispatch(self) -> None:
        """Choose the lanes to run: those with the least block number."""
        b = self.b
        b.position_at_end(self.dispatch)
        pcs = load_pcs(self, self.warp)
        least = self.intrinsic("llvm.vector.reduce.umin.v32i32", I32, pcs)
        with b.if_then(b.icmp_unsigned("==", least, I32(NOWHERE)), likely=False):
            b.ret(I64(Status.EXITED))
        if self.suspends:
            left = b.icmp_unsigned("==", b.and_(least, I32(WAITING | ASIDE)), I32(ASIDE))
            with b.if_then(left, likely=False):
                self.call_kept(ir.VoidType(), [self.warp], emit_return)
                b.ret(I64(Status.SUSPENDED))
        self.store_field(self.warp, WARP, "mask", self.as_bits(b.icmp_unsigned("==", pcs, self.broadcast(least))))
        self.store_field(self.warp, WARP, "only_waiting", b.and_(least, I32(WAITING)))
        nowhere = self.function.append_basic_block("nowhere")
        switch = b.switch(b.and_(least, I32(WAITING - 1)), nowhere)
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
        self.here = (I32(index), I32(0))
        self.instruction = block.instructions[0]
        self._use_mask()
        if block.loop:
            self._preempt()
        self._wait_for_lanes(block.instructions[0])
        self._count(block)
        self.out.blocks.append([(i.line, "@" * (i.guard is not None) + i.name) for i in block.instructions])
        last = block.instructions[-1]
        count = len(block.instructions) - (self.ops[last.opcode].place_of(last) is not Place.ANYWHERE)
        self.emit_shared(block.instructions[:count])
        for last in block.instructions[count:]:
            self.here = I32(index), I32(count)
            self.emit(last)
        if not b.block.is_terminated:
            self.leave(index + 1)

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
        self.call_kept(ir.VoidType(), [self.launch, self.mask_bits, I32(self.index), spent], emit_count)

    def _preempt(self) -> None:
        """Loops end a time slice: a thread may be waiting for another warp."""
        spent = self.b.icmp_signed("<", self.load_field(self.launch, LAUNCH, "budget", I64), I64(0))
        with self.b.if_then(spent, likely=False):
            self._send(self.mask_bits, self.index)
            self.b.ret(I64(Status.PREEMPTED))

    def _wait_for_lanes(self, instruction: Instruction) -> None:
        """Where the block begins with a collective instruction, wait until all lanes that it names are here."""
        b = self.b
        lanes = self.ops[instruction.opcode].lanes(instruction)
        alike = self._take_group(lanes) if isinstance(lanes, Register) else I32(-1)
        needed = self.lanes_needed(instruction)
        if needed is None:
            return
        with b.if_then(b.icmp_unsigned("!=", needed, self.mask_bits), likely=False):
            waiting = self.call_kept(I32, [self.warp, I32(self.index + WAITING)], emit_waiting)
            here = b.or_(self.mask_bits, b.and_(waiting, alike))
            with b.if_else(b.icmp_unsigned("==", here, needed)) as (complete, incomplete):
                with complete:
                    self.store_field(self.warp, WARP, "mask", here)
                with incomplete:
                    only_waiting = self.load_field(self.warp, WARP, "only_waiting", I32)
                    with b.if_then(b.icmp_unsigned("!=", only_waiting, I32(0))):
                        self.store_field(self.launch, LAUNCH, "fault_block", I32(self.index))
                        self.note_lanes(needed, here)
                        b.ret(I64(Status.STUCK))
                    self._send(self.mask_bits, self.index + WAITING)
                    b.branch(self.dispatch)
        self.values = {}
        self._use_mask()

    def _take_group(self, masks: Register) -> ir.Value:
        """Lanes whose masks differ run an instruction one group after another. Returns those with the first's mask."""
        b = self.b
        value = self.read(masks, 32)
        alike = self.as_bits(b.icmp_unsigned("==", value, self.broadcast(self.first_lane(value))))
        group = b.and_(self.mask_bits, alike)
        with b.if_then(b.icmp_unsigned("!=", group, self.mask_bits), likely=False):
            self._send(self.mask_bits, self.index)
            self.store_field(self.warp, WARP, "mask", group)
        self._use_mask()
        return alike

    def leave(self, target: int) -> None:
        """End the block: all its lanes go to block ``target``."""
        self.save()
        self._goto(target)

    def branch(self, taken: ir.Value, target: int, otherwise: int) -> None:
        """End the block: lanes in ``taken`` go to ``target``, the block's other lanes to ``otherwise``."""
        self.save()
        places = [I32(number) for number in (self.index, self.pc(target), self.pc(otherwise))]
        arguments = [self.launch, self.warp, self.mask_bits, self.as_bits(taken), *places]
        self._go_on(self.call_kept(I32, arguments, emit_branch), target, otherwise)

    def branch_table(self, index: ir.Value, targets: Sequence[int]) -> None:
        """End the block: each lane goes to the target that its index chooses."""
        self.save()
        self._send(self.mask_bits, self.pc(targets[-1]))
        for number, target in enumerate(targets[:-1]):
            chosen = self.b.icmp_unsigned("==", index, self.splat(number, 32))
            self._send(self.as_bits(self.b.and_(chosen, self.mask_lanes)), self.pc(target))
        self.b.branch(self.dispatch)

    def exit(self) -> None:
        """Active lanes leave the kernel; the block's other lanes go on."""
        self.save()
        if len(self.block.instructions) > 1 and self.index in self.behind_barriers:
            here = self.b.icmp_unsigned("!=", self.as_bits(self.active), I32(0))
            with self.b.if_then(here):
                self.store_field(self.warp, WARP, "exited_after_barrier", I32(1))
        self._send(self.mask_bits, self.pc(self.index + 1))
        self._leave_kernel(self.as_bits(self.active))
        self.b.branch(self.dispatch)

    def stop(self, status: Status, resume: int) -> None:
        """End the block and leave the warp to the scheduler; it will go on at block ``resume``."""
        self.save()
        self._send(self.mask_bits, self.pc(resume))
        self.b.ret(I64(status))

    def suspend(self, gives_up: bool = False, returns: bool = False) -> None:
        """End a block of one instruction: the lanes that the warp's record has as failing wait, the others go on.

        They wait at this instruction, or behind it if it ``returns`` at once and is asked again. Once their time is up
        they let the other lanes go on first; one that ``gives_up`` then goes on too, with what it has written. In a
        launch in reverse it gives up at once: who does not ask again is found.
        """
        self.save()
        b = self.b
        failing = self.load_field(self.warp, WARP, "blocked_lanes", I32)
        with b.if_then(b.icmp_unsigned("==", failing, I32(0))):
            self._goto(self.index + 1)
        self._send(self.mask_bits, self.pc(self.index + 1))
        expired = b.icmp_unsigned("!=", self.load_field(self.warp, WARP, "expired", I32), I32(0))
        with b.if_then(expired):
            self._send(failing, ASIDE + self.index + (gives_up or returns))
            b.branch(self.dispatch)
        if gives_up:
            reverse = b.icmp_unsigned("!=", self.load_field(self.launch, LAUNCH, "reverse", I64), I64(0))
            with b.if_then(reverse):
                b.ret(I64(Status.SUSPENDED))
        if not returns:
            self._send(failing, self.index)
            executions = b.zext(b.icmp_unsigned("==", failing, self.mask_bits), I64)
            arguments = [self.launch, failing, I32(self.index), executions]
            self.call_kept(ir.VoidType(), arguments, emit_uncount)
        b.ret(I64(Status.SUSPENDED))

    def rejoin(self) -> None:
        """End a block that may let go on those of the warp's lanes that stepped aside: they run first again."""
        self.save()
        expired = self.b.icmp_unsigned("!=", self.load_field(self.warp, WARP, "expired", I32), I32(0))
        with self.b.if_then(expired, likely=False):
            self._send(self.mask_bits, self.pc(self.index + 1))
            self.call_kept(ir.VoidType(), [self.warp], emit_return)
            self.b.branch(self.dispatch)
        self._goto(self.index + 1)

    def fault(self, kind: int) -> None:
        """Stop the launch with a complaint about the first active lane."""
        block, position = self.here
        self.store_field(self.launch, LAUNCH, "fault_kind", I32(kind))
        self.store_field(self.launch, LAUNCH, "fault_site", self.b.not_(position))
        self.store_field(self.launch, LAUNCH, "fault_block", block)
        self.store_field(self.launch, LAUNCH, "fault_lane", self.first_active())
        self.store_field(self.launch, LAUNCH, "fault_warp", self.load_field(self.warp, WARP, "index", I32))
        self.b.ret(I64(Status.FAULT))

    def pc(self, block: int) -> int:
        return block if block < len(self.heads) else NOWHERE

    def _goto(self, target: int) -> None:
        arguments = [self.warp, self.mask_bits, I32(self.pc(target))]
        self._go_on(self.call_kept(I32, arguments, emit_goto), target)

    def _go_on(self, chosen: ir.Value, *targets: int) -> None:
        """End the block: go on at that of the ``targets`` which was ``chosen``, else choose the lanes to run."""
        switch = self.b.switch(chosen, self.dispatch)
        for target in set(targets):
            if target < len(self.heads):
                switch.add_case(I32(target), self.heads[target])

    def _leave_kernel(self, lanes: ir.Value) -> None:
        live = self.load_field(self.warp, WARP, "live", I32)
        self.store_field(self.warp, WARP, "live", self.b.and_(live, self.b.not_(lanes)))
        self._send(lanes, NOWHERE)

    def _send(self, lanes: ir.Value, pc: int) -> None:
        """Let ``lanes``, as bits, go on at a block."""
        self.call_kept(ir.VoidType(), [self.warp, lanes, I32(pc)], emit_send)

    def lanes_needed(self, i: Instruction) -> ir.Value | None:
        """The lanes that a collective instruction waits for, as bits; None where it waits for none.

        Of those that its mask names it waits for all that have not left the kernel.
        """
        match self.ops[i.opcode].lanes(i):
            case Lanes.NONE:
                return None
            case Lanes.LIVE:
                return self.load_field(self.warp, WARP, "live", I32)
            case mask:
                return self.b.and_(self.first_lane(self.read(mask, 32)), self.load_field(self.warp, WARP, "live", I32))
