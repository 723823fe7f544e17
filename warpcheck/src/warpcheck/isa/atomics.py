"""Emit atomic operations: lane after lane, in ascending order. PTX ISA manual, 9.7.13."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from llvmlite import ir

from warpcheck.isa import bitwise
from warpcheck.isa.arithmetic import minimum_or_maximum
from warpcheck.isa.mbarrier import complete_tx
from warpcheck.isa.spaces import space_of, without_hint
from warpcheck.isa.values import Kind, Value, constant, from_bits, items, to_bits
from warpcheck.layout import LANES, Access
from warpcheck.lower.instruction_emitter import InstructionEmitter
from warpcheck.lower.lane_builder import I32, LaneBuilder
from warpcheck.op import Op
from warpcheck.ptx import Group, Instruction, Operand

__all__ = ["OPS", "update"]


def emit_atom(e: InstructionEmitter, i: Instruction) -> None:
    """Emit atom and red."""
    kind = Kind(i.modifiers[-1])
    space = space_of(i)
    operation = next(name for name in i.modifiers if name in ATOMIC)
    address, *sources = without_hint(i)[i.opcode == "atom" :]
    addresses = e.memory.addresses(address, space)
    if isinstance(sources[0], Group):
        update_each(e, i, addresses, sources[0].items)
        return
    barrier = sources.pop() if "async" in i.modifiers else None
    values = [e.read(source, kind.bits) for source in sources]
    # The check needs both values to see whether a 16-bit half stays as it is.
    half = operation == "cas" and kind.bits == 32
    for row, value in enumerate(values if half else ()):
        e.frame.store_row(2 * row, e.b.resize(value, 64))
    # A release comes before the operation (PTX ISA, "Release and Acquire Patterns"). Bit 0 of its argument: at a scope
    # wider than the block, other blocks find it, too; see sync.fence.
    if "acq_rel" in i.modifiers or "release" in i.modifiers:
        e.call_check("fence", int("cta" not in i.modifiers))
    e.memory.check(addresses, space, Access.ATOMIC, kind.bits // 8, half=half)
    # The check records whose values the lanes find here; to acquire is to be ordered behind those.
    acquire(e, i)
    old = update(e, addresses, kind, values, ATOMIC[operation])
    if i.opcode == "atom":
        e.write(i.operands[0], old, signed=kind.is_signed)
    # red.async signals its mbarrier when it has been performed, which is at once here.
    if barrier is not None:
        complete_tx(e, barrier, e.b.splat(kind.bits // 8, 32))


def acquire(e: InstructionEmitter, i: Instruction) -> None:
    """Order the warp behind what the writers of the values found here had released."""
    if "acq_rel" in i.modifiers or "acquire" in i.modifiers:
        e.call_check("acquire", int("cta" not in i.modifiers))


def update_each(e: InstructionEmitter, i: Instruction, addresses: Value, sources: Sequence[Operand]) -> None:
    """Emit a vector operation on contiguous elements: each is updated by itself."""
    kind = Kind(i.modifiers[-1])
    operation = next(name for name in i.modifiers if name in ATOMIC)
    size = kind.bits // 8
    if "acq_rel" in i.modifiers or "release" in i.modifiers:
        e.call_check("fence", int("cta" not in i.modifiers))
    e.memory.check(addresses, space_of(i), Access.ATOMIC, size * len(sources), len(sources))
    acquire(e, i)
    # PTX ISA, "atom": each element of a vector is atomic by itself, not the vector.
    for index, source in enumerate(sources):
        element_addresses = e.b.add(addresses, e.b.splat(index * size, 64))
        old = update(e, element_addresses, kind, [e.read(source, kind.bits)], ATOMIC[operation])
        if i.opcode == "atom":
            e.write(items(i.operands[0])[index], old)


def update(
    e: InstructionEmitter, addresses: Value, kind: Kind, values: Sequence[Value], rule: Callable[..., Value]
) -> Value:
    """Store ``rule(e, kind, old, *values)``, lane after lane. Return the previous values."""
    vector = ir.VectorType(ir.IntType(kind.bits), LANES)
    old = e.b.alloca_in_entry(vector)
    e.b.store(ir.Constant(vector, None), old)
    # Lanes with the same address have to see each other's results, so this is a loop and no vector operation.
    with e.b.each_lane(e.active) as lane:
        pointer = e.b.inttoptr(e.b.extract_element(addresses, lane), ir.PointerType())
        previous = e.b.load(pointer, typ=ir.VectorType(ir.IntType(kind.bits), 1), align=kind.bits // 8)
        operands = [single(e.b, value, lane) for value in values]
        e.b.store(rule(e, kind, previous, *operands), pointer, align=kind.bits // 8)
        updated = e.b.insert_element(e.b.load(old, typ=vector), e.b.extract_element(previous, I32(0)), lane)
        e.b.store(updated, old)
    return e.b.load(old, typ=vector)


def single(b: LaneBuilder, value: Value, lane: Value) -> Value:
    """Return one lane as a vector of length one, so that lane-wise rules apply to it."""
    vector = ir.VectorType(value.type.element, 1)
    return b.insert_element(ir.Constant(vector, ir.Undefined), b.extract_element(value, lane), I32(0))


def _arithmetic(name: str) -> Callable[..., Value]:
    """Return the rule of an atomic operation that is the lane-wise instruction of the same name."""

    def apply(e: InstructionEmitter, kind: Kind, old: Value, value: Value) -> Value:
        numbers = (from_bits(e.b, v, kind) for v in (old, value))
        return to_bits(e.b, RULES[name](e, kind, *numbers), kind)

    return apply


def _increment(e: InstructionEmitter, kind: Kind, old: Value, limit: Value) -> Value:
    wraps = e.b.icmp_unsigned(">=", old, limit)
    return e.b.select(wraps, constant(old, 0), e.b.add(old, constant(old, 1)))


def _decrement(e: InstructionEmitter, kind: Kind, old: Value, limit: Value) -> Value:
    is_zero = e.b.icmp_unsigned("==", old, constant(old, 0))
    wraps = e.b.or_(is_zero, e.b.icmp_unsigned(">", old, limit))
    return e.b.select(wraps, limit, e.b.sub(old, constant(old, 1)))


def _compare_and_swap(e: InstructionEmitter, kind: Kind, old: Value, expected: Value, value: Value) -> Value:
    return e.b.select(e.b.icmp_unsigned("==", old, expected), value, old)


def _sum(e: InstructionEmitter, kind: Kind, x: Value, y: Value) -> Value:
    # Not arithmetic.add, which reads modifiers of the instruction add: sat, cc and a rounding.
    return e.b.fadd(x, y) if kind.is_float else e.b.add(x, y)


RULES: dict[str, Callable[..., Value]] = {
    "add": _sum,
    "min": partial(minimum_or_maximum, op="<"),
    "max": partial(minimum_or_maximum, op=">"),
    "and": bitwise.and_,
    "or": bitwise.or_,
    "xor": bitwise.xor,
}
ATOMIC: dict[str, Callable[..., Value]] = {name: _arithmetic(name) for name in RULES}
# These take bits and ignore their type, so they need no conversion.
ATOMIC |= {"inc": _increment, "dec": _decrement, "cas": _compare_and_swap}
ATOMIC |= {"exch": lambda e, kind, old, value: value}

_UPDATES = (
    "add|min|max HINT? WORD",
    "add HINT? FLOAT",
    "add noftz HINT? HALF|BHALF",
    "inc|dec HINT? u32",
    "LOGIC HINT? b32|b64",
)
# Vectors, in global memory alone
_VECTORS = (
    "add HINT? v2|v4 f32",
    "add|min|max noftz HINT? v2|v4|v8 f16|bf16",
    "add|min|max noftz HINT? v2|v4 f16x2|bf16x2",
)
_SWAPS = ("exch HINT? b32|b64", "cas HINT? BITS")
_ORDER = "relaxed|acquire|release|acq_rel?"
# The manual's, and those of Triton's atomic operations and of its compare-and-swap
_ORDERS = (f"{_ORDER} SCOPE? SPACE?", f"SPACE? SCOPE? {_ORDER}", f"SPACE? {_ORDER} SCOPE?")


def _variants(*operations: str) -> tuple[str, ...]:
    """Return the memory order before an operation, or after its name, as in the headers of cuda::atomic."""
    before = [f"{order} {operation}" for order in _ORDERS for operation in operations]
    return (*before, *(operation.replace(" ", f" {_ORDER} SCOPE? SPACE? ", 1) for operation in operations))


def _vectors() -> list[str]:
    return [variant.replace("SPACE", "global") for variant in _variants(*_VECTORS)]


_ASYNC = "async relaxed? cluster? CLUSTER? mbarrier::complete_tx::bytes "
_ASYNC_UPDATES = ("add|min|max u32|s32", "add u64", "inc|dec u32", "LOGIC b32")

OPS = (
    Op("atom", (*_variants(*_UPDATES, *_SWAPS), *_vectors()), emit_atom),
    Op(
        "red",
        (*_variants(*_UPDATES), *_vectors(), *(_ASYNC + update for update in _ASYNC_UPDATES)),
        emit_atom,
        results=0,
    ),
)
