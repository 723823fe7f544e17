"""Instructions that are more than lane-wise arithmetic: memory, control flow, and lanes working together.

``EMIT`` maps each opcode to the function that lowers it. PTX ISA manual, sections 9.7.9 to 9.7.13.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from llvmlite import ir

from kernelpath.simt import arithmetic, bitwise, comparison, conversion
from kernelpath.simt.arithmetic import Kind, Value, constant, emit_lanewise, from_bits, to_bits
from kernelpath.simt.errors import FAULT_KINDS, FaultKind
from kernelpath.simt.flow import SERVICES, argument_register
from kernelpath.simt.layout import LANES, LAUNCH, WARP, Access, Space, Status
from kernelpath.simt.ptx import Address, Group, Instruction, Operand, Symbol
from kernelpath.simt.sync import EVERYTHING

if TYPE_CHECKING:
    from kernelpath.simt.lower import Lowering

__all__ = ["EMIT"]

I1, I8, I32, I64 = (ir.IntType(bits) for bits in (1, 8, 32, 64))
_SPACES = {"global": Space.GLOBAL, "shared": Space.SHARED, "local": Space.LOCAL}
_SPACES |= {"const": Space.CONST, "param": Space.PARAM}


def space_of(i: Instruction) -> Space:
    names = (modifier.split("::")[0] for modifier in i.modifiers)
    return next((_SPACES[name] for name in names if name in _SPACES), Space.GENERIC)


def items(operand: Operand) -> tuple[Operand, ...]:
    return operand.items if isinstance(operand, Group) else (operand,)


# Loads, stores, atomics


def emit_ld(e: Lowering, i: Instruction) -> None:
    kind, space, targets = Kind(i.modifiers[-1]), space_of(i), items(i.operands[0])
    addresses = e.addresses(i.operands[1], space)
    size = kind.bits // 8
    if space != Space.PARAM:
        e.check(addresses, space, Access.LOAD, size * len(targets), len(targets))
    for part, target in enumerate(targets):
        value = e.gather(e.b.add(addresses, e.splat(part * size, 64)), kind.bits)
        e.write(target, value, signed=kind.is_signed)


def emit_st(e: Lowering, i: Instruction) -> None:
    kind, space, sources = Kind(i.modifiers[-1]), space_of(i), items(i.operands[1])
    addresses = e.addresses(i.operands[0], space)
    size = kind.bits // 8
    values = [e.read(source, kind.bits) for source in sources]
    for part, value in enumerate(values):
        e.put_row(2 * part, e.resize(value, 64))
    e.check(addresses, space, Access.STORE, size * len(sources), len(sources))
    for part, value in enumerate(values):
        e.scatter(e.b.add(addresses, e.splat(part * size, 64)), value)


def emit_atom(e: Lowering, i: Instruction) -> None:
    """atom and red: lane after lane, in their order."""
    kind, space = Kind(i.modifiers[-1]), space_of(i)
    operation = next(name for name in i.modifiers if name in ATOMIC)
    address, *sources = i.operands[i.opcode == "atom" :]
    addresses = e.addresses(address, space)
    e.check(addresses, space, Access.ATOMIC, kind.bits // 8)
    if "acq_rel" in i.modifiers or "release" in i.modifiers or "acquire" in i.modifiers:
        e.call("fence")
    values = [e.read(source, kind.bits) for source in sources]
    vector = ir.VectorType(ir.IntType(kind.bits), LANES)
    old = e.b.alloca(vector)
    e.b.store(ir.Constant(vector, None), old)
    with e.each_lane(e.active) as lane:
        place = e.b.inttoptr(e.b.extract_element(addresses, lane), ir.PointerType())
        before = e.b.load(place, typ=ir.VectorType(ir.IntType(kind.bits), 1), align=kind.bits // 8)
        mine = [single(e, value, lane) for value in values]
        after = ATOMIC[operation](e, kind, before, *mine)
        e.b.store(after, place, align=kind.bits // 8)
        updated = e.b.insert_element(e.b.load(old, typ=vector), e.b.extract_element(before, I32(0)), lane)
        e.b.store(updated, old)
    if i.opcode == "atom":
        e.write(i.operands[0], e.b.load(old, typ=vector), signed=kind.is_signed)


def single(e: Lowering, value: Value, lane: Value) -> Value:
    """One lane as a vector of one, so that lane-wise rules apply to it."""
    one = ir.VectorType(value.type.element, 1)
    return e.b.insert_element(ir.Constant(one, ir.Undefined), e.b.extract_element(value, lane), I32(0))


def _arithmetic(name: str) -> Callable[..., Value]:
    """An atomic operation that is a lane-wise instruction of the same name."""

    def apply(e: Lowering, kind: Kind, old: Value, value: Value) -> Value:
        numbers = (from_bits(e, v, kind) for v in (old, value))
        return to_bits(e, RULES[name](e, kind, *numbers), kind)

    return apply


def _increment(e: Lowering, kind: Kind, old: Value, limit: Value) -> Value:
    wraps = e.b.icmp_unsigned(">=", old, limit)
    return e.b.select(wraps, constant(old, 0), e.b.add(old, constant(old, 1)))


def _decrement(e: Lowering, kind: Kind, old: Value, limit: Value) -> Value:
    is_zero = e.b.icmp_unsigned("==", old, constant(old, 0))
    wraps = e.b.or_(is_zero, e.b.icmp_unsigned(">", old, limit))
    return e.b.select(wraps, limit, e.b.sub(old, constant(old, 1)))


def _compare_and_swap(e: Lowering, kind: Kind, old: Value, expected: Value, value: Value) -> Value:
    return e.b.select(e.b.icmp_unsigned("==", old, expected), value, old)


def _sum(e: Lowering, kind: Kind, x: Value, y: Value) -> Value:
    return e.b.fadd(x, y) if kind.is_float else e.b.add(x, y)


RULES: dict[str, Callable[..., Value]] = {
    "add": _sum,
    "min": partial(arithmetic.extreme, op="<"),
    "max": partial(arithmetic.extreme, op=">"),
    "and": bitwise.and_,
    "or": bitwise.or_,
    "xor": bitwise.xor,
}
ATOMIC: dict[str, Callable[..., Value]] = {name: _arithmetic(name) for name in RULES}
ATOMIC |= {"inc": _increment, "dec": _decrement, "cas": _compare_and_swap}
ATOMIC |= {"exch": lambda e, kind, old, value: value}


def emit_cvta(e: Lowering, i: Instruction) -> None:
    """To a generic address, which is an address of this process, or back to the window of a space."""
    space = space_of(i)
    value = e.read(i.operands[1], 64)
    if "to" not in i.modifiers:
        value = e.in_process(value, space)
    elif space in (Space.SHARED, Space.LOCAL):
        value = e.b.sub(value, e.window(space))
    e.write(i.operands[0], value)


def emit_nothing(e: Lowering, i: Instruction) -> None:
    """Hints: prefetches, cache policies, pauses."""


def emit_cp(e: Lowering, i: Instruction) -> None:
    """cp.async and the instructions that group its copies and wait for them."""
    if "commit_group" in i.modifiers:
        e.call("commit_async")
    elif "wait_group" in i.modifiers or "wait_all" in i.modifiers:
        allowed = i.operands[0].value if i.operands else EVERYTHING  # type: ignore[union-attr]
        e.call("wait_async", allowed)
    elif i.modifiers[0] == "async" and i.modifiers[1] in ("ca", "cg"):
        copy_async(e, i)
    else:
        raise e.unsupported()


def copy_async(e: Lowering, i: Instruction) -> None:
    """Copy now, and remember that nobody may look before the wait. Bytes past the source's size become zero."""
    size = i.operands[2].value  # type: ignore[union-attr]
    source = e.addresses(i.operands[1], Space.GLOBAL)
    target = e.addresses(i.operands[0], Space.SHARED)
    everyone = e.active
    given = e.splat(size, 32)
    if len(i.operands) > 3 and "cache_hint" not in i.name:
        given = e.read(i.operands[3], 32)
    e.active = e.b.and_(everyone, e.b.icmp_unsigned("!=", given, e.splat(0, 32)))
    e.check(source, Space.GLOBAL, Access.LOAD, size)
    values = []
    for place in range(0, size, 4):
        e.active = e.b.and_(everyone, e.b.icmp_unsigned(">", given, e.splat(place, 32)))
        values.append(e.gather(e.b.add(source, e.splat(place, 64)), 32))
    e.active = everyone
    e.check(target, Space.SHARED, Access.STORE, size)
    for place, value in zip(range(0, size, 4), values, strict=True):
        e.scatter(e.b.add(target, e.splat(place, 64)), value)
    e.call("copy_async", size)


