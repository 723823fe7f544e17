"""Emitting LLVM IR for 32 lanes: registers and operands, masks, and memory.

A register is a vector of 32 lanes. Inside a basic block registers are SSA values; between blocks the live ones rest in
the warp's record, merged under the mask of the lanes that ran.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
from llvmlite import ir

from kernelpath.simt.constants import splat
from kernelpath.simt.errors import Unsupported
from kernelpath.simt.flow import Flow
from kernelpath.simt.layout import LANES, LAUNCH, WARP, Access, Space, Status, field_offset
from kernelpath.simt.lowered import Check, Lowered, Site, parameter_offsets
from kernelpath.simt.ptx import (
    SIZES,
    Address,
    Function,
    Immediate,
    Instruction,
    Module,
    Not,
    Operand,
    Register,
    Symbol,
)

__all__ = ["Emitter"]

I1, I8, I16, I32, I64 = (ir.IntType(bits) for bits in (1, 8, 16, 32, 64))
POINTER = ir.PointerType()
FIRST = ir.Constant(ir.VectorType(I32, LANES), [0] * LANES)  # as a shuffle: lane 0 everywhere


class Emitter:
    """Emits the instructions of ``run(launch, warp)``. ``b`` is the IR builder.

    ``active`` has the lanes that the instruction is for, ``values`` the registers that the block has read or written.
    """

    instruction: Instruction
    position: int
    guarded: bool
    active: ir.Value
    mask_lanes: ir.Value

    def __init__(self, module: Module, kernel: Function, flow: Flow) -> None:
        self.module, self.flow, self.registers = module, flow, flow.registers
        self.unit = ir.Module(name=kernel.name)
        self.function = ir.Function(self.unit, ir.FunctionType(I64, [POINTER, POINTER]), "run")
        self.launch, self.warp = self.function.args
        for argument in self.function.args:
            argument.add_attribute("noalias")
        self.slots = self._place_registers()
        self.params = {parameter.name: offset for parameter, offset in parameter_offsets(kernel)}
        self.shared, shared_bytes = self._place("shared")
        self.local, local_bytes = self._place("local")
        self.out = Lowered("", self.warp_bytes, shared_bytes, local_bytes, self.shared)
        self.values: dict[str, ir.Value] = {}
        self.b = ir.IRBuilder(self.function.append_basic_block("entry"))

    # Registers and operands

    def read(self, operand: Operand, bits: int) -> ir.Value:
        """The lanes of ``operand`` as integers of ``bits`` bits (1 for a predicate)."""
        match operand:
            case Immediate(value, width):
                return self.splat(_immediate_bits(value, width, bits), bits)
            case Symbol("WARP_SZ"):
                return self.splat(LANES, bits)
            case Symbol(name, offset):
                return self.resize(self.b.add(self._symbol(name), self.splat(offset, 64)), bits)
            case Not(register):
                return self.b.not_(self.read(register, bits))
            case Register(name):
                value = self.read_register(name)
                return self.resize(value, bits)
        raise self.unsupported()

    def write(self, operand: Operand, value: ir.Value, signed: bool = False) -> None:
        """Set a register, in the lanes that the instruction's guard lets through."""
        assert isinstance(operand, Register)
        if operand.name == "_":
            return
        value = self.resize(value, self.width(operand.name), signed)
        if self.guarded:
            value = self.b.select(self.active, value, self.read_register(operand.name))
        self.values[operand.name] = value

    def width(self, name: str) -> int:
        kind = self.registers.get(name)
        if kind is None:
            raise self.unsupported(name)
        return 1 if kind == "pred" else 8 * SIZES[kind]

    def splat(self, value: int, bits: int, lanes: int = LANES) -> ir.Constant:
        return splat(ir.IntType(bits)(value & (1 << bits) - 1), lanes)

    def broadcast(self, scalar: ir.Value) -> ir.Value:
        """All lanes equal to a scalar."""
        vector = ir.VectorType(scalar.type, LANES)
        first = self.b.insert_element(ir.Constant(vector, ir.Undefined), scalar, I32(0))
        return self.b.shuffle_vector(first, ir.Constant(vector, ir.Undefined), FIRST)

    def resize(self, value: ir.Value, bits: int, signed: bool = False) -> ir.Value:
        """Truncate or extend the lanes of an integer vector."""
        have = value.type.element.width
        to = ir.VectorType(ir.IntType(bits), value.type.count)
        if have == bits:
            return value
        if have > bits:
            return self.b.trunc(value, to)
        return self.b.sext(value, to) if signed else self.b.zext(value, to)

    def intrinsic(self, name: str, result: ir.Type, *arguments: ir.Value) -> ir.Value:
        """Call an LLVM intrinsic or library function by its full name."""
        function = self.unit.globals.get(name)
        if function is None:
            function = ir.Function(self.unit, ir.FunctionType(result, [a.type for a in arguments]), name)
        return self.b.call(function, arguments)

    def unsupported(self, what: str = "") -> Unsupported:
        return Unsupported(what or self.instruction.name, self.module.file, self.instruction.line)

    def read_register(self, name: str) -> ir.Value:
        if "clock" in name or "timer" in name:
            return self.read_special(name)
        if name not in self.values:
            special = name not in self.registers
            self.values[name] = self.read_special(name) if special else self._load_slot(name)
        return self.values[name]

    def _load_slot(self, name: str) -> ir.Value:
        if name not in self.slots:
            return self.splat(0, self.width(name))
        pointer, bits = self._slot(name), self.width(name)
        if bits == 1:
            return self.as_lanes(self.b.load(pointer, typ=I32))
        return self.b.load(pointer, typ=ir.VectorType(ir.IntType(bits), LANES), align=64)

    def _store_slot(self, name: str) -> None:
        pointer, value = self._slot(name), self.values[name]
        merged = self.b.select(self.mask_lanes, value, self._load_slot(name))
        if value.type.element.width == 1:
            self.b.store(self.as_bits(merged), pointer)
        else:
            self.b.store(merged, pointer, align=64)

    def _slot(self, name: str) -> ir.Value:
        return self.at(self.warp, self.slots[name])

    def _place_registers(self) -> dict[str, int]:
        live = sorted(set().union(*(block.live_in for block in self.flow.blocks)) & self.registers.keys())
        slots: dict[str, int] = {}
        end = -(-WARP.itemsize // 64) * 64
        for name in live:
            slots[name] = end
            kind = self.registers[name]
            end += 64 if kind == "pred" else LANES * SIZES[kind]
        self.warp_bytes = end
        return slots

    def _place(self, space: str) -> tuple[dict[str, range], int]:
        """The bytes of each variable of a space, and of all of them."""
        declared = {**self.module.variables, **self.flow.variables}.items()
        ours = [(name, variable) for name, variable in declared if variable.space == space]
        spans, end = {}, 0
        for name, variable in sorted(ours, key=lambda item: item[1].size == 0):
            end = -(-end // variable.align) * variable.align
            spans[name] = range(end, end + variable.size)
            end += variable.size
        return spans, end

    def _symbol(self, name: str) -> ir.Value:
        """Address of a variable: an offset in the shared and local windows, a real address elsewhere."""
        if name in self.shared:
            return self.splat(self.shared[name].start, 64)
        if name in self.local:
            return self.splat(self.local[name].start, 64)
        if name in self.params:
            base = self.load_field(self.launch, LAUNCH, "params", I64)
            return self.broadcast(self.b.add(base, I64(self.params[name])))
        if name not in self.module.variables:
            raise self.unsupported(name)
        if name not in self.out.symbols:
            self.out.symbols.append(name)
        table = self.b.inttoptr(self.load_field(self.launch, LAUNCH, "symbols", I64), POINTER)
        return self.broadcast(self.b.load(self.at(table, 8 * self.out.symbols.index(name)), typ=I64))

    def read_special(self, name: str) -> ir.Value:
        stem, _, axis = name.lstrip("%").partition(".")
        step = "xyz".find(axis or "x")
        if stem == "tid":
            offset = field_offset(WARP, "tid") + 4 * LANES * step
            return self.b.load(self.at(self.warp, offset), typ=ir.VectorType(I32, LANES), align=4)
        if stem in ("ntid", "ctaid", "nctaid"):
            pointer = self.at(self.launch, field_offset(LAUNCH, f"{stem}_{'xyz'[step]}"))
            return self.broadcast(self.b.load(pointer, typ=I32))
        if stem == "laneid":
            return ir.Constant(ir.VectorType(I32, LANES), list(range(LANES)))
        if stem.startswith("lanemask_"):
            return ir.Constant(ir.VectorType(I32, LANES), [_lane_mask(stem[-2:], lane) for lane in range(LANES)])
        if stem == "warpid":
            return self.broadcast(self.load_field(self.warp, WARP, "index", I32))
        if stem in ("clock", "clock64", "globaltimer"):
            end, left = (self.load_field(self.launch, LAUNCH, name, I64) for name in ("clock", "budget"))
            return self.broadcast(self.b.add(self.b.sub(end, left), I64(self.position)))
        if stem in ("smid", "gridid", "nsmid", "clusterid", "cluster_ctaid", "cluster_ctarank"):
            return self.splat(int(stem == "nsmid"), 32)
        if stem in ("dynamic_smem_size", "total_smem_size"):
            return self.broadcast(self.load_field(self.launch, LAUNCH, _SHARED_SIZES[stem], I32))
        raise self.unsupported(name)

    # Masks and records

    def as_bits(self, lanes: ir.Value) -> ir.Value:
        """A predicate of 32 lanes as one 32-bit word."""
        return self.b.bitcast(lanes, I32)

    def as_lanes(self, bits: ir.Value) -> ir.Value:
        return self.b.bitcast(bits, ir.VectorType(I1, LANES))

    def at(self, base: ir.Value, offset: int) -> ir.Value:
        return self.b.gep(base, [I64(offset)], source_etype=I8)

    def load_field(self, base: ir.Value, record: np.dtype[np.void], name: str, kind: ir.Type) -> ir.Value:
        return self.b.load(self.at(base, field_offset(record, name)), typ=kind)

    def store_field(self, base: ir.Value, record: np.dtype[np.void], name: str, value: ir.Value) -> None:
        self.b.store(value, self.at(base, field_offset(record, name)))

    def first_active(self) -> ir.Value:
        """The least active lane."""
        return self.intrinsic("llvm.cttz.i32", I32, self.as_bits(self.active), I1(0))

    def put_row(self, row: int, value: ir.Value) -> None:
        """Store lanes of 32 or 64 bits (two rows) where warp-level functions find them."""
        offset = field_offset(WARP, "operands") + 4 * LANES * row
        self.b.store(value, self.at(self.warp, offset), align=4)

    # Memory

    def room(self, kind: ir.Type) -> ir.Value:
        """Space on the stack: of the function, for a loop that made its own at every turn would fill the stack."""
        with self.b.goto_entry_block():
            return self.b.alloca(kind)

    def addresses(self, operand: Operand, space: Space) -> ir.Value:
        """The address that each lane names, as one of this process."""
        assert isinstance(operand, Address)
        base = operand.base
        value = self._symbol(base.name) if isinstance(base, Symbol) else self.read(base, 64)
        return self.in_process(self.b.add(value, self.splat(operand.offset, 64)), space)

    def in_process(self, value: ir.Value, space: Space) -> ir.Value:
        """Turn an address of the shared or local window into a generic one, which is an address of this process."""
        return self.b.add(value, self.window(space)) if space in (Space.SHARED, Space.LOCAL) else value

    def window(self, space: Space) -> ir.Value:
        """Where the shared window, or each lane's local window, begins."""
        if space == Space.SHARED:
            return self.broadcast(self.load_field(self.launch, LAUNCH, "shared", I64))
        base = self.broadcast(self.load_field(self.launch, LAUNCH, "local", I64))
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
        touched: ir.Value | None = None,
    ) -> None:
        """Have an access checked and counted; leaves the launch where it is at fault.

        ``touched`` has the bytes of each lane, where they are not all of the ``nbytes``.
        """
        if touched is not None:
            self.put_row(0, self.resize(touched, 64))
        self.b.store(addresses, self.at(self.warp, field_offset(WARP, "addresses")), align=64)
        strong = not {"volatile", "relaxed", "acquire", "release", "acq_rel"}.isdisjoint(self.instruction.modifiers)
        site = Site(space, access, nbytes, parts, strong, self.instruction.line, self.instruction.name)
        self.out.sites.append(site)
        self.call("access", len(self.out.sites) - 1, (space, access, nbytes, parts, strong, touched is not None))

    def call(self, function: str, argument: int = 0, constants: tuple[int, ...] = ()) -> None:
        """Call a check with the active lanes; a result other than 0 is a fault."""
        check = Check(function, tuple(map(int, constants)))
        self.out.checks.add(check)
        launch, warp = (self.b.ptrtoint(pointer, I64) for pointer in (self.launch, self.warp))
        mask = self.b.zext(self.as_bits(self.active), I64)
        failed = self.intrinsic(check.symbol, I64, launch, warp, I64(argument), mask)
        with self.b.if_then(self.b.icmp_unsigned("!=", failed, I64(0)), likely=False):
            self.b.ret(I64(Status.FAULT))

    def gather(self, addresses: ir.Value, bits: int) -> ir.Value:
        """Load ``bits`` bits in each active lane."""
        vector = ir.VectorType(ir.IntType(bits), LANES)
        return self.call_own(f"gather{bits}", vector, [addresses, self.active], self._emit_gather)

    def scatter(self, addresses: ir.Value, value: ir.Value) -> None:
        """Store the active lanes of ``value``."""
        bits = value.type.element.width
        self.call_own(f"scatter{bits}", ir.VoidType(), [addresses, self.active, value], self._emit_scatter)

    def _emit_gather(self, addresses: ir.Value, active: ir.Value) -> ir.Value:
        vector = self.function_result
        bits = vector.element.width
        if bits >= 32:
            pointers = self.b.inttoptr(addresses, ir.VectorType(POINTER, LANES))
            name = f"llvm.masked.gather.v32i{bits}.v32p0"
            return self.intrinsic(name, vector, pointers, I32(bits // 8), active, self.splat(0, bits))
        loaded = self.room(vector)
        self.b.store(self.splat(0, bits), loaded)
        with self.each_lane(active) as lane:
            pointer = self.b.inttoptr(self.b.extract_element(addresses, lane), POINTER)
            number = self.b.load(pointer, typ=vector.element)
            self.b.store(self.b.insert_element(self.b.load(loaded, typ=vector), number, lane), loaded)
        return self.b.load(loaded, typ=vector)

    def _emit_scatter(self, addresses: ir.Value, active: ir.Value, value: ir.Value) -> None:
        bits = value.type.element.width
        if bits >= 32:
            pointers = self.b.inttoptr(addresses, ir.VectorType(POINTER, LANES))
            name = f"llvm.masked.scatter.v32i{bits}.v32p0"
            self.intrinsic(name, ir.VoidType(), value, pointers, I32(bits // 8), active)
            return
        with self.each_lane(active) as lane:
            pointer = self.b.inttoptr(self.b.extract_element(addresses, lane), POINTER)
            self.b.store(self.b.extract_element(value, lane), pointer)

    def call_own(
        self, name: str, result: ir.Type, arguments: list[ir.Value], emit: Callable[..., ir.Value | None]
    ) -> ir.Value:
        """Call a function of this module, which ``emit`` fills when it is first called: code that many places share."""
        function = self.unit.globals.get(name)
        if function is None:
            function = ir.Function(self.unit, ir.FunctionType(result, [value.type for value in arguments]), name)
            function.linkage = "internal"
            function.attributes.add("noinline")
            outer, self.b = self.b, ir.IRBuilder(function.append_basic_block())
            self.function_result = result
            value = emit(*function.args)
            self.b.ret_void() if value is None else self.b.ret(value)
            self.b = outer
        return self.b.call(function, arguments)

    @contextmanager
    def each_lane(self, active: ir.Value) -> Iterator[ir.Value]:
        """A loop over the lanes in ``active``, in their order; yields the lane's number."""
        b, head = self.b, self.b.append_basic_block("lanes")
        body, after = b.append_basic_block("lane"), b.append_basic_block("done")
        start, bits = b.block, self.as_bits(active)
        b.branch(head)
        b.position_at_end(head)
        left = b.phi(I32)
        left.add_incoming(bits, start)
        b.cbranch(b.icmp_unsigned("==", left, I32(0)), after, body)
        b.position_at_end(body)
        yield self.intrinsic("llvm.cttz.i32", I32, left, I1(1))
        left.add_incoming(b.and_(left, b.sub(left, I32(1))), b.block)
        b.branch(head)
        b.position_at_end(after)


_SHARED_SIZES = {"dynamic_smem_size": "dynamic_bytes", "total_smem_size": "shared_bytes"}


def _lane_mask(relation: str, lane: int) -> int:
    """The lanes that are eq, lt, le, gt or ge a lane, as bits."""
    least = {"gt": lane + 1, "ge": lane, "eq": lane}.get(relation, 0)
    end = {"lt": lane, "le": lane + 1, "eq": lane + 1}.get(relation, LANES)
    return (1 << end) - (1 << least)


def _immediate_bits(value: int, width: int, bits: int) -> int:
    """The bits of an immediate in an instruction of ``bits`` bits: decimal literals are doubles in the text."""
    if width in (0, bits) or bits not in (16, 32):
        return value
    number = struct.unpack("<d", struct.pack("<Q", value))[0]
    return int.from_bytes(struct.pack("<f" if bits == 32 else "<e", number), "little")
