"""Emit wgmma: the four warps of a warpgroup multiply matrices in shared memory. PTX ISA manual, section 9.7.15.

Of D, and of A in registers, lane 4g + t of a warp has rows g and g + 8 of the warp's 16 rows, and of 8 columns those
from 2t on. Operands of any type take 32 bytes along k. ``runtime.warpgroup`` checks a warp's reads of memory;
``isa.products`` multiplies.
"""

from __future__ import annotations

import math

from llvmlite import ir

from warpcheck.errors import FAULT_KINDS, FaultKind
from warpcheck.isa.collectives import require_lanes
from warpcheck.isa.products import BITS, factors_from_registers, factors_from_shared, products
from warpcheck.isa.values import Value, items
from warpcheck.layout import POSITION, Access, Space
from warpcheck.lower.instruction_emitter import InstructionEmitter
from warpcheck.lower.lane_builder import I32, I64, POINTER
from warpcheck.lower.wgmma_hazards import HAZARD
from warpcheck.lowered_kernel import AccessSite
from warpcheck.op import Op, Placement, live_lanes
from warpcheck.ptx import Group, Immediate, Instruction, Operand, Register
from warpcheck.runtime.records import CTA, WARP
from warpcheck.runtime.warpgroup import CHUNKS, FACTORS
from warpcheck.runtime.wgmma_operands import CHUNK

__all__ = ["OPS"]

ROWS = 16  # of D and A that a warp has
EVERY_LANE = I32(-1)


def emit_wgmma(e: InstructionEmitter, i: Instruction) -> None:
    match i.modifiers[0]:
        case "mma_async":
            here = e.b.as_bits(e.active)
            with e.b.if_then(e.b.icmp_unsigned("!=", here, I32(0))):  # not where a guard forbids it
                with e.b.if_then(e.b.icmp_unsigned("!=", here, EVERY_LANE), likely=False):
                    e.frame.record_lanes(EVERY_LANE, here)
                    e.frame.fault(FAULT_KINDS.index(FaultKind.BAD_MASK))
                emit_mma_async(e, i)
        case "wait_group":
            require_lanes(e, i)
            e.call_check("wgmma_wait", i.operands[0].value)  # type: ignore[union-attr]
            e.control.suspend()
        case "commit_group":
            require_lanes(e, i)
            e.call_check("wgmma_commit")
        case _:
            require_lanes(e, i)


