"""Emit instructions that several lanes or warps execute together: shuffles, votes, barriers.

PTX ISA manual, 9.7.9, 9.7.13.
"""

from __future__ import annotations

from llvmlite import ir

from warpcheck.errors import FAULT_KINDS, FaultKind
from warpcheck.isa.cluster import emit_cluster_barrier
from warpcheck.isa.values import Kind, Value, items
from warpcheck.layout import LANES, Status
from warpcheck.lower.instruction_emitter import InstructionEmitter
from warpcheck.lower.lane_builder import I32, I64
from warpcheck.op import Lanes, Op, Placement, last_operand
from warpcheck.ptx import Instruction, Operand
from warpcheck.runtime.cta_barrier import REDUCTIONS
from warpcheck.runtime.records import WARP, field_offset

__all__ = ["OPS", "require_lanes"]


def require_lanes(e: InstructionEmitter, i: Instruction) -> None:
    """Fault unless exactly the lanes that the instruction names are active."""
    needed = e.lanes_needed(i)
    if needed is not None:
        here = e.b.as_bits(e.active)
        with e.b.if_then(e.b.icmp_unsigned("!=", needed, here), likely=False):
            e.frame.record_lanes(needed, here)
            e.frame.fault(FAULT_KINDS.index(FaultKind.BAD_MASK))


def emit_shfl(e: InstructionEmitter, i: Instruction) -> None:
    """Take another lane's value. ``c`` holds a clamp in bits 0 to 4, a segment mask in 8 to 12 (manual, 9.7.9.6)."""
    require_lanes(e, i)
    target = i.operands[0]
    source = i.operands[1]
    b_operand = i.operands[2]
    c_operand = i.operands[3]
    b = e.b
    low_five = e.b.splat(31, 32)
    step = b.and_(e.read(b_operand, 32), low_five)
    c = e.read(c_operand, 32)
    lane = e.operands.read_special("%laneid")
    clamp = b.and_(c, low_five)
    segment = b.and_(b.lshr(c, e.b.splat(8, 32)), low_five)
    # A segment is the lanes that agree in the bits of the segment mask; the clamp is its last lane for all others.
    last = b.or_(b.and_(lane, segment), b.and_(clamp, b.not_(segment)))
    first = b.and_(lane, segment)
    # Lanes whose source is outside of their segment keep their own value, and get a false predicate.
    mode = next(m for m in i.modifiers if m in ("up", "down", "bfly", "idx"))
    # `up` takes its clamp as a lower bound: CUDA passes 0, so `last` is the first lane of the segment there.
    if mode == "up":
        source_lane = b.sub(lane, step)
        inside = b.icmp_signed(">=", source_lane, last)
    else:
        source_lane = {
            "down": lambda: b.add(lane, step),
            "bfly": lambda: b.xor(lane, step),
            "idx": lambda: b.or_(first, b.and_(step, b.not_(segment))),
        }[mode]()
        inside = b.icmp_signed("<=", source_lane, last)
    source_lane = b.select(inside, source_lane, lane)
    require_source(e, i, source_lane)
    values = permute(e, e.read(source, 32), source_lane)
    targets = items(target)
    if len(targets) > 1:
        e.write(targets[1], inside)
    e.write(targets[0], values)


def require_source(e: InstructionEmitter, i: Instruction, source_lane: Value) -> None:
    """Fault if an active lane reads from a lane that the mask names and that is not active: it is undefined."""
    b = e.b
    named = e.frame.first_lane(e.read(i.operands[-1], 32))
    here = e.b.as_bits(e.active)
    absent = b.and_(named, b.not_(here))
    with b.if_then(b.icmp_unsigned("!=", absent, I32(0)), likely=False):
        reads_absent = b.and_(b.lshr(e.b.broadcast(absent), source_lane), e.b.splat(1, 32))
        faulting = b.and_(e.active, b.icmp_unsigned("!=", reads_absent, e.b.splat(0, 32)))
        with b.if_then(b.icmp_unsigned("!=", e.b.as_bits(faulting), I32(0))):
            e.frame.record_lanes(named, here)
            e.frame.fault(FAULT_KINDS.index(FaultKind.BAD_MASK))


