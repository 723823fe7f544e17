"""Barriers in shared memory, without transactions. PTX ISA manual, 9.7.13.15.

The object is opaque there. Here it is the arrivals that its phase still needs, those that a phase needs, and the parity
of the phase; the token of an arrival is the object as it was before.
"""

from __future__ import annotations

from kernelpath.simt.isa.atomics import update
from kernelpath.simt.isa.memory import space_of
from kernelpath.simt.isa.values import Kind, Value, constant
from kernelpath.simt.layout import Access, Status
from kernelpath.simt.lower.warp import Lowering
from kernelpath.simt.op import Op, Place
from kernelpath.simt.ptx import Instruction, Operand

__all__ = ["OPS", "arrive"]

OBJECT = Kind("b64")
COUNT = 20  # bits of a count; expected arrivals lie above the pending ones
PARITY = 63


def emit_init(e: Lowering, i: Instruction) -> None:
    count = e.resize(e.read(i.operands[1], 32), 64)
    put_object(e, i, e.b.or_(count, e.b.shl(count, constant(count, COUNT))))


def emit_inval(e: Lowering, i: Instruction) -> None:
    put_object(e, i, e.splat(0, 64))


def put_object(e: Lowering, i: Instruction, value: Value) -> None:
    addresses = e.addresses(i.operands[0], space_of(i))
    e.put_row(0, value)
    e.check(addresses, space_of(i), Access.STORE, 8)
    e.scatter(addresses, value)


def emit_arrive(e: Lowering, i: Instruction) -> None:
    token, place, *counts = i.operands
    count = e.read(counts[0], 32) if counts else e.splat(1, 32)
    old = arrive(e, place, count, drops="arrive_drop" in i.modifiers)
    e.write(token, old)


def arrive(e: Lowering, place: Operand, count: Value, drops: bool = False) -> Value:
    """Arrive at the barrier: the last arrival of a phase begins the next one. Returns the object as it was."""

    def arrived(e: Lowering, kind: Kind, old: Value, count: Value) -> Value:
        b, ones = e.b, constant(old, (1 << COUNT) - 1)
        kept = b.sub(old, b.shl(count, constant(count, COUNT))) if drops else old
        left = b.sub(kept, count)
        expected = b.and_(b.lshr(kept, constant(old, COUNT)), ones)
        following = b.xor(b.or_(left, expected), constant(old, 1 << PARITY))
        return b.select(b.icmp_unsigned("==", b.and_(left, ones), constant(old, 0)), following, left)

    space = space_of(e.instruction)
    addresses = e.addresses(place, space)
    e.call("fence")
    e.check(addresses, space, Access.ATOMIC, 8)
    return update(e, addresses, OBJECT, [e.resize(count, 64)], arrived)


def emit_test_wait(e: Lowering, i: Instruction) -> None:
    """Whether the phase of a token, or of a parity, is over. The other warps have their turn: they end it."""
    done, place, phase = i.operands
    space = space_of(i)
    addresses = e.addresses(place, space)
    e.check(addresses, space, Access.LOAD, 8)
    e.call("acquire")
    now = e.b.lshr(e.gather(addresses, 64), e.splat(PARITY, 64))
    if "parity" in i.modifiers:
        then = e.b.and_(e.resize(e.read(phase, 32), 64), e.splat(1, 64))
    else:
        then = e.b.lshr(e.read(phase, 64), e.splat(PARITY, 64))
    e.write(done, e.b.icmp_unsigned("!=", now, then))
    e.stop(Status.PREEMPTED, e.index + 1)


def emit_pending_count(e: Lowering, i: Instruction) -> None:
    """The arrivals that a phase needed when a token was taken."""
    token = e.read(i.operands[1], 64)
    e.write(i.operands[0], e.b.and_(token, constant(token, (1 << COUNT) - 1)))


def emit(e: Lowering, i: Instruction) -> None:
    emitters = {
        "init": emit_init,
        "inval": emit_inval,
        "arrive": emit_arrive,
        "arrive_drop": emit_arrive,
        "test_wait": emit_test_wait,
        "pending_count": emit_pending_count,
    }
    emitters[i.modifiers[0]](e, i)


OPS = (
    Op(
        "mbarrier",
        (
            "init|inval SHARED? b64",
            "arrive|arrive_drop noComplete? SHARED? b64",
            "arrive|arrive_drop release cta SHARED? b64",
            "test_wait parity? SHARED? b64",
            "test_wait parity? acquire cta SHARED? b64",
            "pending_count b64",
        ),
        emit,
        place=Place.ALONE,
    ),
)
