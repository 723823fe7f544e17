"""Instructions that touch memory: loads, stores, atomics, asynchronous copies. PTX ISA manual, 9.7.9 and 9.7.13."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from llvmlite import ir

from kernelpath.simt import arithmetic, bitwise
from kernelpath.simt.arithmetic import Kind, Value, constant, from_bits, to_bits
from kernelpath.simt.layout import LANES, LAUNCH, Access, Space
from kernelpath.simt.ptx import Group, Instruction, Not, Operand, Register
from kernelpath.simt.sync import EVERYTHING

if TYPE_CHECKING:
    from kernelpath.simt.lower import Lowering

__all__ = ["TRANSFERS", "items", "space_of"]

I32, I64 = ir.IntType(32), ir.IntType(64)
_SPACES = {"global": Space.GLOBAL, "shared": Space.SHARED, "local": Space.LOCAL}
_SPACES |= {"const": Space.CONST, "param": Space.PARAM}


def space_of(i: Instruction) -> Space:
    names = (modifier.split("::")[0] for modifier in i.modifiers)
    return next((_SPACES[name] for name in names if name in _SPACES), Space.GENERIC)


def items(operand: Operand) -> tuple[Operand, ...]:
    return operand.items if isinstance(operand, Group) else (operand,)


def without_hint(i: Instruction) -> tuple[Operand, ...]:
    """The operands but for a cache policy, which is the last."""
    return i.operands[:-1] if "L2::cache_hint" in i.modifiers else i.operands


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
    if "release" in i.modifiers:
        e.call("fence")
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
    address, *sources = without_hint(i)[i.opcode == "atom" :]
    addresses = e.addresses(address, space)
    e.check(addresses, space, Access.ATOMIC, kind.bits // 8)
    if "acq_rel" in i.modifiers or "release" in i.modifiers or "acquire" in i.modifiers:
        e.call("fence")
    values = [e.read(source, kind.bits) for source in sources]
    vector = ir.VectorType(ir.IntType(kind.bits), LANES)
    old = e.room(vector)
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


def emit_isspacep(e: Lowering, i: Instruction) -> None:
    """Whether a generic address lies in a space."""
    address = e.read(i.operands[1], 64)

    def lies_in(window: str, extent: ir.Value) -> Value:
        begin = e.broadcast(e.load_field(e.launch, LAUNCH, window, I64))
        return e.b.icmp_unsigned("<", e.b.sub(address, begin), e.broadcast(extent))

    shared = lies_in("shared", e.b.zext(e.load_field(e.launch, LAUNCH, "shared_bytes", I32), I64))
    local = lies_in("local", e.load_field(e.launch, LAUNCH, "local_total", I64))
    inside = {Space.SHARED: shared, Space.LOCAL: local, Space.GLOBAL: e.b.not_(e.b.or_(shared, local))}
    e.write(i.operands[0], inside[space_of(i)])


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
    """Copy now, and remember that nobody may look before the wait. Bytes past those that are given become zero."""
    size = i.operands[2].value  # type: ignore[union-attr]
    source = e.addresses(i.operands[1], Space.GLOBAL)
    target = e.addresses(i.operands[0], Space.SHARED)
    everyone, given = e.active, bytes_given(e, i, size)
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
    e.check(target, Space.SHARED, Access.STORE, size)
    for place, value in zip(range(0, size, 4), values, strict=True):
        e.scatter(e.b.add(target, e.splat(place, 64)), value)
    e.call("copy_async", size)


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
    kept = bitwise.shift(e, e.b.shl, e.splat(-1, 32), bits, e.splat(0, 32))
    return e.b.and_(word, e.b.not_(kept))


def emit_createpolicy(e: Lowering, i: Instruction) -> None:
    e.write(i.operands[0], e.splat(0, 64))


def emit_fence(e: Lowering, i: Instruction) -> None:
    """membar and fence: what a thread block wrote before is published to the others."""
    if "cta" not in i.modifiers:
        e.call("fence")


TRANSFERS: dict[str, Callable[[Lowering, Instruction], None]] = {
    "ld": emit_ld,
    "ldu": emit_ld,
    "st": emit_st,
    "atom": emit_atom,
    "red": emit_atom,
    "cp": emit_cp,
    "cvta": emit_cvta,
    "isspacep": emit_isspacep,
    "createpolicy": emit_createpolicy,
    "membar": emit_fence,
    "fence": emit_fence,
}
TRANSFERS |= dict.fromkeys(("prefetch", "prefetchu", "nanosleep", "pmevent", "applypriority"), emit_nothing)
