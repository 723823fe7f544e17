"""Emit the functions that all kernels share, on the program counters of lanes and the counters of basic blocks."""

from __future__ import annotations

from llvmlite import ir

from warpcheck.layout import ASIDE, LANES, NOWHERE, WAITING
from warpcheck.lower.lane_builder import I32, I64, POINTER, LaneBuilder
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


def add_to(b: LaneBuilder, pointer: ir.Value, value: ir.Value) -> None:
    b.store(b.add(b.load(pointer, typ=I64), value), pointer)


def load_pcs(b: LaneBuilder, warp: ir.Value) -> ir.Value:
    return b.load(b.at(warp, field_offset(WARP, "pcs")), typ=ir.VectorType(I32, LANES), align=64)


def counters_of(b: LaneBuilder, launch: ir.Value, block: ir.Value) -> ir.Value:
    """Return the address of the three counters of a block."""
    table = b.inttoptr(b.load_field(launch, LAUNCH, "blocks", I64), POINTER)
    return b.gep(table, [b.mul(b.zext(block, I64), I64(3))], source_etype=I64)


def emit_count(b: LaneBuilder, launch: ir.Value, mask: ir.Value, block: ir.Value, spent: ir.Value) -> None:
    """Count one execution of a block by the lanes in ``mask``."""
    counter = counters_of(b, launch, block)
    add_to(b, counter, I64(1))
    add_to(b, b.at(counter, 8), b.zext(b.intrinsic("llvm.ctpop.i32", I32, mask), I64))
    add_to(b, b.at(launch, field_offset(LAUNCH, "budget")), spent)


def emit_uncount(b: LaneBuilder, launch: ir.Value, lanes: ir.Value, block: ir.Value, executions: ir.Value) -> None:
    """Undo the count of a block of one instruction for lanes that will run it again."""
    counter = counters_of(b, launch, block)
    add_to(b, counter, b.neg(executions))
    add_to(b, b.at(counter, 8), b.neg(b.zext(b.intrinsic("llvm.ctpop.i32", I32, lanes), I64)))
    # emit_count took LANES for the one instruction of the block.
    add_to(b, b.at(launch, field_offset(LAUNCH, "budget")), I64(LANES))


def emit_goto(b: LaneBuilder, warp: ir.Value, lanes: ir.Value, pc: ir.Value) -> ir.Value:
    """Move the lanes of a block to another one. Return its number if they are all of the warp, else NOWHERE."""
    # If all lanes of the warp are here, the next block follows at once, without storing program counters.
    live = b.load_field(warp, WARP, "live", I32)
    leaves = b.icmp_unsigned("==", pc, I32(NOWHERE))
    with b.if_then(b.and_(b.icmp_unsigned("==", lanes, live), b.not_(leaves))):
        b.ret(pc)
    b.store_field(warp, WARP, "live", b.select(leaves, b.and_(live, b.not_(lanes)), live))
    emit_set_pcs(b, warp, lanes, pc)
    return I32(NOWHERE)


def emit_branch(
    b: LaneBuilder,
    launch: ir.Value,
    warp: ir.Value,
    lanes: ir.Value,
    taken: ir.Value,
    block: ir.Value,
    target: ir.Value,
    otherwise: ir.Value,
) -> ir.Value:
    """End a block: the lanes that have ``taken`` the branch go to its target. Return as emit_goto does."""
    for unanimous, pc in ((lanes, target), (I32(0), otherwise)):
        with b.if_then(b.icmp_unsigned("==", taken, unanimous)):
            b.ret(emit_goto(b, warp, lanes, pc))
    # The branch diverges.
    add_to(b, b.at(counters_of(b, launch, block), 16), I64(1))
    emit_set_pcs(b, warp, lanes, otherwise)
    emit_set_pcs(b, warp, taken, target)
    return I32(NOWHERE)


def emit_end_aside(b: LaneBuilder, warp: ir.Value) -> None:
    """Give lanes that stepped aside their normal program counters back."""
    pcs = load_pcs(b, warp)
    # NOWHERE has both flags set, and a lane that waits has WAITING: ASIDE alone marks a lane that stepped aside.
    aside = b.icmp_unsigned("==", b.and_(pcs, b.splat(WAITING | ASIDE, 32)), b.splat(ASIDE, 32))
    rejoined = b.select(aside, b.and_(pcs, b.splat(~ASIDE, 32)), pcs)
    b.store(rejoined, b.at(warp, field_offset(WARP, "pcs")), align=64)


def emit_lanes_at(b: LaneBuilder, warp: ir.Value, pc: ir.Value) -> ir.Value:
    """Return the lanes that have this program counter."""
    return b.as_bits(b.icmp_unsigned("==", load_pcs(b, warp), b.broadcast(pc)))


def emit_set_pcs(b: LaneBuilder, warp: ir.Value, lanes: ir.Value, pc: ir.Value) -> None:
    """Set the program counters of ``lanes``."""
    merged = b.select(b.as_lanes(lanes), b.broadcast(pc), load_pcs(b, warp))
    b.store(merged, b.at(warp, field_offset(WARP, "pcs")), align=64)


def suspends(i: Instruction) -> bool:
    """Return whether a warp may have to wait in an instruction for something other than its lanes or a barrier."""
    waits = {"test_wait", "try_wait", "wait", "wait_group"}.intersection(i.modifiers)
    return i.opcode == "setmaxnreg" or (i.opcode in ("mbarrier", "barrier", "cp", "wgmma") and bool(waits))


def is_barrier(i: Instruction) -> bool:
    """Return whether an instruction is a barrier of the whole block."""
    return i.opcode in ("bar", "barrier") and not {"warp", "cluster"}.intersection(i.modifiers)