def emit_createpolicy(e: Lowering, i: Instruction) -> None:
    e.write(i.operands[0], e.splat(0, 64))


def emit_fence(e: Lowering, i: Instruction) -> None:
    """membar and fence: what a thread block wrote before is published to the others."""
    if "cta" not in i.modifiers:
        e.call("fence")


# Control flow


def emit_bra(e: Lowering, i: Instruction) -> None:
    target = block_of(e, i.operands[0])
    if i.guard is None:
        e.leave(target)
    else:
        e.branch(e.active, target, e.index + 1)


def emit_brx(e: Lowering, i: Instruction) -> None:
    table = i.operands[1]
    assert isinstance(table, Symbol)
    targets = [block_of(e, Symbol(name)) for name in e.flow.tables[table.name]]
    e.branch_table(e.read(i.operands[0], 32), targets)


def block_of(e: Lowering, label: Operand) -> int:
    assert isinstance(label, Symbol)
    return e.flow.targets.get(label.name, len(e.heads))


def emit_exit(e: Lowering, i: Instruction) -> None:
    e.exit()


def emit_trap(e: Lowering, i: Instruction) -> None:
    with e.b.if_then(e.b.icmp_unsigned("!=", e.as_bits(e.active), I32(0))):
        e.fault(FAULT_KINDS.index(FaultKind.TRAP), e.first_active())
    e.leave(e.index + 1)


