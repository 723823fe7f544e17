"""Load and store registers: SSA values within an instruction, slots of the warp's record between instructions."""

from __future__ import annotations

from collections.abc import Mapping

from llvmlite import ir

from warpcheck.layout import LANES
from warpcheck.lower.frame import Frame
from warpcheck.lower.lane_builder import I8, I32, I64
from warpcheck.ptx import SIZES

__all__ = ["RegisterFile"]


class RegisterFile:
    """The registers of the function that is being emitted.

    Args:
        kinds: The type of each register.
        slots: The offset of each register in the warp's record: a number, or a value that the function has read.
    """

    def __init__(self, frame: Frame, kinds: Mapping[str, str], slots: Mapping[str, int | ir.Value]) -> None:
        self._frame = frame
        self._slots = slots
        self.kinds = kinds
        self._values: dict[str, ir.Value] = {}  # of registers that were read or written
        self._written: set[str] = set()  # those that `save` has to store

    def width(self, name: str) -> int:
        """Return the bits of a register."""
        kind = self.kinds.get(name)
        if kind is None:
            raise self._frame.unsupported(name)
        return 1 if kind == "pred" else 8 * SIZES[kind]

    def read(self, name: str) -> ir.Value:
        """Return the lanes of a register."""
        if name not in self._values:
            self._values[name] = self._load_slot(name)
        return self._values[name]

    def write(self, name: str, value: ir.Value, signed: bool = False) -> None:
        """Set a register until ``save`` stores it."""
        self._values[name] = self._frame.b.resize(value, self.width(name), signed)
        self._written.add(name)

    def save(self) -> None:
        """Store the registers that the instruction has written, in its active lanes."""
        # Sorted, because a set of strings has another order in each process.
        for name in sorted(self._written):
            self._store_slot(name)
        self._written = set()

    def forget(self) -> None:
        """Load registers again: another block begins, or the same block with other lanes."""
        self._values = {}

    def _load_slot(self, name: str) -> ir.Value:
        b = self._frame.b
        pointer = self._slot(name)
        bits = self.width(name)
        if bits == 1:
            return b.as_lanes(b.load(pointer, typ=I32))
        return b.load(pointer, typ=ir.VectorType(ir.IntType(bits), LANES), align=64)

    def _store_slot(self, name: str) -> None:
        """Store a register in the active lanes; the other lanes keep their values."""
        b = self._frame.b
        pointer = self._slot(name)
        value = self._values[name]
        if value.type.element.width == 1:
            value = b.as_bits(value)
            kind = I32
            active = b.as_bits(self._frame.active)
        else:  # subtle: LLVM makes a select into a masked store, for which a load that follows has to wait
            kind = value.type
            active = b.sext(self._frame.active, value.type)
        # old ^ ((old ^ value) & active): the inactive lanes keep their values.
        old = b.load(pointer, typ=kind, align=64)
        b.store(b.xor(old, b.and_(b.xor(old, value), active)), pointer, align=64)

    def _slot(self, name: str) -> ir.Value:
        slot = self._slots[name]
        return self._frame.b.gep(self._frame.warp, [I64(slot) if isinstance(slot, int) else slot], source_etype=I8)
