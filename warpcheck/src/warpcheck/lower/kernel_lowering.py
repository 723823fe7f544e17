"""Lower a kernel: from its blocks to the LLVM function that runs one warp until it stops."""

from __future__ import annotations

from llvmlite import ir

from warpcheck.layout import LANES, WAITING, Status
from warpcheck.lower.code_unit import CodeUnit
from warpcheck.lower.compiled_shapes import RowTable, ShapeLookup, emit_uncached
from warpcheck.lower.control_flow import Block, Ops, analyze
from warpcheck.lower.frame import Frame
from warpcheck.lower.instruction_emitter import InstructionEmitter
from warpcheck.lower.lane_builder import I32, I64, POINTER, LaneBuilder
from warpcheck.lower.lane_pcs import emit_count, emit_lanes_at
from warpcheck.lower.load_uses import LoadUses
from warpcheck.lower.memory_layout import MemoryLayout
from warpcheck.lower.register_file import RegisterFile
from warpcheck.lower.register_slots import CARRY, assign_slots
from warpcheck.lower.warp_control import WarpControl
from warpcheck.lowered_kernel import Lowered
from warpcheck.op import Placement
from warpcheck.ptx import Function, Immediate, Instruction, Module, Register
from warpcheck.runtime.records import LAUNCH, WARP
from warpcheck.target import Target

__all__ = ["KernelLowering"]


ALL_LANES = (1 << LANES) - 1
# Products and matrices, and instructions that read the carry.
READS_OTHER_LANES = {"mma", "wmma", "ldmatrix", "stmatrix", "movmatrix", "wgmma", "tcgen05", "addc", "subc", "madc"}