def emit_call(e: Lowering, i: Instruction) -> None:
    """A function of the host, by its number in SERVICES, with up to four arguments in the rows of operands."""
    callee, arguments = i.operands[-2:]
    assert isinstance(arguments, Group)
    assert isinstance(callee, Symbol)
    for number, argument in enumerate(arguments.items[:4]):
        assert isinstance(argument, Symbol)
        register = e.read_register(argument_register(argument.name, 0))
        e.put_row(2 * number, e.resize(register, 64))
    e.store_field(e.warp, WARP, "barrier", I32(SERVICES.index(callee.name)))
    e.store_field(e.warp, WARP, "barrier_block", I32(e.index))
    e.stop(Status.HOST, e.index + 1)


# Lanes together


def require_lanes(e: Lowering, i: Instruction) -> None:
    """Fault unless exactly the lanes that the instruction names are active."""
    needed = e.lanes_needed(i)
    if needed is not None:
        missing = e.b.icmp_unsigned("!=", needed, e.as_bits(e.active))
        with e.b.if_then(missing, likely=False):
            e.fault(FAULT_KINDS.index(FaultKind.BAD_MASK), e.first_active())


def emit_shfl(e: Lowering, i: Instruction) -> None:
    """Take another lane's value; manual, 9.7.9.6: ``c`` holds a clamp in bits 0 to 4, a segment mask in 8 to 12."""
    require_lanes(e, i)
    target, source, b_operand, c_operand = i.operands[0], i.operands[1], i.operands[2], i.operands[3]
    b, five = e.b, e.splat(31, 32)
    step, c = b.and_(e.read(b_operand, 32), five), e.read(c_operand, 32)
    lane, clamp = e.read_special("%laneid"), b.and_(c, five)
    segment = b.and_(b.lshr(c, e.splat(8, 32)), five)
    last = b.or_(b.and_(lane, segment), b.and_(clamp, b.not_(segment)))
    first = b.and_(lane, segment)
    mode = next(m for m in i.modifiers if m in ("up", "down", "bfly", "idx"))
    if mode == "up":
        wanted = b.sub(lane, step)
        inside = b.icmp_signed(">=", wanted, last)
    else:
        wanted = {
            "down": lambda: b.add(lane, step),
            "bfly": lambda: b.xor(lane, step),
            "idx": lambda: b.or_(first, b.and_(step, b.not_(segment))),
        }[mode]()
        inside = b.icmp_signed("<=", wanted, last)
    wanted = b.select(inside, wanted, lane)
    values = permute(e, e.read(source, 32), wanted)
    targets = items(target)
    if len(targets) > 1:
        e.write(targets[1], inside)
    e.write(targets[0], values)


