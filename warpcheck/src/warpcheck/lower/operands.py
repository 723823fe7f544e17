"""Read and write the operands of instructions as vectors of 32 lanes."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple

from llvmlite import ir

from warpcheck.layout import LANES
from warpcheck.lower.frame import Frame
from warpcheck.lower.lane_builder import I64, POINTER
from warpcheck.lower.memory_layout import MemoryLayout
from warpcheck.lower.register_file import RegisterFile
from warpcheck.lower.special_registers import read_special, shared_address
from warpcheck.ptx import Immediate, Not, Operand, Register, Symbol
from warpcheck.runtime.records import LAUNCH

__all__ = ["Operands", "PassedConstant"]


class PassedConstant(NamedTuple):
    """A constant operand that compiled code gets from its row, by its number among them."""

    number: int


class Operands:
    """The operands of the function that is being emitted.

    Args:
        passed: The constants that the function gets from its row.
    """

    def __init__(
        self, frame: Frame, registers: RegisterFile, layout: MemoryLayout, passed: Sequence[ir.Value] = ()
    ) -> None:
        self._frame = frame
        self.registers = registers
        self.layout = layout
        self.passed = passed
        self._special: dict[str, ir.Value] = {}

    def read(self, operand: Operand | PassedConstant, bits: int) -> ir.Value:
        """Return the lanes of ``operand`` as integers of ``bits`` bits (1 for a predicate)."""
        b = self._frame.b
        match operand:
            case PassedConstant():
                return self.constant(operand, bits)
            case Immediate(value, width):
                return b.splat(_immediate_bits(value, width, bits), bits)
            case Symbol("WARP_SZ"):
                return b.splat(LANES, bits)
            case Symbol(name, offset):
                return b.resize(b.add(self.symbol_address(name), b.splat(offset, 64)), bits)
            case Not(register):
                return b.not_(self.read(register, bits))
            case Register(name):
                return b.resize(self.read_register(name), bits)
        raise self._frame.unsupported()

    def write(self, operand: Operand, value: ir.Value, signed: bool = False) -> None:
        """Set a register, in the lanes where the instruction's guard holds."""
        assert isinstance(operand, Register)
        if operand.name != "_":
            self.registers.write(operand.name, value, signed)

    def constant(self, constant: int | PassedConstant, bits: int) -> ir.Value:
        """Return a constant, or one that the row has, in all lanes."""
        b = self._frame.b
        if isinstance(constant, int):
            return b.splat(constant, bits)
        return b.resize(b.broadcast(self.passed[constant.number]), bits, signed=True)

    def read_register(self, name: str) -> ir.Value:
        """Return the lanes of a register or of a special register."""
        if name in self.registers.kinds:
            return self.registers.read(name)
        # A clock is read again at each use; all other special registers keep their values while a block of code runs.
        if "clock" in name or "timer" in name:
            return self.read_special(name)
        if name not in self._special:
            self._special[name] = self.read_special(name)
        return self._special[name]

    def read_special(self, name: str) -> ir.Value:
        """Return the lanes of a special register."""
        return read_special(self._frame, self.layout, name)

    def symbol_address(self, name: str) -> ir.Value:
        """Return the address of a variable or parameter: an offset in its window, or an address in global memory."""
        b = self._frame.b
        location = self.layout.locate(name)
        if location is None:
            raise self._frame.unsupported(name)
        space, number = location
        if space == "shared":
            return shared_address(self._frame, self.layout, number)
        if space != "global":
            return b.splat(number, 64)
        table = b.inttoptr(b.load_field(self._frame.launch, LAUNCH, "symbols", I64), POINTER)
        return b.broadcast(b.load(b.at(table, 8 * number), typ=I64))

    def forget(self) -> None:
        """Read registers again: another block begins, or the same block with other lanes."""
        self.registers.forget()
        self._special = {}


def _immediate_bits(value: int, width: int, bits: int) -> int:
    """Return the bits of an immediate in an instruction of ``bits`` bits: decimal literals are doubles."""
    # PTX ISA, 4.5.2: a floating-point constant without 0f or 0d is a double, which takes the size of its use.
    if width in (0, bits) or bits not in (16, 32):
        return value
    number = struct.unpack("<d", struct.pack("<Q", value))[0]
    return int.from_bytes(struct.pack("<f" if bits == 32 else "<e", number), "little")
