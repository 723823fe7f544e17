"""Emit memory accesses of 32 lanes: addresses, checks, gathers and scatters."""

from __future__ import annotations

from llvmlite import ir

from warpcheck.layout import LANES, Access, Space, Status
from warpcheck.lower.registers import Registers
from warpcheck.lower.vectors import I1, I32, I64, POINTER
from warpcheck.lowered_kernel import AccessSite, Check
from warpcheck.ptx import Address, Operand, Register, Symbol
from warpcheck.runtime.access_history import STRONG, UNORDERED, VOLATILE
from warpcheck.runtime.records import CTA, LAUNCH, WARP, field_offset

__all__ = ["WINDOWS", "Emitter"]

WINDOWS = (Space.PARAM, Space.SHARED, Space.LOCAL, Space.CLUSTER)
"""Spaces whose addresses are offsets in a window."""


class Emitter(Registers):
    """Emits instructions. ``first_site`` is the number of the first access of the code that is emitted."""

    first_site: ir.Value = I64(0)

    def first_active(self) -> ir.Value:
        """Return the lowest active lane."""
        return self.intrinsic("llvm.cttz.i32", I32, self.as_bits(self.active), I1(0))

    def first_lane(self, value: ir.Value) -> ir.Value:
        """Return the value in the lowest active lane."""
        return self.b.extract_element(value, self.first_active())

    def record_lanes(self, needed: ir.Value, here: ir.Value) -> None:
        """Record, for a fault of a collective instruction, the lanes it waits for and those that execute it."""
        self.store_field(self.launch, LAUNCH, "lanes_needed", needed)
        self.store_field(self.launch, LAUNCH, "lanes_here", here)

    def store_row(self, row: int, value: ir.Value) -> None:
        """Store lanes of 32 bits, or of 64 (two rows), as operands of a warp-level function."""
        offset = field_offset(WARP, "operands") + 4 * LANES * row
        self.b.store(value, self.at(self.warp, offset), align=4)

    def addresses(self, operand: Operand, space: Space) -> ir.Value:
        """Return the address of each lane, as an address of this process."""
        assert isinstance(operand, Address)
        base = operand.base
        bits = self.width(base.name) if isinstance(base, Register) else 64  # an address of 32 bits wraps around
        value = self._symbol(base.name) if isinstance(base, Symbol) else self.read(base, bits)
        # In the width of the register: a 32-bit address wraps around.
        if operand.offset:
            value = self.b.add(value, self._constant(operand.offset, bits))
        return self.in_process(self.resize(value, 64), space)

    def in_process(self, value: ir.Value, space: Space) -> ir.Value:
        """Turn an address in a window into a generic one, which is an address of this process."""
        return self.b.add(value, self.window(space)) if space in WINDOWS else value

    def window(self, space: Space) -> ir.Value:
        """Return where the parameters, the shared window, or each lane's local window begin."""
        if space == Space.PARAM:
            return self.broadcast(self.load_field(self.launch, LAUNCH, "params", I64))
        if space in (Space.SHARED, Space.CLUSTER):
            field = "window" if self.in_cluster else "shared"
            return self.broadcast(self.load_field(self.cta, CTA, field, I64))
        # Local memory is one range for the block, of local_bytes for each thread; warps have consecutive threads.
        base = self.broadcast(self.load_field(self.cta, CTA, "local", I64))
        first = self.b.mul(self.load_field(self.warp, WARP, "index", I32), I32(LANES))
        lane = self.b.add(self.broadcast(first), self.read_special("%laneid"))
        size = self.broadcast(self.load_field(self.launch, LAUNCH, "local_bytes", I64))
        return self.b.add(base, self.b.mul(self.resize(lane, 64), size))

    def check(
        self,
        addresses: ir.Value,
        space: Space,
        access: Access,
        nbytes: int,
        parts: int = 1,
        lane_bytes: ir.Value | None = None,
        using_lanes: ir.Value | None = None,
        half: bool = False,
        polls: bool = False,
        spins: bool = False,
        unordered: bool = False,
    ) -> ir.Value:
        """Emit the check and count of an access; a fault leaves the kernel. Return the number of its site.

        Args:
            nbytes: Bytes of a lane.
            parts: Elements of a vector access.
            lane_bytes: The bytes of each lane, if they are not all of ``nbytes``.
            using_lanes: The lanes that use what they load, if not all do.
            half: Whether it is enough that one half of the word is allowed; see ``runtime.memory.access``.
            polls: Whether a volatile load polls in a loop, and so is strong.
            spins: Whether its repetitions in a polling loop are not counted.
            unordered: Whether it accesses an mbarrier object, which orders by its own rules.
        """
        if lane_bytes is not None:
            self.store_row(0, self.resize(lane_bytes, 64))
        if using_lanes is not None:
            self.store_field(self.warp, WARP, "lanes_using_load", self.as_bits(using_lanes))
        self.store_addresses(addresses)
        strong = UNORDERED if unordered else self._strength(polls)
        i = self.instruction
        site = AccessSite(space, access, nbytes, parts, strong, i.line, i.name, i.ptx_line)
        # A compiled shape numbers its sites from 0; the row that calls it has the number of the first one.
        number = self.b.add(self.first_site, I64(len(self.out.sites)))
        self.out.sites.append(site)
        constants = space, access, nbytes, parts, strong, lane_bytes is not None, using_lanes is not None, half, spins
        self.call_check("access", number, constants)
        return number

    def store_addresses(self, addresses: ir.Value) -> None:
        """Store the addresses of the lanes for a check."""
        self.b.store(addresses, self.at(self.warp, field_offset(WARP, "addresses")), align=64)

    def _strength(self, polls: bool) -> int:
        modifiers = self.instruction.modifiers
        if polls or not {"relaxed", "acquire", "release", "acq_rel"}.isdisjoint(modifiers):
            return STRONG
        # PTX ISA, "Operation Types", calls volatile operations strong, too. Here they are told apart, because they
        # order nothing (docs/ptx-machine.md, "Races").
        return VOLATILE if "volatile" in modifiers else 0

    def call_check(self, function: str, argument: int | ir.Value = 0, constants: tuple[int, ...] = ()) -> None:
        """Call a check with the active lanes; a result other than 0 is a fault."""
        check = Check(function, tuple(map(int, constants)))
        self.out.checks.add(check)
        # The check's own signature is of integers; its last parameters are compiled into it.
        records = [self.b.ptrtoint(pointer, I64) for pointer in (self.launch, self.cta, self.warp)]
        mask = self.b.zext(self.as_bits(self.active), I64)
        argument_value = I64(argument) if isinstance(argument, int) else argument
        failed = self.intrinsic(check.symbol, I64, *records, argument_value, mask)
        with self.b.if_then(self.b.icmp_unsigned("!=", failed, I64(0)), likely=False):
            self.b.ret(I64(Status.FAULT))

    def gather(self, addresses: ir.Value, bits: int) -> ir.Value:
        """Load ``bits`` bits in each active lane."""
        vector = ir.VectorType(ir.IntType(bits), LANES)
        return self.call_local(f"gather{bits}", vector, [addresses, self.active], self._emit_gather)

    def scatter(self, addresses: ir.Value, value: ir.Value) -> None:
        """Store the active lanes of ``value``."""
        bits = value.type.element.width
        self.call_local(f"scatter{bits}", ir.VoidType(), [addresses, self.active, value], self._emit_scatter)

    def _emit_gather(self, addresses: ir.Value, active: ir.Value) -> ir.Value:
        # CPUs gather elements of 32 and 64 bits: smaller ones are loaded lane after lane.
        vector = self.function_result
        bits = vector.element.width
        if bits >= 32:
            pointers = self.b.inttoptr(addresses, ir.VectorType(POINTER, LANES))
            name = f"llvm.masked.gather.v32i{bits}.v32p0"
            # The operand after the pointers is their alignment. Inactive lanes, whose addresses may be invalid, are not
            # touched and get the last operand.
            return self.intrinsic(name, vector, pointers, I32(bits // 8), active, self.splat(0, bits))
        buffer = self.alloca(vector)
        self.b.store(self.splat(0, bits), buffer)
        with self.each_lane(active) as lane:
            pointer = self.b.inttoptr(self.b.extract_element(addresses, lane), POINTER)
            element = self.b.load(pointer, typ=vector.element)
            self.b.store(self.b.insert_element(self.b.load(buffer, typ=vector), element, lane), buffer)
        return self.b.load(buffer, typ=vector)

    def _emit_scatter(self, addresses: ir.Value, active: ir.Value, value: ir.Value) -> None:
        bits = value.type.element.width
        if bits >= 32:
            pointers = self.b.inttoptr(addresses, ir.VectorType(POINTER, LANES))
            name = f"llvm.masked.scatter.v32i{bits}.v32p0"
            self.intrinsic(name, ir.VoidType(), value, pointers, I32(bits // 8), active)
            return
        # Lane after lane in ascending order, as llvm.masked.scatter stores, so the highest lane wins at a common
        # address.
        with self.each_lane(active) as lane:
            pointer = self.b.inttoptr(self.b.extract_element(addresses, lane), POINTER)
            self.b.store(self.b.extract_element(value, lane), pointer)