def emit_mma_async(e: InstructionEmitter, i: Instruction) -> None:
    """Emit ``wgmma.mma_async.sync.aligned.m64nNkK.d.a.b d, a, b, scale-d, scaleA, scaleB, transA, transB``: d = a b
    + d.
    """
    to, a_kind, b_kind = i.modifiers[-3:]
    columns = int(i.modifiers[3][4:].partition("k")[0])
    a, b, scale_d, *constants = i.operands[1:]
    signs, (a_major, b_major) = parse_constants(i, constants, isinstance(a, Group))
    d = items(i.operands[0])
    # m64nN has 64 N numbers in 128 threads, N / 2 in each; float16 has two in a register.
    require_registers(e, d, columns // (4 if to == "f16" else 2))
    if len(set(d)) != len(d):
        raise ValueError("a register of D stands in two places")
    # Both operands count for one site.
    number = e.unit.add_site(e.frame, AccessSite(Space.SHARED, Access.LOAD, CHUNK, 1, 0, i.line, i.name))
    store_position(e)
    room = e.b.inttoptr(e.b.load_field(e.cta, CTA, "products", I64), POINTER)
    factors = e.b.at(room, FACTORS)
    chunks = e.b.at(room, CHUNKS)
    if isinstance(a, Group):
        require_registers(e, a.items, 4)
        words = [e.read(item, 32) for item in a.items]
        e.unit.call_common(e.b, ir.VoidType(), [factors, *words], factors_from_registers(a_kind, signs))
    else:
        read_operand(e, number, a, 0, ROWS, a_major)
        e.unit.call_common(e.b, ir.VoidType(), [room, factors], factors_from_shared(a_kind, a_major, signs))
    read_operand(e, number, b, 1, columns, b_major)
    adds_to_d = e.b.extract_element(e.read(scale_d, 1), I32(0))
    multiply = products(b_kind, b_major, to, "satfinite" in i.modifiers)
    e.unit.call_common(e.b, ir.VoidType(), [e.row, e.warp, factors, chunks, I32(columns // 8), adds_to_d], multiply)


def parse_constants(i: Instruction, constants: list[Operand], from_registers: bool) -> tuple[int, tuple[int, int]]:
    """Return the sign of the products, and whether A and B are MN-major.

    Integers have none of these, except one scale that ptx.mma_negation adds; 8-bit floats and tf32 have no majors, and
    A in registers has none of its own.
    """
    values = [constant.value for constant in constants if isinstance(constant, Immediate)]
    scales = len(values[:1]) if i.modifiers[-3] == "s32" else 2
    majors = (1 if from_registers else 2) if BITS[i.modifiers[-1]] == 16 else 0
    if len(values) != len(constants) or len(values) != scales + majors:
        raise ValueError(f"{len(constants)} constants, not {scales + majors}")
    signs = [(value + 1) % (1 << 64) - 1 for value in values[:scales]]  # -1 may have been given without a sign
    if not {1, -1}.issuperset(signs) or not {0, 1}.issuperset(values[scales:]):
        raise ValueError("a scale that is neither 1 nor -1, or a major that is neither 0 nor 1")
    a_major, b_major = [0, 0, *values[scales:]][-2:]
    return math.prod(signs), (a_major, b_major)


def require_registers(e: InstructionEmitter, registers: tuple[Operand, ...], count: int) -> None:
    """Raise ValueError unless these are ``count`` registers of 32 bits."""
    fit = [isinstance(item, Register) and e.registers.width(item.name) == 32 for item in registers]
    if len(fit) != count or not all(fit):
        raise ValueError(f"{len(registers)} registers, not {count} of 32 bits")


def store_position(e: InstructionEmitter) -> None:
    """Store which instruction this is, for the record of its reads while it is in flight."""
    block, position = (e.b.zext(number, I64) for number in e.frame.location)
    e.b.store_field(e.warp, WARP, "wgmma_position", e.b.or_(e.b.shl(block, I64(POSITION)), position))


def read_operand(e: InstructionEmitter, number: Value, descriptor: Operand, which: int, rows: int, major: int) -> None:
    e.frame.store_row(2 * which, e.read(descriptor, 64))
    e.call_check("wgmma_operand", number, (which, rows, major))


def placement_of(i: Instruction) -> Placement:
    """Return where it may stand: a wait may have to be repeated, so it begins a block."""
    return Placement.ALONE if i.modifiers[0] == "wait_group" else Placement.ANYWHERE


def registers_read(i: Instruction) -> tuple[Operand, ...]:
    """Return the operands that are read: D is one of them."""
    # D is both: with scale-d it is added to.
    return i.operands if i.guard is None else (*i.operands, i.guard)


def emit_hazard(e: InstructionEmitter, i: Instruction) -> None:
    """Check whether the next instruction uses a register that a wgmma has in flight; see ``wgmma_hazards``."""
    store_position(e)
    e.call_check("hazard", e.operands.passed[0], (int(i.modifiers[0]),))


def shapes(depth: int, columns: range | list[int]) -> str:
    return f"m64n(?:{'|'.join(map(str, columns))})k{depth}"


# N by type: PTX ISA, "wgmma.mma_async". 8-bit integers lack the odd multiples of 8 from 40 on.
_FLOATS = range(8, 257, 8)
_INTEGERS = [8, 24, *range(16, 257, 16)]

OPS = (
    Op(
        "wgmma",
        (
            "fence|commit_group|wait_group sync aligned",
            f"mma_async sync aligned {shapes(16, _FLOATS)} f16|f32 f16 f16",
            f"mma_async sync aligned {shapes(16, _FLOATS)} f32 bf16 bf16",
            f"mma_async sync aligned {shapes(8, _FLOATS)} f32 tf32 tf32",
            f"mma_async sync aligned {shapes(32, _FLOATS)} f16|f32 e4m3|e5m2 e4m3|e5m2",
            f"mma_async sync aligned {shapes(32, _INTEGERS)} satfinite? s32 s8|u8 s8|u8",
        ),
        emit_wgmma,
        lanes=live_lanes,
        placement=placement_of,
        reads=registers_read,
    ),
    Op(HAZARD, ("0|1|2",), emit_hazard, results=0, passes=True),
)
