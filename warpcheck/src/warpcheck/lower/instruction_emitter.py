"""Emit instructions into one function: what the emitters of ``isa`` work with."""

from __future__ import annotations

from collections.abc import Sequence

from llvmlite import ir

from warpcheck.errors import Unsupported
from warpcheck.lower.code_unit import CodeUnit
from warpcheck.lower.control_flow import Ops
from warpcheck.lower.frame import Frame
from warpcheck.lower.lane_builder import I32
from warpcheck.lower.load_uses import LoadUse
from warpcheck.lower.memory_access import MemoryAccess
from warpcheck.lower.memory_layout import MemoryLayout
from warpcheck.lower.operands import Operands, PassedConstant
from warpcheck.lower.register_file import RegisterFile
from warpcheck.lower.warp_control import WarpControl
from warpcheck.op import Lanes
from warpcheck.ptx import Instruction, Operand
from warpcheck.runtime.records import WARP

__all__ = ["InstructionEmitter"]

# Raised by an emitter for an instruction with too few or too many operands, or of a kind that ptxas rejects.
_WRONG_OPERANDS = (AssertionError, AttributeError, IndexError, KeyError, TypeError, ValueError)


class InstructionEmitter:
    """Emits instructions into a function: the kernel's own, or that of a compiled shape.

    Args:
        ops: The instructions by their opcodes.
        passed: The constants that a compiled shape gets from its row.
        row: The slots of the instruction's registers, in the order in which it names them first, in a compiled shape.
        use: How the result of a load is used.
        carried: Whether the instruction before has left a carry.

    Attributes:
        memory: Memory accesses.
        operands: The instruction's operands.
    """

    def __init__(
        self,
        frame: Frame,
        unit: CodeUnit,
        registers: RegisterFile,
        layout: MemoryLayout,
        ops: Ops,
        *,
        passed: Sequence[ir.Value] = (),
        row: ir.Value | None = None,
        use: LoadUse = LoadUse(),  # noqa: B008  # frozen
        carried: bool = False,
    ) -> None:
        self.frame = frame
        self.unit = unit
        self.registers = registers
        self.layout = layout
        self.operands = Operands(frame, registers, layout, passed)
        self.memory = MemoryAccess(frame, unit, self.operands, use)
        self.row = row
        self.carried = carried
        self._ops = ops
        self._control: WarpControl | None = None
        self.b = frame.b
        self.launch = frame.launch
        self.cta = frame.cta
        self.warp = frame.warp

    @property
    def instruction(self) -> Instruction:
        """Return the instruction that is being emitted."""
        return self.frame.instruction

    @property
    def active(self) -> ir.Value:
        """Return the lanes that execute the instruction, as a predicate."""
        return self.frame.active

    @property
    def control(self) -> WarpControl:
        """Return the control flow of the kernel, of which an instruction that may be anywhere has none."""
        assert self._control is not None, "a compiled shape cannot end a basic block"
        return self._control

    @control.setter
    def control(self, control: WarpControl) -> None:
        self._control = control

    def emit(self, instruction: Instruction) -> None:
        """Emit one instruction.

        Raises:
            Unsupported: The machine does not know it.
            ValueError: It has wrong operands.
        """
        frame = self.frame
        frame.instruction = instruction
        frame.active = frame.mask_lanes
        if instruction.guard is not None:
            # The guard narrows the lanes of the group; the group itself stays together (predication, not a branch).
            frame.active = self.b.and_(frame.mask_lanes, self.read(instruction.guard, 1))
        try:
            self._ops[instruction.opcode].emit(self, instruction)
        except _WRONG_OPERANDS as error:
            raise ValueError(f"line {instruction.line}: {instruction.name} does not take these operands") from error

    def read(self, operand: Operand | PassedConstant, bits: int) -> ir.Value:
        """Return the lanes of ``operand`` as integers of ``bits`` bits (1 for a predicate)."""
        return self.operands.read(operand, bits)

    def write(self, operand: Operand, value: ir.Value, signed: bool = False) -> None:
        """Set a register, in the lanes where the instruction's guard holds."""
        self.operands.write(operand, value, signed)

    def call_check(self, function: str, argument: int | ir.Value = 0, constants: tuple[int, ...] = ()) -> None:
        """Call a check with the active lanes; a result other than 0 is a fault."""
        self.unit.call_check(self.frame, function, argument, constants)

    def lanes_needed(self, i: Instruction) -> ir.Value | None:
        """Return the lanes that a collective instruction waits for, as bits; None if it does not wait.

        Of the lanes in its mask, these are all that have not left the kernel.
        """
        match self._ops[i.opcode].lanes(i):
            case Lanes.NONE:
                return None
            case Lanes.LIVE:
                return self.b.load_field(self.warp, WARP, "live", I32)
            case mask:
                # A mask is the same in all lanes that it names, so the first one speaks for all. Lanes that have left
                # the kernel cannot come anymore.
                named = self.frame.first_lane(self.read(mask, 32))
                return self.b.and_(named, self.b.load_field(self.warp, WARP, "live", I32))

    def unsupported(self, name: str = "") -> Unsupported:
        """Return the error that the machine does not know ``name``, or else the instruction."""
        return self.frame.unsupported(name)