def permute(e: Lowering, value: Value, lanes: Value) -> Value:
    """``value`` of the lane that each lane names."""
    e.put_row(0, value)
    row = e.b.ptrtoint(e.at(e.warp, row_offset(0)), I64)
    places = e.b.add(e.broadcast(row), e.resize(e.b.shl(lanes, e.splat(2, 32)), 64))
    return e.gather(places, 32)


def row_offset(row: int) -> int:
    fields = WARP.fields
    assert fields is not None
    return int(fields["operands"][1]) + 4 * LANES * row


def emit_vote(e: Lowering, i: Instruction) -> None:
    require_lanes(e, i)
    predicate = e.b.and_(e.read(i.operands[1], 1), e.active)
    bits, active = e.as_bits(predicate), e.as_bits(e.active)
    mode = next(m for m in i.modifiers if m in ("ballot", "all", "any", "uni"))
    if mode == "ballot":
        e.write(i.operands[0], e.broadcast(bits))
        return
    every, none = e.b.icmp_unsigned("==", bits, active), e.b.icmp_unsigned("==", bits, I32(0))
    result = {"all": every, "any": e.b.not_(none), "uni": e.b.or_(every, none)}[mode]
    e.write(i.operands[0], e.broadcast(result))


def emit_activemask(e: Lowering, i: Instruction) -> None:
    e.write(i.operands[0], e.broadcast(e.as_bits(e.active)))


def emit_redux(e: Lowering, i: Instruction) -> None:
    """Reduce an integer over the active lanes."""
    require_lanes(e, i)
    name, signed = i.modifiers[1], i.modifiers[-1] == "s32"
    identities = {"add": 0, "or": 0, "xor": 0, "and": -1}
    identities |= {"min": 0x7FFFFFFF, "max": -0x80000000} if signed else {"min": -1, "max": 0}
    prefix = ("s" if signed else "u") if name in ("min", "max") else ""
    value = e.b.select(e.active, e.read(i.operands[1], 32), e.splat(identities[name], 32))
    e.write(i.operands[0], e.broadcast(e.intrinsic(f"llvm.vector.reduce.{prefix}{name}.v32i32", I32, value)))


