"""Emit loads, stores and conversions of addresses. PTX ISA manual, 9.7.9 and 9.7.13."""

from __future__ import annotations

from llvmlite import ir

from warpcheck.isa.mbarrier import complete_tx
from warpcheck.isa.spaces import space_of, without_hint
from warpcheck.isa.values import Kind, Value, items
from warpcheck.layout import Access, Space, Status
from warpcheck.lower.instruction_emitter import InstructionEmitter
from warpcheck.lower.lane_builder import I32, I64
from warpcheck.lower.memory_access import WINDOWS
from warpcheck.op import Op, Placement, registers
from warpcheck.ptx import Instruction
from warpcheck.runtime.address_spaces import RANK
from warpcheck.runtime.records import CTA, LAUNCH

__all__ = ["OPS", "space_of", "without_hint"]


def emit_ld(e: InstructionEmitter, i: Instruction) -> None:
    kind = Kind(i.modifiers[-1])
    space = space_of(i)
    targets = items(i.operands[0])
    addresses = e.memory.addresses(i.operands[1], space)
    size = kind.bits // 8
    # A parameter at a constant offset always exists, and the host has written it.
    if registers(i.operands[1:]) or space != Space.PARAM:
        e.memory.check_load(addresses, space, size * len(targets), len(targets))
    if "acquire" in i.modifiers:
        e.call_check("acquire", int("cta" not in i.modifiers))
    elif e.memory.use.polls:
        e.call_check("acquire_polled")
    for part, target in enumerate(targets):
        value = e.memory.gather(e.b.add(addresses, e.b.splat(part * size, 64)), kind.bits)
        e.write(target, value, signed=kind.is_signed)


def emit_st(e: InstructionEmitter, i: Instruction) -> None:
    kind = Kind(i.modifiers[-1])
    space = space_of(i)
    sources = items(i.operands[1])
    addresses = e.memory.addresses(i.operands[0], space)
    size = kind.bits // 8
    # As in atomics.emit_atom: the release comes first.
    if "release" in i.modifiers:
        e.call_check("fence", int("cta" not in i.modifiers))
    values = [e.read(source, kind.bits) for source in sources]
    # The check compares what lanes store at one address: equal values are no race.
    for part, value in enumerate(values):
        e.frame.store_row(2 * part, e.b.resize(value, 64))
    e.memory.check(addresses, space, Access.STORE, size * len(sources), len(sources))
    for part, value in enumerate(values):
        e.memory.scatter(e.b.add(addresses, e.b.splat(part * size, 64)), value)
    # st.async signals the mbarrier when its bytes have landed, which is at once here.
    if "async" in i.modifiers:
        complete_tx(e, i.operands[2], e.b.splat(size * len(sources), 32))


def emit_cvta(e: InstructionEmitter, i: Instruction) -> None:
    """Convert to a generic address, which is an address of this process, or back to the window of a space."""
    space = space_of(i)
    value = e.read(i.operands[1], 64)
    if "to" not in i.modifiers:
        value = e.memory.in_process(value, space)
    elif space in WINDOWS:
        value = e.b.sub(value, e.memory.window(space))
    e.write(i.operands[0], value)


def emit_isspacep(e: InstructionEmitter, i: Instruction) -> None:
    """Test whether a generic address is in a space.

    PTX ISA, "Generic Addressing": an address that is in no other window is in global memory, and so are parameters.
    """
    address = e.read(i.operands[1], 64)

    def is_within(start: ir.Value, extent: ir.Value) -> Value:
        # One unsigned comparison: an address before the window wraps around to a large number.
        return e.b.icmp_unsigned("<", e.b.sub(address, e.b.broadcast(start)), e.b.broadcast(extent))

    def of_block(field: str) -> ir.Value:
        return e.b.load_field(e.cta, CTA, field, I64)

    def of_launch(field: str) -> ir.Value:
        return e.b.load_field(e.launch, LAUNCH, field, I64)

    shared = is_within(of_block("shared"), e.b.zext(e.b.load_field(e.launch, LAUNCH, "shared_bytes", I32), I64))
    local = is_within(of_block("local"), of_launch("local_total"))
    constant = is_within(of_launch("const_began"), of_launch("const_bytes"))
    cluster = shared
    if e.layout.in_cluster:
        peers = e.b.shl(e.b.sub(of_launch("cluster_size"), I64(1)), I64(RANK))
        cluster = e.b.or_(shared, is_within(of_block("window"), peers))
    inside = {
        Space.SHARED: shared,
        Space.CLUSTER: cluster,
        Space.LOCAL: local,
        Space.CONST: constant,
        Space.PARAM: is_within(of_launch("params"), of_launch("param_bytes")),
        Space.GLOBAL: e.b.not_(e.b.or_(e.b.or_(cluster, local), constant)),
    }
    e.write(i.operands[0], inside[space_of(i)])


def emit_createpolicy(e: InstructionEmitter, i: Instruction) -> None:
    # A cache policy changes no result, so its bits do not matter.
    e.write(i.operands[0], e.b.splat(0, 64))


def emit_nanosleep(e: InstructionEmitter, i: Instruction) -> None:
    """End the warp's slice: the other warps run first."""
    e.control.stop(Status.PREEMPTED, e.control.index + 1)


def emit_nothing(e: InstructionEmitter, i: Instruction) -> None:
    """Ignore a hint: prefetches, cache policies."""


_CACHED = "CACHE? nc? EVICT1? EVICT2? HINT? PREFETCH?"
_MEMORY = f"{_CACHED} v2|v4? b8|u8|s8|BITS|INTEGER|FLOAT"

OPS = (
    Op(
        "ld",
        (
            "weak|volatile? SPACE? " + _MEMORY,
            f"weak? global? {_CACHED} v8 b32|u32|s32|f32",
            "relaxed|acquire SCOPE SPACE? " + _MEMORY,
            # ptxas also accepts the space in front, as Triton and CUTLASS write it.
            "SPACE SCOPE relaxed|acquire " + _MEMORY,
            "SPACE relaxed|acquire SCOPE " + _MEMORY,
        ),
        emit_ld,
    ),
    Op("ldu", ("global? v2|v4? b8|u8|s8|BITS|INTEGER|FLOAT",), emit_ld),
    Op(
        "st",
        (
            "weak|volatile? SPACE? " + _MEMORY,
            f"weak? global? {_CACHED} v8 b32|u32|s32|f32",
            "relaxed|release SCOPE SPACE? " + _MEMORY,
            "SPACE SCOPE relaxed|release " + _MEMORY,
            "SPACE relaxed|release SCOPE " + _MEMORY,
            "async weak? CLUSTER? mbarrier::complete_tx::bytes v2|v4? b32|b64|u32|u64|s32|s64|FLOAT",
        ),
        emit_st,
        results=0,
    ),
    Op("cvta", ("to? SPACE u64",), emit_cvta),
    Op("isspacep", ("global|const|local|SHARED|CLUSTER|param(?:::entry)?",), emit_isspacep),
    Op("createpolicy", ("fractional|range global? EVICT2 EVICT2? b64",), emit_createpolicy),
    Op("prefetch", ("global|local? L1|L2", "global EVICT2", "SPACE? tensormap"), emit_nothing, results=0),
    Op("prefetchu", ("L1",), emit_nothing, results=0),
    Op("applypriority", ("global? EVICT2",), emit_nothing, results=0),
    Op("nanosleep", ("u32",), emit_nanosleep, placement=Placement.ALONE, results=0),
    Op("pmevent", ("mask?",), emit_nothing, results=0),
)
