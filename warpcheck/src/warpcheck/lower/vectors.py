"""Emit LLVM IR for 32 lanes: vectors, masks, fields of records, loops over lanes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
from llvmlite import ir

from warpcheck.layout import LANES
from warpcheck.lower.constants import splat
from warpcheck.runtime.records import field_offset

__all__ = ["I1", "I8", "I16", "I32", "I64", "POINTER", "Vectors"]

I1, I8, I16, I32, I64 = (ir.IntType(bits) for bits in (1, 8, 16, 32, 64))
POINTER = ir.PointerType()
FIRST = ir.Constant(ir.VectorType(I32, LANES), [0] * LANES)  # as a shuffle: lane 0 everywhere


class Vectors:
    """Emits IR into ``unit``; ``b`` is the IR builder."""

    function_result: ir.Type

    def __init__(self, name: str, results: ir.Type, arguments: list[ir.Type]) -> None:
        self.unit = ir.Module(name=name)
        self.function = ir.Function(self.unit, ir.FunctionType(results, arguments), "run")
        self.b = ir.IRBuilder(self.function.append_basic_block("entry"))

    def splat(self, value: int, bits: int, lanes: int = LANES) -> ir.Constant:
        return splat(ir.IntType(bits)(value & (1 << bits) - 1), lanes)

    def broadcast(self, scalar: ir.Value) -> ir.Value:
        """Return a vector with a scalar in all lanes."""
        # LLVM's idiom for a splat: insert into lane 0, then shuffle it to all lanes.
        vector = ir.VectorType(scalar.type, LANES)
        first = self.b.insert_element(ir.Constant(vector, ir.Undefined), scalar, I32(0))
        return self.b.shuffle_vector(first, ir.Constant(vector, ir.Undefined), FIRST)

    def resize(self, value: ir.Value, bits: int, signed: bool = False) -> ir.Value:
        """Truncate or extend the lanes of an integer vector."""
        width = value.type.element.width
        target = ir.VectorType(ir.IntType(bits), value.type.count)
        if width == bits:
            return value
        if width > bits:
            return self.b.trunc(value, target)
        return self.b.sext(value, target) if signed else self.b.zext(value, target)

    def intrinsic(self, name: str, result: ir.Type, *arguments: ir.Value) -> ir.Value:
        """Call an LLVM intrinsic or library function by its full name."""
        function = self.unit.globals.get(name)
        if function is None:
            function = ir.Function(self.unit, ir.FunctionType(result, [a.type for a in arguments]), name)
        return self.b.call(function, arguments)

    def as_bits(self, lanes: ir.Value) -> ir.Value:
        """Return a predicate of 32 lanes as one 32-bit word."""
        # On a little-endian CPU, LLVM's <32 x i1> has lane 0 in bit 0.
        return self.b.bitcast(lanes, I32)

    def as_lanes(self, bits: ir.Value) -> ir.Value:
        return self.b.bitcast(bits, ir.VectorType(I1, LANES))

    def at(self, base: ir.Value, offset: int) -> ir.Value:
        return self.b.gep(base, [I64(offset)], source_etype=I8)

    def load_field(self, base: ir.Value, record: np.dtype[np.void], name: str, kind: ir.Type) -> ir.Value:
        return self.b.load(self.at(base, field_offset(record, name)), typ=kind)

    def store_field(self, base: ir.Value, record: np.dtype[np.void], name: str, value: ir.Value) -> None:
        self.b.store(value, self.at(base, field_offset(record, name)))

    def alloca(self, kind: ir.Type) -> ir.Value:
        """Allocate stack space in the entry block: an alloca in a loop would fill the stack."""
        with self.b.goto_entry_block():
            return self.b.alloca(kind)

    def call_local(
        self, name: str, result: ir.Type, arguments: list[ir.Value], emit: Callable[..., ir.Value | None]
    ) -> ir.Value:
        """Call an internal function of this module, which ``emit`` fills at its first call."""
        function = self.unit.globals.get(name)
        if function is None:
            function = ir.Function(self.unit, ir.FunctionType(result, [value.type for value in arguments]), name)
            function.linkage = "internal"
            function.attributes.add("noinline")
            outer = self.b
            self.b = ir.IRBuilder(function.append_basic_block())
            self.function_result = result
            value = emit(*function.args)
            self.b.ret_void() if value is None else self.b.ret(value)
            self.b = outer
        return self.b.call(function, arguments)

    @contextmanager
    def each_lane(self, active: ir.Value) -> Iterator[ir.Value]:
        """Emit a loop over the lanes in ``active``, in ascending order; yield the lane's number."""
        b = self.b
        head = self.b.append_basic_block("lanes")
        body = b.append_basic_block("lane")
        after = b.append_basic_block("done")
        start = b.block
        bits = self.as_bits(active)
        b.branch(head)
        b.position_at_end(head)
        remaining = b.phi(I32)
        remaining.add_incoming(bits, start)
        b.cbranch(b.icmp_unsigned("==", remaining, I32(0)), after, body)
        b.position_at_end(body)
        # I1(1): the result is undefined for 0, which does not get here.
        yield self.intrinsic("llvm.cttz.i32", I32, remaining, I1(1))
        # n & (n - 1) clears the lowest bit. The edge comes from b.block, because the body may have added blocks.
        remaining.add_incoming(b.and_(remaining, b.sub(remaining, I32(1))), b.block)
        b.branch(head)
        b.position_at_end(after)