def permute(e: InstructionEmitter, value: Value, lanes: Value) -> Value:
    """Return ``value`` of the lane that each lane names."""
    # LLVM shuffles by constant indices only: lanes that are known at run time are gathered from memory.
    e.frame.store_row(0, value)
    row = e.b.ptrtoint(e.b.at(e.warp, row_offset(0)), I64)
    addresses = e.b.add(e.b.broadcast(row), e.b.resize(e.b.shl(lanes, e.b.splat(2, 32)), 64))
    return e.memory.gather(addresses, 32)


def row_offset(row: int) -> int:
    return field_offset(WARP, "operands") + 4 * LANES * row


def emit_vote(e: InstructionEmitter, i: Instruction) -> None:
    require_lanes(e, i)
    # ballot has 0 for lanes that do not take part.
    predicate = e.b.and_(e.read(i.operands[1], 1), e.active)
    bits = e.b.as_bits(predicate)
    active = e.b.as_bits(e.active)
    mode = next(m for m in i.modifiers if m in ("ballot", "all", "any", "uni"))
    if mode == "ballot":
        e.write(i.operands[0], e.b.broadcast(bits))
        return
    all_true = e.b.icmp_unsigned("==", bits, active)
    none_true = e.b.icmp_unsigned("==", bits, I32(0))
    result = {"all": all_true, "any": e.b.not_(none_true), "uni": e.b.or_(all_true, none_true)}[mode]
    e.write(i.operands[0], e.b.broadcast(result))


def emit_activemask(e: InstructionEmitter, i: Instruction) -> None:
    e.write(i.operands[0], e.b.broadcast(e.b.as_bits(e.active)))


def emit_redux(e: InstructionEmitter, i: Instruction) -> None:
    """Reduce an integer over the active lanes."""
    require_lanes(e, i)
    name = i.modifiers[1]
    signed = i.modifiers[-1] == "s32"
    identities = {"add": 0, "or": 0, "xor": 0, "and": -1}
    identities |= {"min": 0x7FFFFFFF, "max": -0x80000000} if signed else {"min": -1, "max": 0}
    prefix = ("s" if signed else "u") if name in ("min", "max") else ""
    # Lanes that do not take part hold the identity of the operation.
    value = e.b.select(e.active, e.read(i.operands[1], 32), e.b.splat(identities[name], 32))
    e.write(i.operands[0], e.b.broadcast(e.b.intrinsic(f"llvm.vector.reduce.{prefix}{name}.v32i32", I32, value)))


def emit_match(e: InstructionEmitter, i: Instruction) -> None:
    """Return the lanes that hold the same value (match.any), or all lanes if they agree (match.all)."""
    require_lanes(e, i)
    bits = Kind(i.modifiers[-1]).bits
    value = e.read(i.operands[1], bits)
    targets = items(i.operands[0])
    result = e.b.alloca_in_entry(ir.VectorType(I32, LANES))
    e.b.store(e.b.splat(0, 32), result)
    with e.b.each_lane(e.active) as lane:
        is_equal = e.b.icmp_unsigned("==", value, e.b.broadcast(e.b.extract_element(value, lane)))
        matching = e.b.as_bits(e.b.and_(is_equal, e.active))
        lanes = e.b.load(result, typ=ir.VectorType(I32, LANES))
        e.b.store(e.b.insert_element(lanes, matching, lane), result)
    matched = e.b.load(result, typ=ir.VectorType(I32, LANES))
    if "all" in i.modifiers:
        all_lanes = e.b.broadcast(e.b.as_bits(e.active))
        agree = e.b.icmp_unsigned("==", matched, all_lanes)
        matched = e.b.select(agree, all_lanes, e.b.splat(0, 32))
        if len(targets) > 1:
            e.write(targets[1], agree)
    e.write(targets[0], matched)