def emit_match(e: Lowering, i: Instruction) -> None:
    """match.any: the lanes that hold the same value; match.all: all lanes, where they agree."""
    require_lanes(e, i)
    bits = Kind(i.modifiers[-1]).bits
    value = e.read(i.operands[1], bits)
    targets = items(i.operands[0])
    result = e.b.alloca(ir.VectorType(I32, LANES))
    e.b.store(e.splat(0, 32), result)
    with e.each_lane(e.active) as lane:
        same = e.b.icmp_unsigned("==", value, e.broadcast(e.b.extract_element(value, lane)))
        bits_here = e.as_bits(e.b.and_(same, e.active))
        lanes = e.b.load(result, typ=ir.VectorType(I32, LANES))
        e.b.store(e.b.insert_element(lanes, bits_here, lane), result)
    matched = e.b.load(result, typ=ir.VectorType(I32, LANES))
    if "all" in i.modifiers:
        everyone = e.broadcast(e.as_bits(e.active))
        agree = e.b.icmp_unsigned("==", matched, everyone)
        matched = e.b.select(agree, everyone, e.splat(0, 32))
        if len(targets) > 1:
            e.write(targets[1], agree)
    e.write(targets[0], matched)


def emit_bar(e: Lowering, i: Instruction) -> None:
    """Barriers of the warp, or of the thread block: those are left to the scheduler."""
    if "warp" in i.modifiers:
        require_lanes(e, i)
        e.call("warp_sync")
        e.leave(e.index + 1)
        return
    if i.guard is not None:
        raise e.unsupported("predicated " + i.name)
    reduces = "red" in i.modifiers
    operands = list(i.operands[1:] if reduces else i.operands)
    predicate = operands.pop() if reduces else None
    number = e.first_lane(e.read(operands[0], 32))
    threads = e.first_lane(e.read(operands[1], 32)) if len(operands) > 1 else I32(0)
    e.store_field(e.warp, WARP, "barrier", number)
    e.store_field(e.warp, WARP, "barrier_threads", threads)
    e.store_field(e.warp, WARP, "barrier_block", I32(e.index))
    e.store_field(e.warp, WARP, "barrier_reduces", I32(int(reduces)))
    if predicate is not None:
        e.store_field(e.warp, WARP, "barrier_value", e.as_bits(e.b.and_(e.read(predicate, 1), e.active)))
    status = Status.ARRIVED if "arrive" in i.modifiers else Status.BARRIER
    e.stop(status, e.index + 1)


def emit_barrier_result(e: Lowering, i: Instruction) -> None:
    """What bar.red gives, once the scheduler has reduced it over the block."""
    value = e.broadcast(e.load_field(e.warp, WARP, "barrier_value", I32))
    bits = 1 if i.modifiers[-1] == "pred" else 32
    e.write(i.operands[0], e.b.icmp_unsigned("!=", value, e.splat(0, 32)) if bits == 1 else value)


EMIT: dict[str, Callable[[Lowering, Instruction], None]] = dict.fromkeys(arithmetic.LANEWISE, emit_lanewise)
EMIT |= {
    "shl": bitwise.emit_shift,
    "shr": bitwise.emit_shift,
    "lop3": bitwise.emit_lop3,
    "set": comparison.emit_set,
    "setp": comparison.emit_setp,
    "selp": comparison.emit_selp,
    "slct": comparison.emit_slct,
    "testp": comparison.emit_testp,
    "cvt": conversion.emit_cvt,
    "mov": conversion.emit_mov,
    "ld": emit_ld,
    "ldu": emit_ld,
    "st": emit_st,
    "atom": emit_atom,
    "red": emit_atom,
    "cvta": emit_cvta,
    "prefetch": emit_nothing,
    "prefetchu": emit_nothing,
    "nanosleep": emit_nothing,
    "pmevent": emit_nothing,
    "applypriority": emit_nothing,
    "createpolicy": emit_createpolicy,
    "cp": emit_cp,
    "membar": emit_fence,
    "fence": emit_fence,
    "bra": emit_bra,
    "brx": emit_brx,
    "ret": emit_exit,
    "exit": emit_exit,
    "trap": emit_trap,
    "call": emit_call,
    "shfl": emit_shfl,
    "vote": emit_vote,
    "activemask": emit_activemask,
    "redux": emit_redux,
    "match": emit_match,
    "bar": emit_bar,
    "barrier": emit_bar,
    "barrier_result": emit_barrier_result,
}
_ = (Address, I1, I8, LAUNCH)
