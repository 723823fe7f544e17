"""Build LLVM IR for 32 lanes: vectors, masks, fields of records, loops over lanes, gathers and scatters."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
from llvmlite import ir

from warpcheck.layout import LANES
from warpcheck.lower.constants import splat
from warpcheck.runtime.records import field_offset

__all__ = ["I1", "I8", "I16", "I32", "I64", "POINTER", "LaneBuilder"]

I1, I8, I16, I32, I64 = (ir.IntType(bits) for bits in (1, 8, 16, 32, 64))
POINTER = ir.PointerType()
FIRST = ir.Constant(ir.VectorType(I32, LANES), [0] * LANES)  # as a shuffle: lane 0 everywhere


class LaneBuilder(ir.IRBuilder):  # type: ignore[misc]  # llvmlite has no types
    """LLVM's IR builder, with what vectors of 32 lanes need. It builds one function of ``module``."""

    def splat(self, value: int, bits: int, lanes: int = LANES) -> ir.Constant:
        return splat(ir.IntType(bits)(value & (1 << bits) - 1), lanes)

    def broadcast(self, scalar: ir.Value) -> ir.Value:
        """Return a vector with a scalar in all lanes."""
        # LLVM's idiom for a splat: insert into lane 0, then shuffle it to all lanes.
        vector = ir.VectorType(scalar.type, LANES)
        first = self.insert_element(ir.Constant(vector, ir.Undefined), scalar, I32(0))
        return self.shuffle_vector(first, ir.Constant(vector, ir.Undefined), FIRST)

    def resize(self, value: ir.Value, bits: int, signed: bool = False) -> ir.Value:
        """Truncate or extend the lanes of an integer vector."""
        width = value.type.element.width
        target = ir.VectorType(ir.IntType(bits), value.type.count)
        if width == bits:
            return value
        if width > bits:
            return self.trunc(value, target)
        return self.sext(value, target) if signed else self.zext(value, target)

    def intrinsic(self, name: str, result: ir.Type, *arguments: ir.Value) -> ir.Value:
        """Call an LLVM intrinsic or library function by its full name."""
        function = self.module.globals.get(name)
        if function is None:
            function = ir.Function(self.module, ir.FunctionType(result, [a.type for a in arguments]), name)
        return self.call(function, arguments)

    def as_bits(self, lanes: ir.Value) -> ir.Value:
        """Return a predicate of 32 lanes as one 32-bit word."""
        # On a little-endian CPU, LLVM's <32 x i1> has lane 0 in bit 0.
        return self.bitcast(lanes, I32)

    def as_lanes(self, bits: ir.Value) -> ir.Value:
        return self.bitcast(bits, ir.VectorType(I1, LANES))

    def at(self, base: ir.Value, offset: int) -> ir.Value:
        return self.gep(base, [I64(offset)], source_etype=I8)

    def load_field(self, base: ir.Value, record: np.dtype[np.void], name: str, kind: ir.Type) -> ir.Value:
        return self.load(self.at(base, field_offset(record, name)), typ=kind)

    def store_field(self, base: ir.Value, record: np.dtype[np.void], name: str, value: ir.Value) -> None:
        self.store(value, self.at(base, field_offset(record, name)))

    def alloca_in_entry(self, kind: ir.Type) -> ir.Value:
        """Allocate stack space in the entry block: an alloca in a loop would fill the stack."""
        with self.goto_entry_block():
            return self.alloca(kind)

    def call_local(
        self, name: str, result: ir.Type, arguments: list[ir.Value], emit: Callable[..., ir.Value | None]
    ) -> ir.Value:
        """Call an internal function of this module, which ``emit`` fills at its first call.

        Args:
            emit: Gets a builder of the function and the function's arguments, and returns its result.
        """
        function = self.module.globals.get(name)
        if function is None:
            function = ir.Function(self.module, ir.FunctionType(result, [value.type for value in arguments]), name)
            function.linkage = "internal"
            function.attributes.add("noinline")
            self.fill(function, emit)
        return self.call(function, arguments)

    @classmethod
    def fill(cls, function: ir.Function, emit: Callable[..., ir.Value | None], entry: str = "") -> None:
        """Define a function by what ``emit`` builds from its arguments, and return its result."""
        builder = cls(function.append_basic_block(entry))
        value = emit(builder, *function.args)
        if value is None:
            builder.ret_void()
        else:
            builder.ret(value)

    @contextmanager
    def each_lane(self, active: ir.Value) -> Iterator[ir.Value]:
        """Emit a loop over the lanes in ``active``, in ascending order; yield the lane's number."""
        head = self.append_basic_block("lanes")
        body = self.append_basic_block("lane")
        after = self.append_basic_block("done")
        start = self.block
        bits = self.as_bits(active)
        self.branch(head)
        self.position_at_end(head)
        remaining = self.phi(I32)
        remaining.add_incoming(bits, start)
        self.cbranch(self.icmp_unsigned("==", remaining, I32(0)), after, body)
        self.position_at_end(body)
        # I1(1): the result is undefined for 0, which does not get here.
        yield self.intrinsic("llvm.cttz.i32", I32, remaining, I1(1))
        # n & (n - 1) clears the lowest bit. The edge comes from self.block, because the body may have added blocks.
        remaining.add_incoming(self.and_(remaining, self.sub(remaining, I32(1))), self.block)
        self.branch(head)
        self.position_at_end(after)

    def gather(self, addresses: ir.Value, bits: int, active: ir.Value) -> ir.Value:
        """Load ``bits`` bits in each active lane."""
        vector = ir.VectorType(ir.IntType(bits), LANES)
        return self.call_local(f"gather{bits}", vector, [addresses, active], _emit_gather)

    def scatter(self, addresses: ir.Value, value: ir.Value, active: ir.Value) -> None:
        """Store the active lanes of ``value``."""
        bits = value.type.element.width
        self.call_local(f"scatter{bits}", ir.VoidType(), [addresses, active, value], _emit_scatter)


