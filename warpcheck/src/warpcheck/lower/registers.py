"""Read and write registers, operands and special registers as vectors of 32 lanes.

Within an instruction registers are SSA values. Between instructions they are in the warp's record, where a result is
merged under the mask of the active lanes.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from llvmlite import ir

from warpcheck.errors import Unsupported
from warpcheck.layout import LANES, RESERVED
from warpcheck.lower.control_flow import Flow
from warpcheck.lower.register_slots import CARRY, assign_slots
from warpcheck.lower.vectors import I8, I32, I64, POINTER, Vectors
from warpcheck.lowered_kernel import Lowered, parameter_offsets
from warpcheck.op import registers
from warpcheck.ptx import (
    SIZES,
    Function,
    Immediate,
    Instruction,
    Module,
    Not,
    Operand,
    Register,
    Symbol,
    Variable,
)
from warpcheck.runtime.address_spaces import RANK
from warpcheck.runtime.records import CTA, LAUNCH, WARP, field_offset

__all__ = ["PassedConstant", "Registers"]


class PassedConstant(NamedTuple):
    """A constant operand that compiled code gets from its row, by its number among them."""

    number: int


class Registers(Vectors):
    """Reads and writes the operands of ``run(launch, cta, warp)``, and of the functions that it calls.

    ``active`` are the lanes that the instruction is for, ``values`` the registers that it has read or written,
    ``written`` those that ``save`` has to store. ``location`` is the number of the block and of the instruction in it,
    and ``row`` the address of the slots of the instruction's registers, in the order in which it names them first.
    """

    instruction: Instruction
    active: ir.Value
    mask_bits: ir.Value
    mask_lanes: ir.Value
    location: tuple[ir.Value, ir.Value]
    carried: bool
    passed: list[ir.Value]
    row: ir.Value

    def __init__(self, module: Module, kernel: Function, flow: Flow) -> None:
        super().__init__(kernel.name, I64, [POINTER] * 3)
        self.module = module
        self.flow = flow
        self.registers = flow.registers
        self.launch, self.cta, self.warp = self.function.args
        # The three records do not overlap: LLVM may keep a field of one in a register while another is stored to.
        for argument in self.function.args:
            argument.add_attribute("noalias")
        self.registers[CARRY.name] = "pred"
        self.slots: Mapping[str, int | ir.Value]
        # Slots begin behind the fields of the warp's record, at a multiple of 64 for aligned vectors.
        self.slots, warp_bytes = assign_slots(flow, -(-WARP.itemsize // 64) * 64)
        # Where no instruction tells blocks of a cluster apart, plain offsets in shared memory are enough.
        self.in_cluster = any(map(_names_cluster, (i for block in flow.blocks for i in block.instructions)))
        self.params = {parameter.name: offset for parameter, offset in parameter_offsets(kernel)}
        self.shared, shared_bytes = self._lay_out("shared", self._reserved())
        self.local, local_bytes = self._lay_out("local")
        self.out = Lowered("", warp_bytes, shared_bytes, local_bytes, self.shared)
        self.values: dict[str, ir.Value] = {}
        self.written: set[str] = set()

    def read(self, operand: Operand | PassedConstant, bits: int) -> ir.Value:
        """Return the lanes of ``operand`` as integers of ``bits`` bits (1 for a predicate)."""
        match operand:
            case PassedConstant():
                return self._constant(operand, bits)
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

    def _constant(self, constant: int | PassedConstant, bits: int) -> ir.Value:
        if isinstance(constant, int):
            return self.splat(constant, bits)
        return self.resize(self.broadcast(self.passed[constant.number]), bits, signed=True)

    def write(self, operand: Operand, value: ir.Value, signed: bool = False) -> None:
        """Set a register, in the lanes where the instruction's guard holds."""
        assert isinstance(operand, Register)
        if operand.name == "_":
            return
        self.values[operand.name] = self.resize(value, self.width(operand.name), signed)
        self.written.add(operand.name)

    def save(self) -> None:
        """Store the registers that the instruction has written, in its active lanes."""
        for name in sorted(self.written):
            self._store_slot(name)
        self.written = set()

    def width(self, name: str) -> int:
        kind = self.registers.get(name)
        if kind is None:
            raise self.unsupported(name)
        return 1 if kind == "pred" else 8 * SIZES[kind]

    def unsupported(self, name: str = "") -> Unsupported:
        return Unsupported(name or self.instruction.name, self.module.file, self.instruction.line)

    def read_register(self, name: str) -> ir.Value:
        # A clock is read again at each use; all other special registers keep their values while a block of code runs.
        if "clock" in name or "timer" in name:
            return self.read_special(name)
        if name not in self.values:
            special = name not in self.registers
            self.values[name] = self.read_special(name) if special else self._load_slot(name)
        return self.values[name]

    def _load_slot(self, name: str) -> ir.Value:
        pointer = self._slot(name)
        bits = self.width(name)
        if bits == 1:
            return self.as_lanes(self.b.load(pointer, typ=I32))
        return self.b.load(pointer, typ=ir.VectorType(ir.IntType(bits), LANES), align=64)

    def _store_slot(self, name: str) -> None:
        """Store a register in the active lanes; the other lanes keep their values."""
        b = self.b
        pointer = self._slot(name)
        value = self.values[name]
        if value.type.element.width == 1:
            value = self.as_bits(value)
            kind = I32
            active = self.as_bits(self.active)
        else:  # subtle: LLVM makes a select into a masked store, for which a load that follows has to wait
            kind = value.type
            active = b.sext(self.active, value.type)
        # old ^ ((old ^ value) & active): the inactive lanes keep their values.
        old = b.load(pointer, typ=kind, align=64)
        b.store(b.xor(old, b.and_(b.xor(old, value), active)), pointer, align=64)

    def _slot(self, name: str) -> ir.Value:
        slot = self.slots[name]
        return self.b.gep(self.warp, [I64(slot) if isinstance(slot, int) else slot], source_etype=I8)

    def _reserved(self) -> dict[str, Variable]:
        """Return the shared memory that the system reserves for cooperative groups, if the kernel uses it."""
        is_used = any(f"%{RESERVED}" in registers(i.operands) for block in self.flow.blocks for i in block.instructions)
        # 1 KiB, which the system takes of each block's shared memory since sm_80 (target.Multiprocessor).
        return {RESERVED: Variable(RESERVED, "shared", "b8", 1024, 128)} if is_used else {}

    def _lay_out(
        self, space: str, extra: Mapping[str, Variable] = MappingProxyType({})
    ) -> tuple[dict[str, range], int]:
        """Return the bytes of each variable of a space, and the size of all of them."""
        variables = {**self.module.variables, **self.flow.variables, **extra}.items()
        in_space = [(name, variable) for name, variable in variables if variable.space == space]
        spans = {}
        end = 0
        # extern .shared arrays have size 0 here: they come last, because dynamic shared memory follows all variables.
        for name, variable in sorted(in_space, key=lambda item: item[1].size == 0):
            end = -(-end // variable.align) * variable.align
            spans[name] = range(end, end + variable.size)
            end += variable.size
        return spans, end

    def _symbol(self, name: str) -> ir.Value:
        """Return the address of a variable or parameter: an offset in its window, or an address in global memory."""
        location = self.symbol_place(name)
        if location is None:
            raise self.unsupported(name)
        space, number = location
        if space == "shared":
            return self._in_window(self.splat(number, 64))
        if space != "global":
            return self.splat(number, 64)
        table = self.b.inttoptr(self.load_field(self.launch, LAUNCH, "symbols", I64), POINTER)
        return self.broadcast(self.b.load(self.at(table, 8 * number), typ=I64))

    def symbol_place(self, name: str) -> tuple[str, int] | None:
        """Return a symbol's space and its offset there; for global memory, its number in the table of symbols.

        Return None if there is no such symbol.
        """
        for space, spans in (("shared", self.shared), ("local", self.local)):
            if name in spans:
                return space, spans[name].start
        if name in self.params:
            return "param", self.params[name]
        if name in self.module.functions:
            return "code", self.module.code_address(name)
        if name not in self.module.variables:
            return None
        if name not in self.out.symbols:
            self.out.symbols.append(name)
        return "global", self.out.symbols.index(name)

    def _in_window(self, offset: ir.Value) -> ir.Value:
        """Turn an offset in shared memory into an address of the cluster, with the block's rank above it."""
        if not self.in_cluster:
            return offset
        rank = self.b.zext(self.load_field(self.cta, CTA, "rank", I32), I64)
        return self.b.add(offset, self.broadcast(self.b.shl(rank, I64(RANK))))

    def read_special(self, name: str) -> ir.Value:
        base_name, _, axis = name.lstrip("%").partition(".")
        axis_number = "xyz".find(axis or "x")
        if base_name == "tid":
            offset = field_offset(WARP, "tid") + 4 * LANES * axis_number
            return self.b.load(self.at(self.warp, offset), typ=ir.VectorType(I32, LANES), align=4)
        if base_name in ("ntid", "nctaid", "cluster_nctaid"):
            field = f"{base_name.replace('cluster_nctaid', 'cluster')}_{'xyz'[axis_number]}"
            return self.broadcast(self.load_field(self.launch, LAUNCH, field, I32))
        if base_name in ("ctaid", "clusterid", "cluster_ctaid"):
            return self.broadcast(self.load_field(self.cta, CTA, f"{base_name}_{'xyz'[axis_number]}", I32))
        if base_name == "nclusterid":
            blocks, size = (
                self.load_field(self.launch, LAUNCH, f"{n}_{'xyz'[axis_number]}", I32) for n in ("nctaid", "cluster")
            )
            return self.broadcast(self.b.udiv(blocks, size))
        if base_name == "cluster_ctarank":
            return self.broadcast(self.load_field(self.cta, CTA, "rank", I32))
        if base_name == "cluster_nctarank":
            return self.broadcast(self.load_field(self.launch, LAUNCH, "cluster_size", I32))
        if base_name == "is_explicit_cluster":
            is_explicit = self.load_field(self.launch, LAUNCH, "explicit_cluster", I32)
            return self.broadcast(self.b.icmp_unsigned("!=", is_explicit, I32(0)))
        if base_name == "laneid":
            return ir.Constant(ir.VectorType(I32, LANES), list(range(LANES)))
        if base_name.startswith("lanemask_"):
            return ir.Constant(ir.VectorType(I32, LANES), [_lane_mask(base_name[-2:], lane) for lane in range(LANES)])
        if base_name == "warpid":
            return self.broadcast(self.load_field(self.warp, WARP, "index", I32))
        if base_name in ("clock", "clock64", "globaltimer"):
            # LAUNCH.clock is the time at which the slice would end. A block's instructions are charged when it begins,
            # so the position in it lets the clock advance within the block.
            end, remaining = (self.load_field(self.launch, LAUNCH, name, I64) for name in ("clock", "budget"))
            return self.broadcast(self.b.add(self.b.sub(end, remaining), self.b.zext(self.location[1], I64)))
        if base_name in ("smid", "gridid", "nsmid"):
            # One multiprocessor, number 0, since blocks run one after another.
            return self.splat(int(base_name == "nsmid"), 32)
        if base_name == RESERVED:
            return self.resize(self._symbol(RESERVED), 32)
        if base_name in ("dynamic_smem_size", "total_smem_size"):
            return self.broadcast(self.load_field(self.launch, LAUNCH, _SHARED_SIZES[base_name], I32))
        # Cooperative groups find the workspace of the grid's barrier here: the upper and the lower half of an address,
        # 0 where the launch is not cooperative.
        if base_name in (
            "envreg1",
            "envreg2",
        ):
            workspace = self.load_field(self.launch, LAUNCH, "workspace", I64)
            half = self.b.lshr(workspace, I64(32)) if base_name == "envreg1" else workspace
            return self.broadcast(self.b.trunc(half, I32))
        raise self.unsupported(name)


_SHARED_SIZES = {"dynamic_smem_size": "dynamic_bytes", "total_smem_size": "shared_bytes"}


def _names_cluster(i: Instruction) -> bool:
    """Return whether an instruction distinguishes a block's shared memory from another block's."""
    names = (*i.modifiers, i.opcode, *(name.lstrip("%") for name in registers(i.operands)))
    return any(name == "mapa" or name.split("::")[-1].startswith(("cluster", "getctarank")) for name in names)


def _lane_mask(relation: str, lane: int) -> int:
    """Return the lanes that are eq, lt, le, gt or ge a lane, as bits."""
    first_lane = {"gt": lane + 1, "ge": lane, "eq": lane}.get(relation, 0)
    end = {"lt": lane, "le": lane + 1, "eq": lane + 1}.get(relation, LANES)
    return (1 << end) - (1 << first_lane)


def _immediate_bits(value: int, width: int, bits: int) -> int:
    """Return the bits of an immediate in an instruction of ``bits`` bits: decimal literals are doubles."""
    # PTX ISA, 4.5.2: a floating-point constant without 0f or 0d is a double, which takes the size of its use.
    if width in (0, bits) or bits not in (16, 32):
        return value
    number = struct.unpack("<d", struct.pack("<Q", value))[0]
    return int.from_bytes(struct.pack("<f" if bits == 32 else "<e", number), "little")
