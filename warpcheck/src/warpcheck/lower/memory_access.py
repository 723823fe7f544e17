"""Emit memory accesses of 32 lanes: addresses, and their checks and counts."""

from __future__ import annotations

from functools import reduce

from llvmlite import ir

from warpcheck.layout import LANES, Access, Space
from warpcheck.lower.code_unit import CodeUnit
from warpcheck.lower.frame import Frame
from warpcheck.lower.lane_builder import I32, I64
from warpcheck.lower.load_uses import LoadUse
from warpcheck.lower.operands import Operands
from warpcheck.lowered_kernel import AccessSite
from warpcheck.ptx import Address, Group, Immediate, Operand, Register, Symbol
from warpcheck.runtime.access_history import BLOCK_STRONG, STRONG, UNORDERED, VOLATILE
from warpcheck.runtime.memory import MemoryOperation
from warpcheck.runtime.records import CTA, LAUNCH, WARP, field_offset

__all__ = ["WINDOWS", "MemoryAccess"]

# Spaces whose addresses are offsets in a window.
WINDOWS = (Space.PARAM, Space.SHARED, Space.LOCAL, Space.CLUSTER)


class MemoryAccess:
    """The memory accesses of the function that is being emitted.

    Args:
        use: How the result of the load that is being emitted is used.
    """

    def __init__(self, frame: Frame, unit: CodeUnit, operands: Operands, use: LoadUse) -> None:
        self._frame = frame
        self._unit = unit
        self._operands = operands
        self.use = use

    def addresses(self, operand: Operand, space: Space) -> ir.Value:
        """Return the address of each lane, as an address of this process."""
        assert isinstance(operand, Address)
        b = self._frame.b
        operands = self._operands
        base = operand.base
        # In the width of the register: an address of 32 bits wraps around.
        bits = operands.registers.width(base.name) if isinstance(base, Register) else 64
        value = operands.symbol_address(base.name) if isinstance(base, Symbol) else operands.read(base, bits)
        if operand.offset:
            value = b.add(value, operands.constant(operand.offset, bits))
        return self.in_process(b.resize(value, 64), space)

    def in_process(self, value: ir.Value, space: Space) -> ir.Value:
        """Turn an address in a window into a generic one, which is an address of this process."""
        return self._frame.b.add(value, self.window(space)) if space in WINDOWS else value

    def window(self, space: Space) -> ir.Value:
        """Return where the parameters, the shared window, or each lane's local window begin."""
        frame = self._frame
        b = frame.b
        if space == Space.PARAM:
            return b.broadcast(b.load_field(frame.launch, LAUNCH, "params", I64))
        if space in (Space.SHARED, Space.CLUSTER):
            field = "window" if self._operands.layout.in_cluster else "shared"
            return b.broadcast(b.load_field(frame.cta, CTA, field, I64))
        # Local memory is one range for the block, of local_bytes for each thread; warps have consecutive threads.
        base = b.broadcast(b.load_field(frame.cta, CTA, "local", I64))
        first = b.mul(b.load_field(frame.warp, WARP, "index", I32), I32(LANES))
        lane = b.add(b.broadcast(first), self._operands.read_special("%laneid"))
        size = b.broadcast(b.load_field(frame.launch, LAUNCH, "local_bytes", I64))
        return b.add(base, b.mul(b.resize(lane, 64), size))

    def check(
        self,
        addresses: ir.Value,
        space: Space,
        access: Access,
        nbytes: int,
        parts: int = 1,
        *,
        lane_bytes: ir.Value | None = None,
        half: bool = False,
        unordered: bool = False,
    ) -> ir.Value:
        """Emit the check and count of an access; a fault leaves the kernel. Return the number of its site.

        Args:
            nbytes: Bytes of a lane.
            parts: Elements of a vector access.
            lane_bytes: The bytes of each lane, if they are not all of ``nbytes``.
            half: Whether it is enough that one half of the word is allowed; see ``runtime.memory.MemoryOperation``.
            unordered: Whether it accesses an mbarrier object, which orders by its own rules.
        """
        if lane_bytes is not None:
            self._frame.store_row(0, self._frame.b.resize(lane_bytes, 64))
        strong = UNORDERED if unordered else self._strength(space, access)
        site = self._site(space, access, nbytes, parts, strong)
        operation = MemoryOperation(
            named=space,
            kind=access,
            size=nbytes,
            parts=parts,
            ordering=strong,
            partial=lane_bytes is not None,
            drops=False,
            half=half,
            spins=access == Access.ATOMIC and self.use.spins,
            overwrites=access == Access.ATOMIC and self.use.overwrites,
        )
        return self._check(addresses, site, operation)

    def check_load(self, addresses: ir.Value, space: Space, nbytes: int, parts: int) -> None:
        """Emit the check of a load, which depends on how its result is used."""
        using_lanes = self._lanes_using_load()
        if using_lanes is not None:
            self._frame.b.store_field(self._frame.warp, WARP, "lanes_using_load", self._frame.b.as_bits(using_lanes))
        # A volatile load that polls is strong.
        strong = STRONG if self.use.polls else self._strength(space, Access.LOAD)
        site = self._site(space, Access.LOAD, nbytes, parts, strong)
        operation = MemoryOperation(
            named=space,
            kind=Access.LOAD,
            size=nbytes,
            parts=parts,
            ordering=strong,
            partial=False,
            drops=using_lanes is not None,
            half=self.use.half and nbytes // parts == 4,
            spins=self.use.spins,
            overwrites=False,
        )
        self._check(addresses, site, operation)

    def store_addresses(self, addresses: ir.Value) -> None:
        """Store the addresses of the lanes for a check."""
        b = self._frame.b
        b.store(addresses, b.at(self._frame.warp, field_offset(WARP, "addresses")), align=64)

    def gather(self, addresses: ir.Value, bits: int) -> ir.Value:
        """Load ``bits`` bits in each active lane."""
        return self._frame.b.gather(addresses, bits, self._frame.active)

    def scatter(self, addresses: ir.Value, value: ir.Value) -> None:
        """Store the active lanes of ``value``."""
        self._frame.b.scatter(addresses, value, self._frame.active)

    def _site(self, space: Space, access: Access, nbytes: int, parts: int, strong: int) -> AccessSite:
        i = self._frame.instruction
        return AccessSite(space, access, nbytes, parts, strong, i.line, i.name, i.ptx_line)

    def _check(self, addresses: ir.Value, site: AccessSite, operation: MemoryOperation) -> ir.Value:
        self.store_addresses(addresses)
        number = self._unit.add_site(self._frame, site)
        self._unit.call_check(self._frame, "access", number, operation)
        return number

    def _strength(self, space: Space, access: Access) -> int:
        modifiers = self._frame.instruction.modifiers
        is_ordered = not {"relaxed", "acquire", "release", "acq_rel"}.isdisjoint(modifiers)
        # Only its own block reaches shared memory without a cluster. A generic address may be a global one.
        if "cta" in modifiers and space in (Space.GLOBAL, Space.GENERIC) and (is_ordered or access == Access.ATOMIC):
            return BLOCK_STRONG
        if is_ordered:
            return STRONG
        # PTX ISA, "Operation Types", calls volatile operations strong, too. Here they are told apart, because they
        # order nothing (docs/limits.md, "Coarser than the PTX memory model").
        return VOLATILE if "volatile" in modifiers else 0

    def _lanes_using_load(self) -> ir.Value | None:
        """Return the lanes that use the result of this load; None for all of them."""
        if self.use.using_lanes is None:
            return None
        assert isinstance(self.use.using_lanes, Group)
        b = self._frame.b
        return reduce(b.or_, map(self._lanes_of_term, self.use.using_lanes.items), b.splat(0, 1))

    def _lanes_of_term(self, term: Operand) -> ir.Value:
        assert isinstance(term, Group)
        return reduce(self._frame.b.and_, map(self._lanes_of_literal, term.items))

    def _lanes_of_literal(self, triple: Operand) -> ir.Value:
        assert isinstance(triple, Group)
        predicate, spread, constant = triple.items
        assert isinstance(spread, Immediate)
        assert isinstance(constant, Immediate)
        b = self._frame.b
        lanes = self._operands.read(predicate, 1)
        # A lane that is elsewhere may use what it is sent: it may have yet to compute its predicate. A constant is
        # computed for all lanes before anything else.
        if spread.value and not constant.value:
            live = b.load_field(self._frame.warp, WARP, "live", I32)
            lanes = b.as_lanes(b.or_(b.as_bits(lanes), b.and_(live, b.not_(self._frame.mask_bits))))
        # Adding the partners for one bit after another adds those whose numbers differ in any of the bits.
        for bit in (1, 2, 4, 8, 16):
            if spread.value & bit:
                partners = ir.Constant(ir.VectorType(I32, LANES), [lane ^ bit for lane in range(LANES)])
                lanes = b.or_(lanes, b.shuffle_vector(lanes, ir.Constant(lanes.type, ir.Undefined), partners))
        return lanes