def _emit_gather(b: LaneBuilder, addresses: ir.Value, active: ir.Value) -> ir.Value:
    # CPUs gather elements of 32 and 64 bits: smaller ones are loaded lane after lane.
    vector = b.function.function_type.return_type
    bits = vector.element.width
    if bits >= 32:
        pointers = b.inttoptr(addresses, ir.VectorType(POINTER, LANES))
        name = f"llvm.masked.gather.v32i{bits}.v32p0"
        # The operand after the pointers is their alignment. Inactive lanes, whose addresses may be invalid, are not
        # touched and get the last operand.
        return b.intrinsic(name, vector, pointers, I32(bits // 8), active, b.splat(0, bits))
    buffer = b.alloca_in_entry(vector)
    b.store(b.splat(0, bits), buffer)
    with b.each_lane(active) as lane:
        pointer = b.inttoptr(b.extract_element(addresses, lane), POINTER)
        element = b.load(pointer, typ=vector.element)
        b.store(b.insert_element(b.load(buffer, typ=vector), element, lane), buffer)
    return b.load(buffer, typ=vector)


def _emit_scatter(b: LaneBuilder, addresses: ir.Value, active: ir.Value, value: ir.Value) -> None:
    bits = value.type.element.width
    if bits >= 32:
        pointers = b.inttoptr(addresses, ir.VectorType(POINTER, LANES))
        name = f"llvm.masked.scatter.v32i{bits}.v32p0"
        b.intrinsic(name, ir.VoidType(), value, pointers, I32(bits // 8), active)
        return
    # Lane after lane in ascending order, as llvm.masked.scatter stores, so the highest lane wins at a common address.
    with b.each_lane(active) as lane:
        pointer = b.inttoptr(b.extract_element(addresses, lane), POINTER)
        b.store(b.extract_element(value, lane), pointer)
