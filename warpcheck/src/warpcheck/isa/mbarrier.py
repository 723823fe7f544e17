"""Emit operations on mbarrier objects. PTX ISA manual, 9.7.13.15. ``runtime.mbarriers`` executes them."""

from __future__ import annotations

from warpcheck.isa.spaces import space_of
from warpcheck.isa.values import Value
from warpcheck.layout import Access
from warpcheck.lower.instruction_emitter import InstructionEmitter
from warpcheck.lower.lane_builder import I32
from warpcheck.op import Op, Placement
from warpcheck.ptx import Instruction, Operand
from warpcheck.runtime.mbarriers import ARRIVALS_MASK, PHASE_BIT, TOKENS_OFFSET
from warpcheck.runtime.records import WARP, field_offset

__all__ = ["OPS", "arrive", "complete_tx"]


def emit_init(e: InstructionEmitter, i: Instruction) -> None:
    e.frame.store_row(0, e.b.resize(e.read(i.operands[1], 32), 64))
    number = check_barrier(e, i.operands[0], Access.STORE)
    e.call_check("mbarrier_init", number)


def emit_inval(e: InstructionEmitter, i: Instruction) -> None:
    e.frame.store_row(0, e.b.splat(0, 64))
    number = check_barrier(e, i.operands[0], Access.STORE)
    e.call_check("mbarrier_inval", number)


def check_barrier(e: InstructionEmitter, barrier: Operand, access: Access) -> Value:
    """Emit the check of the access to a barrier; return the number of its site."""
    space = space_of(e.instruction)
    # init and inval are ordinary writes. All other operations may meet at the object: it orders them by its own rules.
    return e.memory.check(e.memory.addresses(barrier, space), space, access, 8, unordered=access != Access.STORE)


def emit_arrive(e: InstructionEmitter, i: Instruction) -> None:
    token, barrier, *counts = i.operands
    count = e.read(counts[0], 32) if counts else e.b.splat(1, 32)
    arrive(e, barrier, count)
    row = e.b.at(e.warp, field_offset(WARP, "operands") + TOKENS_OFFSET)
    e.write(token, e.b.load(row, typ=e.b.splat(0, 64).type, align=8))
    # An arrival may complete the phase that lanes of this warp wait for.
    e.control.rejoin()


def arrive(e: InstructionEmitter, barrier: Operand, count: Value) -> None:
    """Arrive at the barrier, or expect that many bytes and arrive once; the tokens are left after the operands."""
    modifiers = e.instruction.modifiers
    e.frame.store_row(0, e.b.resize(count, 64))
    number = check_barrier(e, barrier, Access.ATOMIC)
    constants = "arrive_drop" in modifiers, "expect_tx" in modifiers, "relaxed" in modifiers
    e.call_check("mbarrier_arrive", number, constants)


def emit_transact(e: InstructionEmitter, i: Instruction) -> None:
    """Emit expect_tx and complete_tx."""
    complete_tx(e, i.operands[0], e.read(i.operands[1], 32), completes="complete_tx" in i.modifiers)
    e.control.rejoin()


def complete_tx(e: InstructionEmitter, barrier: Operand, count: Value, completes: bool = True) -> None:
    """Complete, or expect, a transaction of ``count`` bytes at the barrier."""
    e.frame.store_row(0, e.b.resize(count, 64))
    number = check_barrier(e, barrier, Access.ATOMIC)
    e.call_check("mbarrier_transact", number, (completes,))


def emit_wait(e: InstructionEmitter, i: Instruction) -> None:
    """Test whether the phase of a token, or of a parity, is complete. The time limit of ``try_wait`` is ignored."""
    done, barrier, phase = i.operands[:3]
    # A token is a state of the object, with the parity of its phase from PHASE_BIT on.
    if "parity" in i.modifiers:
        parity = e.b.resize(e.read(phase, 32), 64)
    else:
        parity = e.b.lshr(e.read(phase, 64), e.b.splat(PHASE_BIT, 64))
    e.frame.store_row(0, parity)
    number = check_barrier(e, barrier, Access.LOAD)
    e.call_check("mbarrier_wait", number, ("relaxed" in i.modifiers,))
    blocked = e.b.as_lanes(e.b.load_field(e.warp, WARP, "blocked_lanes", I32))
    e.write(done, e.b.not_(blocked))
    # The result is written before the suspension: lanes that go on need it.
    e.control.suspend(gives_up=True, returns=i.modifiers[0] == "test_wait")


def emit_pending_count(e: InstructionEmitter, i: Instruction) -> None:
    """Return the arrivals that a phase still needed when a token was taken."""
    token = e.read(i.operands[1], 64)
    e.write(i.operands[0], e.b.and_(token, e.b.splat(ARRIVALS_MASK, 64)))


def emit(e: InstructionEmitter, i: Instruction) -> None:
    emitters = {
        "init": emit_init,
        "inval": emit_inval,
        "arrive": emit_arrive,
        "arrive_drop": emit_arrive,
        "expect_tx": emit_transact,
        "complete_tx": emit_transact,
        "test_wait": emit_wait,
        "try_wait": emit_wait,
        "pending_count": emit_pending_count,
    }
    emitters[i.modifiers[0]](e, i)


OPS = (
    Op(
        "mbarrier",
        (
            "init|inval SHARED? b64",
            "arrive|arrive_drop noComplete? SHARED? b64",
            "arrive|arrive_drop noComplete release cta SHARED? b64",
            "arrive|arrive_drop expect_tx? release|relaxed cta|cluster SHARED? b64",
            "arrive|arrive_drop expect_tx SHARED? b64",
            "arrive|arrive_drop expect_tx? CLUSTER b64",
            "arrive|arrive_drop expect_tx? release|relaxed cta|cluster CLUSTER b64",
            "expect_tx|complete_tx SHARED|CLUSTER? b64",
            "expect_tx|complete_tx relaxed cta|cluster SHARED|CLUSTER? b64",
            "test_wait|try_wait parity? SHARED? b64",
            "test_wait|try_wait parity? acquire|relaxed cta|cluster SHARED? b64",
            "pending_count b64",
        ),
        emit,
        # A wait repeats its block, and an arrival lets lanes rejoin at its end: neither may have other instructions in
        # it.
        placement=Placement.ALONE,
    ),
)
