"""Describe the function that is being emitted: its arguments, and the instruction and the lanes of the moment."""

from __future__ import annotations

from llvmlite import ir

from warpcheck.errors import Unsupported
from warpcheck.layout import LANES, Status
from warpcheck.lower.lane_builder import I1, I32, I64, LaneBuilder
from warpcheck.ptx import Instruction
from warpcheck.runtime.records import LAUNCH, WARP, field_offset

__all__ = ["Frame"]


class Frame:
    """The function that is being emitted: the kernel's ``run(launch, cta, warp)``, or a shape that it calls.

    Args:
        b: Builds the function.
        records: The addresses of the three records.
        file: The source file that messages name.

    Attributes:
        instruction: The instruction that is being emitted.
        location: The number of its block, and its number in the block.
        mask_bits: The lanes of the block, as bits.
        mask_lanes: The same as a predicate.
        active: Those of them for which the instruction's guard holds.
    """

    instruction: Instruction
    location: tuple[ir.Value, ir.Value]
    mask_bits: ir.Value
    mask_lanes: ir.Value
    active: ir.Value

    def __init__(self, b: LaneBuilder, records: tuple[ir.Value, ir.Value, ir.Value], file: str) -> None:
        self.b = b
        self.launch, self.cta, self.warp = records
        self.file = file
        # The three records do not overlap: LLVM may keep a field of one in a register while another is stored to.
        for record in records:
            record.add_attribute("noalias")

    def set_mask(self, bits: ir.Value) -> None:
        """Set the lanes of the block."""
        self.mask_bits = bits
        self.mask_lanes = self.b.as_lanes(bits)

    def first_active(self) -> ir.Value:
        """Return the lowest active lane."""
        return self.b.intrinsic("llvm.cttz.i32", I32, self.b.as_bits(self.active), I1(0))

    def first_lane(self, value: ir.Value) -> ir.Value:
        """Return the value in the lowest active lane."""
        return self.b.extract_element(value, self.first_active())

    def store_row(self, row: int, value: ir.Value) -> None:
        """Store lanes of 32 bits, or of 64 (two rows), as operands of a warp-level function."""
        offset = field_offset(WARP, "operands") + 4 * LANES * row
        self.b.store(value, self.b.at(self.warp, offset), align=4)

    def record_lanes(self, needed: ir.Value, here: ir.Value) -> None:
        """Record, for a fault of a collective instruction, the lanes it waits for and those that execute it."""
        self.b.store_field(self.launch, LAUNCH, "lanes_needed", needed)
        self.b.store_field(self.launch, LAUNCH, "lanes_here", here)

    def fault(self, kind: int) -> None:
        """Stop the launch with a fault of the first active lane."""
        b = self.b
        block, position = self.location
        b.store_field(self.launch, LAUNCH, "fault_kind", I32(kind))
        # Below 0 the field is no access site but an instruction in fault_block; see records.
        b.store_field(self.launch, LAUNCH, "fault_site", b.not_(position))
        b.store_field(self.launch, LAUNCH, "fault_block", block)
        b.store_field(self.launch, LAUNCH, "fault_lane", self.first_active())
        b.store_field(self.launch, LAUNCH, "fault_warp", b.load_field(self.warp, WARP, "index", I32))
        b.ret(I64(Status.FAULT))

    def unsupported(self, name: str = "") -> Unsupported:
        """Return the error that the machine does not know ``name``, or else the instruction."""
        return Unsupported(name or self.instruction.name, self.file, self.instruction.line)
