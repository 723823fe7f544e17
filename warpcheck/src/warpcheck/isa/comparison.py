"""Emit comparisons, selections and tests. PTX ISA manual, sections 9.3.2 and 9.7.6."""

from __future__ import annotations

from llvmlite import ir

from warpcheck.isa.values import F32, F64, Kind, Value, constant, flush, intrinsic, like, operand, put
from warpcheck.lower.instruction_emitter import InstructionEmitter
from warpcheck.lower.lane_builder import LaneBuilder
from warpcheck.op import Op
from warpcheck.ptx import Group, Instruction

__all__ = ["OPS"]


def compare(b: LaneBuilder, name: str, kind: Kind, x: Value, y: Value) -> Value:
    """Apply one of PTX's comparison operators (manual, section 9.3.2)."""
    operators = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
    if kind.is_float:
        if name in ("num", "nan"):
            return b.fcmp_ordered("ord", x, y) if name == "num" else b.fcmp_unordered("uno", x, y)
        # equ, ltu and the like are true if an operand is NaN: LLVM's unordered comparisons.
        if name.endswith("u"):
            return b.fcmp_unordered(operators[name[:-1]], x, y)
        return b.fcmp_ordered(operators[name], x, y)
    unsigned = {"lo": "<", "ls": "<=", "hi": ">", "hs": ">="}
    if name in unsigned or not kind.is_signed:
        return b.icmp_unsigned(unsigned.get(name) or operators[name], x, y)
    return b.icmp_signed(operators[name], x, y)


def emit_setp(e: InstructionEmitter, i: Instruction) -> None:
    """Emit ``setp.lt.and.f32 p|q, a, b, c``: p = (a < b) and c; q = not (a < b) and c."""
    kind = Kind(i.modifiers[-1])
    x, y = (maybe_flushed(e, operand(e, source, kind), kind) for source in i.operands[1:3])
    result = compare(e.b, i.modifiers[0], kind, x, y)
    targets = i.operands[0].items if isinstance(i.operands[0], Group) else (i.operands[0],)
    # A packed comparison has 64 results, two adjacent ones for each lane.
    if kind.is_packed:
        halves = e.b.bitcast(result, ir.VectorType(ir.IntType(2), result.type.count // 2))
        values = [e.b.resize(e.b.lshr(halves, constant(halves, n)), 1) for n in range(2)]
    else:
        values = [result, e.b.not_(result)]
    for target, value in zip(targets, [combined(e, i, value) for value in values], strict=False):
        e.write(target, value)


def emit_set(e: InstructionEmitter, i: Instruction) -> None:
    """Emit ``set.lt.u32.f32 d, a, b``: all ones, or 1.0 for a float result, where the comparison holds."""
    kind = Kind(i.modifiers[-1])
    result_kind = Kind(i.modifiers[-2])
    x, y = (maybe_flushed(e, operand(e, source, kind), kind) for source in i.operands[1:3])
    holds = combined(e, i, compare(e.b, i.modifiers[0], kind, x, y))
    if result_kind.is_float:
        element = F32 if result_kind.bits != 64 else F64
        put(e, i.operands[0], e.b.uitofp(holds, like(holds, element)), result_kind)
    else:
        # The two results of a packed comparison, of 16 bits each, are adjacent in one word.
        width = result_kind.bits if not kind.is_packed else 16
        bits = e.b.resize(holds, width, signed=True)
        e.write(i.operands[0], e.b.bitcast(bits, ir.VectorType(ir.IntType(result_kind.bits), 32)))


def combined(e: InstructionEmitter, i: Instruction, value: Value) -> Value:
    """Apply ``.and``, ``.or`` or ``.xor`` with the third source, if the instruction has one."""
    operation = {"and": e.b.and_, "or": e.b.or_, "xor": e.b.xor}.get(i.modifiers[1] if len(i.modifiers) > 1 else "")
    return operation(value, e.read(i.operands[3], 1)) if operation else value


def maybe_flushed(e: InstructionEmitter, value: Value, kind: Kind) -> Value:
    return flush(e.b, value, kind) if "ftz" in e.instruction.modifiers else value


def emit_selp(e: InstructionEmitter, i: Instruction) -> None:
    bits = Kind(i.modifiers[-1]).bits
    x, y = (e.read(source, bits) for source in i.operands[1:3])
    e.write(i.operands[0], e.b.select(e.read(i.operands[3], 1), x, y))


def emit_slct(e: InstructionEmitter, i: Instruction) -> None:
    kind = Kind(i.modifiers[-2])
    by = Kind(i.modifiers[-1])
    x, y = (e.read(source, kind.bits) for source in i.operands[1:3])
    c = maybe_flushed(e, operand(e, i.operands[3], by), by)
    # An ordered comparison: NaN takes the second source (PTX ISA, "slct").
    e.write(i.operands[0], e.b.select(compare(e.b, "ge", by, c, constant(c, 0)), x, y))


def emit_testp(e: InstructionEmitter, i: Instruction) -> None:
    """Emit the tests finite, infinite, number, notanumber, normal, subnormal."""
    kind = Kind(i.modifiers[-1])
    x = operand(e, i.operands[1], kind)
    size = intrinsic(e.b, "fabs", x)
    infinity = constant(x, float("inf"))
    least_normal = constant(x, 2.0**-126 if kind.bits == 32 else 2.0**-1022)
    finite = e.b.fcmp_ordered("<", size, infinity)
    test = {
        "finite": finite,
        "infinite": e.b.fcmp_ordered("==", size, infinity),
        "number": e.b.fcmp_ordered("ord", x, x),
        "notanumber": e.b.fcmp_unordered("uno", x, x),
        "normal": e.b.and_(finite, e.b.fcmp_ordered(">=", size, least_normal)),
        "subnormal": e.b.and_(e.b.fcmp_ordered("<", size, least_normal), e.b.fcmp_ordered(">", size, constant(x, 0.0))),
    }[i.modifiers[0]]
    e.write(i.operands[0], test)


OPS = (
    Op(
        "set",
        (
            "COMPARE LOGIC? ftz? u32|s32|f32 BITS|INTEGER|FLOAT",
            "COMPARE LOGIC? ftz? u16|s16|u32|s32|HALF|BHALF HALF|BHALF",
        ),
        emit_set,
    ),
    Op("setp", ("COMPARE LOGIC? ftz? BITS|INTEGER|FLOAT|HALF|BHALF",), emit_setp, passes=True),
    Op("selp", ("BITS|INTEGER|FLOAT",), emit_selp, passes=True),
    Op("slct", ("BITS|INTEGER|FLOAT s32", "ftz? BITS|INTEGER|FLOAT f32"), emit_slct),
    Op("testp", ("finite|infinite|number|notanumber|normal|subnormal FLOAT",), emit_testp),
)
