"""Emit the functions that all kernels share, on the program counters of lanes and the counters of basic blocks."""

from __future__ import annotations

from llvmlite import ir

from warpcheck.layout import ASIDE, LANES, NOWHERE, WAITING
from warpcheck.lower.compiled_shapes import Shared
from warpcheck.lower.vectors import I32, I64, POINTER
from warpcheck.ptx import Instruction
from warpcheck.runtime.records import LAUNCH, WARP, field_offset

__all__ = [
    "emit_branch",
    "emit_count",
    "emit_end_aside",
    "emit_goto",
    "emit_lanes_at",
    "emit_set_pcs",
    "emit_uncount",
    "is_barrier",
    "load_pcs",
    "suspends",
]


def add_to(e: Shared, pointer: ir.Value, value: ir.Value) -> None:
    e.b.store(e.b.add(e.b.load(pointer, typ=I64), value), pointer)


def load_pcs(e: Shared, warp: ir.Value) -> ir.Value:
    return e.b.load(e.at(warp, field_offset(WARP, "pcs")), typ=ir.VectorType(I32, LANES), align=64)


def counters_of(e: Shared, launch: ir.Value, block: ir.Value) -> ir.Value:
    """Return the address of the three counters of a block."""
    table = e.b.inttoptr(e.load_field(launch, LAUNCH, "blocks", I64), POINTER)
    return e.b.gep(table, [e.b.mul(e.b.zext(block, I64), I64(3))], source_etype=I64)


def emit_count(e: Shared, launch: ir.Value, mask: ir.Value, block: ir.Value, spent: ir.Value) -> None:
    """Count one execution of a block by the lanes in ``mask``."""
    counter = counters_of(e, launch, block)
    add_to(e, counter, I64(1))
    add_to(e, e.at(counter, 8), e.b.zext(e.intrinsic("llvm.ctpop.i32", I32, mask), I64))
    add_to(e, e.at(launch, field_offset(LAUNCH, "budget")), spent)


def emit_uncount(e: Shared, launch: ir.Value, lanes: ir.Value, block: ir.Value, executions: ir.Value) -> None:
    """Undo the count of a block of one instruction for lanes that will run it again."""
    counter = counters_of(e, launch, block)
    add_to(e, counter, e.b.neg(executions))
    add_to(e, e.at(counter, 8), e.b.neg(e.b.zext(e.intrinsic("llvm.ctpop.i32", I32, lanes), I64)))
    # emit_count took LANES for the one instruction of the block.
    add_to(e, e.at(launch, field_offset(LAUNCH, "budget")), I64(LANES))


def emit_goto(e: Shared, warp: ir.Value, lanes: ir.Value, pc: ir.Value) -> ir.Value:
    """Move the lanes of a block to another one. Return its number if they are all of the warp, else NOWHERE."""
    b = e.b
    # If all lanes of the warp are here, the next block follows at once, without storing program counters.
    live = e.load_field(warp, WARP, "live", I32)
    leaves = b.icmp_unsigned("==", pc, I32(NOWHERE))
    with b.if_then(b.and_(b.icmp_unsigned("==", lanes, live), b.not_(leaves))):
        b.ret(pc)
    e.store_field(warp, WARP, "live", b.select(leaves, b.and_(live, b.not_(lanes)), live))
    emit_set_pcs(e, warp, lanes, pc)
    return I32(NOWHERE)


def emit_branch(
    e: Shared,
    launch: ir.Value,
    warp: ir.Value,
    lanes: ir.Value,
    taken: ir.Value,
    block: ir.Value,
    target: ir.Value,
    otherwise: ir.Value,
) -> ir.Value:
    """End a block: the lanes that have ``taken`` the branch go to its target. Return as emit_goto does."""
    b = e.b
    for unanimous, pc in ((lanes, target), (I32(0), otherwise)):
        with b.if_then(b.icmp_unsigned("==", taken, unanimous)):
            b.ret(emit_goto(e, warp, lanes, pc))
    # The branch diverges.
    add_to(e, e.at(counters_of(e, launch, block), 16), I64(1))
    emit_set_pcs(e, warp, lanes, otherwise)
    emit_set_pcs(e, warp, taken, target)
    return I32(NOWHERE)


def emit_end_aside(e: Shared, warp: ir.Value) -> None:
    """Give lanes that stepped aside their normal program counters back."""
    b = e.b
    pcs = load_pcs(e, warp)
    # NOWHERE has both flags set, and a lane that waits has WAITING: ASIDE alone marks a lane that stepped aside.
    aside = b.icmp_unsigned("==", b.and_(pcs, e.splat(WAITING | ASIDE, 32)), e.splat(ASIDE, 32))
    rejoined = b.select(aside, b.and_(pcs, e.splat(~ASIDE, 32)), pcs)
    b.store(rejoined, e.at(warp, field_offset(WARP, "pcs")), align=64)


def emit_lanes_at(e: Shared, warp: ir.Value, pc: ir.Value) -> ir.Value:
    """Return the lanes that have this program counter."""
    return e.as_bits(e.b.icmp_unsigned("==", load_pcs(e, warp), e.broadcast(pc)))


def emit_set_pcs(e: Shared, warp: ir.Value, lanes: ir.Value, pc: ir.Value) -> None:
    """Set the program counters of ``lanes``."""
    merged = e.b.select(e.as_lanes(lanes), e.broadcast(pc), load_pcs(e, warp))
    e.b.store(merged, e.at(warp, field_offset(WARP, "pcs")), align=64)


def suspends(i: Instruction) -> bool:
    """Return whether a warp may have to wait in an instruction for something other than its lanes or a barrier."""
    waits = {"test_wait", "try_wait", "wait", "wait_group"}.intersection(i.modifiers)
    return i.opcode == "setmaxnreg" or (i.opcode in ("mbarrier", "barrier", "cp", "wgmma") and bool(waits))


def is_barrier(i: Instruction) -> bool:
    """Return whether an instruction is a barrier of the whole block."""
    return i.opcode in ("bar", "barrier") and not {"warp", "cluster"}.intersection(i.modifiers)