class KernelLowering:
    """Lowers a kernel to ``run(launch, cta, warp) -> Status``.

    Args:
        ops: The instructions by their opcodes.
        target: The architecture, if the PTX names none.
        look_up: Finds shapes that were compiled before.

    Raises:
        Rejected: An instruction that the PTX's target does not have.
    """

    def __init__(
        self, module: Module, kernel: Function, ops: Ops, target: Target, look_up: ShapeLookup = emit_uncached
    ) -> None:
        self._ops = ops
        self.flow = analyze(module, kernel, ops, module.target or target.name)
        loads = LoadUses(self.flow, ops)
        self.flow.registers[CARRY.name] = "pred"
        # Slots begin behind the fields of the warp's record, at a multiple of 64 for aligned vectors.
        slots, self._warp_bytes = assign_slots(self.flow, -(-WARP.itemsize // 64) * 64)
        self._layout = MemoryLayout(module, kernel, self.flow)
        self._unit = CodeUnit(ir.Module(name=kernel.name))
        function = ir.Function(self._unit.module, ir.FunctionType(I64, [POINTER] * 3), "run")
        self._b = LaneBuilder(function.append_basic_block("entry"))
        self._frame = Frame(self._b, tuple(function.args), module.file)
        registers = RegisterFile(self._frame, self.flow.registers, slots)
        self._e = InstructionEmitter(self._frame, self._unit, registers, self._layout, ops)
        self._rows = RowTable(self._e, self.flow, ops, loads, slots, look_up)
        self._control = self._e.control = WarpControl(self._frame, self._unit, registers, self.flow)

    def lower(self) -> Lowered:
        """Lower the kernel.

        Raises:
            Unsupported: An instruction that the machine does not know.
            ValueError: Wrong operands.
        """
        self._b.branch(self._control.dispatch)
        self._control.emit_dispatch()
        for index, block in enumerate(self.flow.blocks):
            self._emit_block(index, block)
        declarations = self._rows.define()
        layout = self._layout
        text = f"{self._unit.module}\n{declarations}"
        lowered = Lowered(text, self._warp_bytes, layout.shared_bytes, layout.local_bytes, layout.shared)
        lowered.sites = self._unit.sites
        lowered.checks = self._unit.checks
        lowered.functions = self._unit.functions
        lowered.symbols = layout.symbols
        lowered.blocks = [
            [(i.line, "@" * (i.guard is not None) + i.name) for i in block.instructions] for block in self.flow.blocks
        ]
        lowered.clears_registers = self._may_read_unwritten_registers()
        lowered.successors = [block.successors for block in self.flow.blocks]
        return lowered

    def _may_read_unwritten_registers(self) -> bool:
        """Return whether a lane may read a register that it, or another lane, has not written.

        Lanes read registers of inactive lanes in products and matrices, and in shuffles unless their mask names all
        lanes, so that an inactive one is a fault.
        """
        if not self.flow.registers.keys().isdisjoint(self.flow.blocks[0].live_in):
            return True
        for block in self.flow.blocks:
            for instruction in block.instructions:
                if instruction.opcode == "shfl":
                    mask = instruction.operands[-1]
                    names_all = isinstance(mask, Immediate) and mask.value & ALL_LANES == ALL_LANES
                    if "sync" not in instruction.modifiers or not names_all:
                        return True
                elif instruction.opcode in READS_OTHER_LANES:
                    return True
        return False

    def _emit_block(self, index: int, block: Block) -> None:
        self._control.begin(index)
        self._e.operands.forget()
        self._frame.instruction = block.instructions[0]
        # A preempted or waiting warp enters its block again, so the block is counted only after both.
        self._use_mask()
        # Only the target of a back edge can keep a warp running without end.
        if block.loop:
            self._preempt(index)
        self._wait_for_lanes(index, block.instructions[0])
        self._count(index, block)
        last = block.instructions[-1]
        # The last instruction may end the block (branches, barriers): its code is part of the kernel's function.
        count = len(block.instructions) - (self._ops[last.opcode].placement_of(last) is not Placement.ANYWHERE)
        self._rows.emit_rows(index, block.instructions[:count])
        for last in block.instructions[count:]:
            self._frame.location = I32(index), I32(count)
            self._e.emit(last)
        if not self._b.block.is_terminated:
            self._control.jump(index + 1)

    def _use_mask(self) -> None:
        self._frame.set_mask(self._b.load_field(self._frame.warp, WARP, "mask", I32))
        self._frame.active = self._frame.mask_lanes

    def _count(self, index: int, block: Block) -> None:
        spent = I64(-LANES * len(block.instructions))  # of the machine's time: absent lanes cost as much
        arguments = [self._frame.launch, self._frame.mask_bits, I32(index), spent]
        self._unit.call_common(self._b, ir.VoidType(), arguments, emit_count)

    def _preempt(self, index: int) -> None:
        """End the slice at a loop when it is used up: a thread may be waiting for another warp."""
        b = self._b
        is_exhausted = b.icmp_signed("<", b.load_field(self._frame.launch, LAUNCH, "budget", I64), I64(0))
        with b.if_then(is_exhausted, likely=False):
            self._control.set_pcs(self._frame.mask_bits, index)
            b.ret(I64(Status.PREEMPTED))

    def _wait_for_lanes(self, index: int, instruction: Instruction) -> None:
        """Wait, at a block that begins with a collective instruction, until all lanes that it names are here."""
        b = self._b
        frame = self._frame
        lanes = self._ops[instruction.opcode].lanes(instruction)
        same_mask = self._select_group(index, lanes) if isinstance(lanes, Register) else I32(-1)
        needed = self._e.lanes_needed(instruction)
        if needed is None:
            return
        with b.if_then(b.icmp_unsigned("!=", needed, frame.mask_bits), likely=False):
            # Lanes that came here earlier have the flag WAITING at this block.
            waiting = self._unit.call_common(b, I32, [frame.warp, I32(index + WAITING)], emit_lanes_at)
            arrived = b.or_(frame.mask_bits, b.and_(waiting, same_mask))
            with b.if_else(b.icmp_unsigned("==", arrived, needed)) as (complete, incomplete):
                with complete:
                    b.store_field(frame.warp, WARP, "mask", arrived)
                with incomplete:
                    # Lanes that wait have the highest program counters, so reaching this in a round in which the
                    # minimum was a waiting lane means that no lane can run any more.
                    only_waiting = b.load_field(frame.warp, WARP, "only_waiting", I32)
                    with b.if_then(b.icmp_unsigned("!=", only_waiting, I32(0))):
                        b.store_field(frame.launch, LAUNCH, "fault_block", I32(index))
                        frame.record_lanes(needed, arrived)
                        b.ret(I64(Status.STUCK))
                    self._control.set_pcs(frame.mask_bits, index + WAITING)
                    b.branch(self._control.dispatch)
        # The mask may have grown by the lanes that were waiting here: values read before are of fewer lanes.
        self._e.operands.forget()
        self._use_mask()

    def _select_group(self, index: int, masks: Register) -> ir.Value:
        """Select the lanes with the first lane's mask: lanes whose masks differ run one group after another."""
        b = self._b
        value = self._e.read(masks, 32)
        same_mask = b.as_bits(b.icmp_unsigned("==", value, b.broadcast(self._frame.first_lane(value))))
        group = b.and_(self._frame.mask_bits, same_mask)
        # The other lanes stay at this block and run next; this group goes on alone.
        with b.if_then(b.icmp_unsigned("!=", group, self._frame.mask_bits), likely=False):
            self._control.set_pcs(self._frame.mask_bits, index)
            b.store_field(self._frame.warp, WARP, "mask", group)
        self._use_mask()
        return same_mask