def emit_elect(e: InstructionEmitter, i: Instruction) -> None:
    """Elect the lowest lane as the leader."""
    require_lanes(e, i)
    leader, elected = items(i.operands[0])
    first = e.b.broadcast(e.frame.first_active())
    e.write(leader, first)
    e.write(elected, e.b.icmp_unsigned("==", e.operands.read_special("%laneid"), first))


def emit_bar(e: InstructionEmitter, i: Instruction) -> None:
    """Emit barriers of the warp, or of the thread block: the latter return to the scheduler."""
    if "warp" in i.modifiers:
        require_lanes(e, i)
        e.call_check("warp_sync")
        e.control.jump(e.control.index + 1)
        return
    if "cluster" in i.modifiers:
        emit_cluster_barrier(e, i)
        return
    if i.guard is not None:
        raise e.unsupported("predicated " + i.name)
    reduces = "red" in i.modifiers
    operands = list(i.operands[1:] if reduces else i.operands)
    predicate = operands.pop() if reduces else None
    number = e.frame.first_lane(e.read(operands[0], 32))
    threads = e.frame.first_lane(e.read(operands[1], 32)) if len(operands) > 1 else I32(0)
    e.b.store_field(e.warp, WARP, "barrier", number)
    e.b.store_field(e.warp, WARP, "barrier_threads", threads)
    # The warp's program counter is behind the barrier by then: messages name the barrier by its own block.
    e.b.store_field(e.warp, WARP, "barrier_block", I32(e.control.index))
    operation = next((name for name in i.modifiers if name in REDUCTIONS), "")
    e.b.store_field(e.warp, WARP, "barrier_reduces", I32(REDUCTIONS.index(operation)))
    if predicate is not None:
        e.b.store_field(e.warp, WARP, "barrier_value", e.b.as_bits(e.b.and_(e.read(predicate, 1), e.active)))
    status = Status.ARRIVED if "arrive" in i.modifiers else Status.BARRIER
    e.control.stop(status, e.control.index + 1)


def emit_barrier_result(e: InstructionEmitter, i: Instruction) -> None:
    """Return the result of bar.red, which the scheduler has reduced over the block."""
    value = e.b.broadcast(e.b.load_field(e.warp, WARP, "barrier_value", I32))
    bits = 1 if i.modifiers[-1] == "pred" else 32
    e.write(i.operands[0], e.b.icmp_unsigned("!=", value, e.b.splat(0, 32)) if bits == 1 else value)


def lanes_of_barrier(i: Instruction) -> Lanes | Operand:
    """Return the lanes of a barrier: ``bar.warp.sync`` names them, barriers of a block wait for whole warps."""
    # Without .aligned the lanes of a warp may execute it at different places (PTX ISA, "barrier.cluster").
    if "cluster" in i.modifiers and "aligned" not in i.modifiers:
        return Lanes.NONE
    return i.operands[0] if "warp" in i.modifiers else Lanes.LIVE


OPS = (
    Op("shfl", ("sync? up|down|bfly|idx b32",), emit_shfl, lanes=last_operand),
    Op("vote", ("sync? all|any|uni pred", "sync? ballot b32"), emit_vote, lanes=last_operand),
    Op("match", ("any|all sync b32|b64",), emit_match, lanes=last_operand),
    Op("redux", ("sync add|min|max u32|s32", "sync LOGIC b32"), emit_redux, lanes=last_operand),
    Op("activemask", ("b32",), emit_activemask),
    Op("elect", ("sync",), emit_elect, lanes=last_operand, since=90),
    Op(
        "bar",
        ("cta? sync|arrive", "cta? red popc u32", "cta? red and|or pred", "warp sync"),
        emit_bar,
        lanes=lanes_of_barrier,
        placement=Placement.ALONE,
        results=0,
    ),
    Op(
        "barrier",
        (
            "cta? sync|arrive aligned?",
            "cta? red popc aligned? u32",
            "cta? red and|or aligned? pred",
            "cluster arrive release|relaxed? aligned?",
            "cluster wait acquire? aligned?",
        ),
        emit_bar,
        lanes=lanes_of_barrier,
        placement=Placement.ALONE,
        results=0,
    ),
    Op("barrier_result", ("u32|pred",), emit_barrier_result),
)
