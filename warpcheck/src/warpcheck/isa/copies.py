"""Emit cp.async, and the instructions that group and await it. PTX ISA manual, 9.7.9.25.

Bulk copies are in ``bulk``.
"""

from __future__ import annotations

from warpcheck.isa import bulk
from warpcheck.isa.bitwise import shift
from warpcheck.isa.mbarrier import arrive
from warpcheck.isa.spaces import space_of, without_hint
from warpcheck.isa.values import Value
from warpcheck.layout import EVERYTHING, Access, Space
from warpcheck.lower.instruction_emitter import InstructionEmitter
from warpcheck.lower.lane_builder import I64, LaneBuilder
from warpcheck.op import Op
from warpcheck.ptx import Instruction, Not, Register

__all__ = ["OPS"]


def emit_cp(e: InstructionEmitter, i: Instruction) -> None:
    """Emit cp.async, and the instructions that group copies and wait for them."""
    if "bulk" in i.modifiers:
        bulk.emit_bulk(e, i)
    elif "commit_group" in i.modifiers:
        e.call_check("commit_async")
    elif "wait_group" in i.modifiers or "wait_all" in i.modifiers:
        allowed = i.operands[0].value if i.operands else EVERYTHING  # type: ignore[union-attr]
        e.call_check("wait_async", allowed)
    elif "mbarrier" in i.modifiers:
        e.memory.store_addresses(e.memory.addresses(i.operands[0], space_of(i)))
        e.call_check("track_async")
        # Without .noinc the pending count is incremented first (PTX ISA, "cp.async.mbarrier.arrive"): the arrival then
        # changes nothing, and is left out here.
        if "noinc" in i.modifiers:
            arrive(e, i.operands[0], e.b.splat(1, 32))
    elif i.modifiers[0] == "async" and i.modifiers[1] in ("ca", "cg"):
        copy_async(e, i)
    else:
        raise e.unsupported()


def copy_async(e: InstructionEmitter, i: Instruction) -> None:
    """Copy now, and mark the bytes as pending until a wait. Bytes past those to copy become zero."""
    size = i.operands[2].value  # type: ignore[union-attr]
    source = e.memory.addresses(i.operands[1], Space.GLOBAL)
    target = e.memory.addresses(i.operands[0], Space.SHARED)
    all_active = e.active
    byte_counts = bytes_to_copy(e, i, size)
    if byte_counts is not None:
        e.frame.active = e.b.and_(all_active, e.b.icmp_unsigned("!=", byte_counts, e.b.splat(0, 32)))
    # Lanes that copy nothing do not read, but their destination is filled with zeros.
    e.memory.check(source, Space.GLOBAL, Access.LOAD, size, lane_bytes=byte_counts)
    values = []
    # A copy has 4, 8 or 16 bytes (PTX ISA, "cp.async").
    for offset in range(0, size, 4):
        if byte_counts is not None:
            e.frame.active = e.b.and_(all_active, e.b.icmp_unsigned(">", byte_counts, e.b.splat(offset, 32)))
        value = e.memory.gather(e.b.add(source, e.b.splat(offset, 64)), 32)
        values.append(
            value if byte_counts is None else first_bytes(e.b, value, e.b.sub(byte_counts, e.b.splat(offset, 32)))
        )
    e.frame.active = all_active
    number = e.memory.check(target, Space.SHARED, Access.STORE, size)
    for offset, value in zip(range(0, size, 4), values, strict=True):
        e.memory.scatter(e.b.add(target, e.b.splat(offset, 64)), value)
    if byte_counts is not None:
        # 0 stands for no source: a store there cannot race with a lane that reads nothing; see cp_async_sources.
        source = e.b.select(e.b.icmp_unsigned("!=", byte_counts, e.b.splat(0, 32)), source, e.b.splat(0, 64))
    e.frame.store_row(0, source)
    e.call_check("copy_async", e.b.or_(e.b.shl(number, I64(32)), I64(size)))


def bytes_to_copy(e: InstructionEmitter, i: Instruction, size: int) -> Value | None:
    """Return the bytes that each lane copies, from an operand with their number, or a predicate that ignores all;
    None for all.
    """
    optional = without_hint(i)[3:]
    if not optional:
        return None
    operand_number = optional[0]
    # A predicate, ignore-src, replaces all bytes by zeros where it holds; a number, src-size, is of the bytes that are
    # copied.
    if isinstance(operand_number, Not) or (
        isinstance(operand_number, Register) and e.registers.width(operand_number.name) == 1
    ):
        return e.b.select(e.read(operand_number, 1), e.b.splat(0, 32), e.b.splat(size, 32))
    return e.read(operand_number, 32)


def first_bytes(b: LaneBuilder, word: Value, count: Value) -> Value:
    """Return the low ``count`` bytes of a word; all of it if that is 4 or more."""
    bits = b.shl(count, b.splat(3, 32))
    mask = shift(b, b.shl, b.splat(-1, 32), bits, b.splat(0, 32))
    return b.and_(word, b.not_(mask))


OPS = (
    Op(
        "cp",
        (
            "async ca|cg SHARED global HINT? PREFETCH?",
            "async commit_group|wait_group|wait_all",
            "async mbarrier arrive noinc? SHARED? b64",
            *bulk.VARIANTS,
        ),
        emit_cp,
        results=0,
    ),
)
