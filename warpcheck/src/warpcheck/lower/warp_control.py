"""Emit the ends of basic blocks: which lanes go where, and when the warp returns to the scheduler.

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

from warpcheck.layout import ASIDE, NOWHERE, WAITING, Status
from warpcheck.lower import control_flow
from warpcheck.lower.code_unit import CodeUnit
from warpcheck.lower.control_flow import Flow
from warpcheck.lower.frame import Frame
from warpcheck.lower.lane_builder import I32, I64
from warpcheck.lower.lane_pcs import (
    emit_branch,
    emit_end_aside,
    emit_goto,
    emit_set_pcs,
    emit_uncount,
    is_barrier,
    load_pcs,
    suspends,
)
from warpcheck.lower.register_file import RegisterFile
from warpcheck.runtime.records import LAUNCH, WARP

__all__ = ["WarpControl"]


class WarpControl:
    """The control flow of a kernel's own function: a dispatch, and an LLVM block for each basic block.

    Attributes:
        index: The number of the basic block that is being emitted.
        heads: The first LLVM block of each basic block.
    """

    index: int

    def __init__(self, frame: Frame, unit: CodeUnit, registers: RegisterFile, flow: Flow) -> None:
        self._frame = frame
        self._unit = unit
        self._registers = registers
        self.flow = flow
        self._after_barriers = control_flow.reachable(
            flow.blocks, [n for n, block in enumerate(flow.blocks) if is_barrier(block.instructions[0])]
        )
        self._suspends = any(suspends(block.instructions[0]) for block in flow.blocks)
        function = frame.b.function
        self.dispatch = function.append_basic_block("dispatch")
        self.heads = [function.append_basic_block(f"block{index}") for index in range(len(flow.blocks))]

    def emit_dispatch(self) -> None:
        """Emit the choice of the lanes to run: those with the minimum program counter."""
        frame = self._frame
        b = frame.b
        b.position_at_end(self.dispatch)
        pcs = load_pcs(b, frame.warp)
        lowest_pc = b.intrinsic("llvm.vector.reduce.umin.v32i32", I32, pcs)
        # The largest program counter of all is the minimum only if every lane has exited.
        with b.if_then(b.icmp_unsigned("==", lowest_pc, I32(NOWHERE)), likely=False):
            b.ret(I64(Status.EXITED))
        # Only lanes that stepped aside are left: their turn begins again.
        if self._suspends:
            is_aside = b.icmp_unsigned("==", b.and_(lowest_pc, I32(WAITING | ASIDE)), I32(ASIDE))
            with b.if_then(is_aside, likely=False):
                self._unit.call_common(b, ir.VoidType(), [frame.warp], emit_end_aside)
                b.ret(I64(Status.SUSPENDED))
        b.store_field(frame.warp, WARP, "mask", b.as_bits(b.icmp_unsigned("==", pcs, b.broadcast(lowest_pc))))
        b.store_field(frame.warp, WARP, "only_waiting", b.and_(lowest_pc, I32(WAITING)))
        nowhere = b.function.append_basic_block("nowhere")
        # Lanes that wait go on in the block at which they wait: the flag is no part of its number.
        switch = b.switch(b.and_(lowest_pc, I32(WAITING - 1)), nowhere)
        for index, head in enumerate(self.heads):
            switch.add_case(I32(index), head)
        b.position_at_end(nowhere)
        b.unreachable()

    def begin(self, index: int) -> None:
        """Begin a basic block."""
        self.index = index
        self._frame.b.position_at_end(self.heads[index])
        self._frame.location = (I32(index), I32(0))

    def jump(self, target: int) -> None:
        """End the block: all its lanes go to block ``target``."""
        self._registers.save()
        self._goto(target)

    def branch(self, taken: ir.Value, target: int, otherwise: int) -> None:
        """End the block: lanes in ``taken`` go to ``target``, the block's other lanes to ``otherwise``."""
        self._registers.save()
        frame = self._frame
        places = [I32(number) for number in (self.index, self._pc(target), self._pc(otherwise))]
        arguments = [frame.launch, frame.warp, frame.mask_bits, frame.b.as_bits(taken), *places]
        self._branch_to(self._unit.call_common(frame.b, I32, arguments, emit_branch), target, otherwise)

    def branch_table(self, index: ir.Value, targets: Sequence[int]) -> None:
        """End the block: each lane goes to the target that its index chooses."""
        self._registers.save()
        b = self._frame.b
        # An index outside of the table is undefined (PTX ISA, "brx.idx"): here such lanes take the last target.
        self.set_pcs(self._frame.mask_bits, self._pc(targets[-1]))
        for number, target in enumerate(targets[:-1]):
            is_chosen = b.icmp_unsigned("==", index, b.splat(number, 32))
            self.set_pcs(b.as_bits(b.and_(is_chosen, self._frame.mask_lanes)), self._pc(target))
        b.branch(self.dispatch)

    def exit(self) -> None:
        """Let the active lanes leave the kernel; the block's other lanes go on."""
        self._registers.save()
        frame = self._frame
        b = frame.b
        # Where other warps wait at a barrier, exiting after an earlier barrier is a fault, before the first one only a
        # warning; see runtime.barrier_divergence.
        if len(self.flow.blocks[self.index].instructions) > 1 and self.index in self._after_barriers:
            any_active = b.icmp_unsigned("!=", b.as_bits(frame.active), I32(0))
            with b.if_then(any_active):
                b.store_field(frame.warp, WARP, "exited_after_barrier", I32(1))
        self.set_pcs(frame.mask_bits, self._pc(self.index + 1))
        lanes = b.as_bits(frame.active)
        live = b.load_field(frame.warp, WARP, "live", I32)
        b.store_field(frame.warp, WARP, "live", b.and_(live, b.not_(lanes)))
        # A lane that has exited is not waited for (Lanes.LIVE, lanes_needed).
        self.set_pcs(lanes, NOWHERE)
        b.branch(self.dispatch)

    def stop(self, status: Status, resume: int) -> None:
        """End the block and return to the scheduler; the warp will go on at block ``resume``."""
        self._registers.save()
        self.set_pcs(self._frame.mask_bits, self._pc(resume))
        self._frame.b.ret(I64(status))

    def suspend(self, gives_up: bool = False, returns: bool = False) -> None:
        """End a block of one instruction: the warp's ``blocked_lanes`` wait, the other lanes go on.

        Once their wait times out, the blocked lanes let the other lanes go on first.

        Args:
            gives_up: Whether a lane whose wait timed out goes on, with the result that it has written (try_wait). In a
                launch in another order it gives up at once, which finds kernels that do not test the result.
            returns: Whether the instruction never waits (test_wait): its lanes are suspended after it.
        """
        self._registers.save()
        frame = self._frame
        b = frame.b
        blocked = b.load_field(frame.warp, WARP, "blocked_lanes", I32)
        with b.if_then(b.icmp_unsigned("==", blocked, I32(0))):
            self._goto(self.index + 1)
        self.set_pcs(frame.mask_bits, self._pc(self.index + 1))
        expired = b.icmp_unsigned("!=", b.load_field(frame.warp, WARP, "expired", I32), I32(0))
        with b.if_then(expired):
            # The block has one instruction: the next block is behind it, and this one repeats it.
            self.set_pcs(blocked, ASIDE + self.index + (gives_up or returns))
            b.branch(self.dispatch)
        if gives_up:
            reverse = b.icmp_unsigned("!=", b.load_field(frame.launch, LAUNCH, "reverse", I64), I64(0))
            with b.if_then(reverse):
                b.ret(I64(Status.SUSPENDED))
        if not returns:
            self.set_pcs(blocked, self.index)
            # A wait counts once, when it succeeds: the count of the lanes that will repeat it is undone, and that of
            # the instruction if no lane went on.
            executions = b.zext(b.icmp_unsigned("==", blocked, frame.mask_bits), I64)
            arguments = [frame.launch, blocked, I32(self.index), executions]
            self._unit.call_common(b, ir.VoidType(), arguments, emit_uncount)
        b.ret(I64(Status.SUSPENDED))

    def rejoin(self) -> None:
        """End a block that may release lanes that stepped aside: they run first again."""
        self._registers.save()
        frame = self._frame
        b = frame.b
        expired = b.icmp_unsigned("!=", b.load_field(frame.warp, WARP, "expired", I32), I32(0))
        with b.if_then(expired, likely=False):
            self.set_pcs(frame.mask_bits, self._pc(self.index + 1))
            self._unit.call_common(b, ir.VoidType(), [frame.warp], emit_end_aside)
            b.branch(self.dispatch)
        self._goto(self.index + 1)

    def set_pcs(self, lanes: ir.Value, pc: int) -> None:
        """Set the program counters of ``lanes``, given as bits."""
        frame = self._frame
        self._unit.call_common(frame.b, ir.VoidType(), [frame.warp, lanes, I32(pc)], emit_set_pcs)

    def _pc(self, block: int) -> int:
        return block if block < len(self.heads) else NOWHERE

    def _goto(self, target: int) -> None:
        frame = self._frame
        arguments = [frame.warp, frame.mask_bits, I32(self._pc(target))]
        self._branch_to(self._unit.call_common(frame.b, I32, arguments, emit_goto), target)

    def _branch_to(self, next_block: ir.Value, *targets: int) -> None:
        """End the block: go to the one of ``targets`` that was chosen, or else to the dispatch."""
        switch = self._frame.b.switch(next_block, self.dispatch)
        for target in set(targets):
            if target < len(self.heads):
                switch.add_case(I32(target), self.heads[target])
