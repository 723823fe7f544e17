"""Asynchronous copies to shared memory, element by element; bulk copies in ``bulk``. PTX ISA manual, 9.7.9.25."""

from __future__ import annotations

from warpcheck.isa import bulk
from warpcheck.isa.bitwise import shift
from warpcheck.isa.mbarrier import arrive
from warpcheck.isa.spaces import space_of, without_hint
from warpcheck.isa.values import Value
from warpcheck.layout import EVERYTHING, Access, Space
from warpcheck.lower.vectors import I64
from warpcheck.lower.warp import Lowering
from warpcheck.op import Op
from warpcheck.ptx import Instruction, Not, Register

__all__ = ["OPS"]


def emit_cp(e: Lowering, i: Instruction) -> None:
    """cp.async and the instructions that group its copies and wait for them."""
    if "bulk" in i.modifiers:
        bulk.emit_bulk(e, i)
    elif "commit_group" in i.modifiers:
        e.call("commit_async")
    elif "wait_group" in i.modifiers or "wait_all" in i.modifiers:
        allowed = i.operands[0].value if i.operands else EVERYTHING  # type: ignore[union-attr]
        e.call("wait_async", allowed)
    elif "mbarrier" in i.modifiers:
        e.put_addresses(e.addresses(i.operands[0], space_of(i)))
        e.call("track_async")
        if "noinc" in i.modifiers:
            arrive(e, i.operands[0], e.splat(1, 32))
    elif i.modifiers[0] == "async" and i.modifiers[1] in ("ca", "cg"):
        copy_async(e, i)
    else:
        raise e.unsupported()


def copy_async(e: Lowering, i: Instruction) -> None:
    """Copy now, and remember that nobody may look before the wait. Bytes past those that are given become zero."""
    size = i.operands[2].value  # type: ignore[union-attr]
    source = e.addresses(i.operands[1], Space.GLOBAL)
    target = e.addresses(i.operands[0], Space.SHARED)
    everyone = e.active
    given = bytes_given(e, i, size)
    if given is not None:
        e.active = e.b.and_(everyone, e.b.icmp_unsigned("!=", given, e.splat(0, 32)))
    e.check(source, Space.GLOBAL, Access.LOAD, size, touched=given)
    values = []
    for place in range(0, size, 4):
        if given is not None:
            e.active = e.b.and_(everyone, e.b.icmp_unsigned(">", given, e.splat(place, 32)))
        value = e.gather(e.b.add(source, e.splat(place, 64)), 32)
        values.append(value if given is None else first_bytes(e, value, e.b.sub(given, e.splat(place, 32))))
    e.active = everyone
    number = e.check(target, Space.SHARED, Access.STORE, size)
    for place, value in zip(range(0, size, 4), values, strict=True):
        e.scatter(e.b.add(target, e.splat(place, 64)), value)
    if given is not None:
        source = e.b.select(e.b.icmp_unsigned("!=", given, e.splat(0, 32)), source, e.splat(0, 64))
    e.put_row(0, source)
    e.call("copy_async", e.b.or_(e.b.shl(number, I64(32)), I64(size)))


def bytes_given(e: Lowering, i: Instruction, size: int) -> Value | None:
    """The bytes that each lane copies: an operand gives their number, or a predicate that says to ignore them all."""
    optional = without_hint(i)[3:]
    if not optional:
        return None
    number = optional[0]
    if isinstance(number, Not) or (isinstance(number, Register) and e.width(number.name) == 1):
        return e.b.select(e.read(number, 1), e.splat(0, 32), e.splat(size, 32))
    return e.read(number, 32)


def first_bytes(e: Lowering, word: Value, count: Value) -> Value:
    """The low ``count`` bytes of a word; all, where that is 4 or more."""
    bits = e.b.shl(count, e.splat(3, 32))
    kept = shift(e, e.b.shl, e.splat(-1, 32), bits, e.splat(0, 32))
    return e.b.and_(word, e.b.not_(kept))


OPS = (
    Op(
        "cp",
        (
            "async ca|cg SHARED global HINT? PREFETCH?",
            "async commit_group|wait_group|wait_all",
            "async mbarrier arrive noinc? SHARED? b64",
            *bulk.FORMS,
        ),
        emit_cp,
        results=0,
    ),
)
