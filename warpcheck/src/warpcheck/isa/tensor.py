"""Emit tcgen05: tensor memory, and products of the tensor core in it. PTX ISA manual, section 9.7.16.

A fragment of tcgen05.ld and st has the 32-bit cell (row, column) in register r of lane l (9.7.16.2.3.1):

    32x32b      row l                          column r
    16x64b      row l / 4 + 8 (l % 2)          column l / 2 % 2 + 2 r
    16x128b     row l / 4 + 8 (r % 2)          column l % 4 + 4 (r / 2)
    16x256b     row l / 4 + 8 (r / 2 % 2)      column r % 2 + 2 (l % 4) + 8 (r / 4)
    16x32bx2    row l % 16                     column r, from lane 16 on at another address

With pack::16b or unpack::16b a register has the lower halves of two neighboring columns. ``runtime.tensor_access``,
``tensor_allocation`` and ``tensor_jobs`` check and order these instructions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from llvmlite import ir

from warpcheck.errors import FAULT_KINDS, FaultKind
from warpcheck.isa.spaces import space_of
from warpcheck.isa.tensor_products import multiplier
from warpcheck.isa.values import Value, items
from warpcheck.layout import LANES, Access, Space
from warpcheck.lower.instruction_emitter import InstructionEmitter
from warpcheck.lower.lane_builder import I32, I64
from warpcheck.lowered_kernel import AccessSite
from warpcheck.op import Lanes, Op
from warpcheck.ptx import Address, Group, Immediate, Instruction, Operand
from warpcheck.runtime.records import CTA, WARP, field_offset
from warpcheck.runtime.tensor_cells import COLUMN_BYTES
from warpcheck.runtime.tensor_copies import SPREADS
from warpcheck.runtime.tensor_jobs import KINDS
from warpcheck.runtime.wgmma_operands import CHUNK

__all__ = ["OPS"]

Position = Callable[[int, int], tuple[int, int]]
# The lanes of tensor memory, the registers for each .xN, and the place of a register, by the name of a shape.
SHAPES: Mapping[str, tuple[int, int, Position]] = {
    "32x32b": (32, 1, lambda lane, r: (lane, r)),
    "16x64b": (16, 1, lambda lane, r: (lane // 4 + 8 * (lane % 2), lane // 2 % 2 + 2 * r)),
    "16x128b": (16, 2, lambda lane, r: (lane // 4 + 8 * (r % 2), lane % 4 + 4 * (r // 2))),
    "16x256b": (16, 4, lambda lane, r: (lane // 4 + 8 * (r // 2 % 2), r % 2 + 2 * (lane % 4) + 8 * (r // 4))),
    "16x32bx2": (16, 1, lambda lane, r: (lane % 16, r)),
}

_NUMBERS = "x1|x2|x4|x8|x16|x32|x64|x128"
CODE = ir.FunctionType(I64, [I64])  # of a product; see runtime.tensor_jobs


def emit_tensor(e: InstructionEmitter, i: Instruction) -> None:
    emitter = {
        "alloc": emit_alloc,
        "dealloc": emit_dealloc,
        "relinquish_alloc_permit": lambda e, i: e.call_check("tensor_relinquish"),
        "ld": emit_load,
        "st": emit_store,
        "wait::ld": lambda e, i: e.call_check("tensor_wait", 0),
        "wait::st": lambda e, i: e.call_check("tensor_wait", 1),
        "fence::before_thread_sync": lambda e, i: e.call_check("tensor_fence", 0),
        "fence::after_thread_sync": lambda e, i: e.call_check("tensor_fence", 1),
        "mma": emit_multiply,
        "cp": emit_copy,
        "shift": emit_shift,
        "commit": emit_commit,
    }[i.modifiers[0]]
    if "sync" in i.modifiers:
        require_whole_warp(e)
    emitter(e, i)


def require_whole_warp(e: InstructionEmitter) -> None:
    """Fault if some lanes of the warp execute the instruction and others do not, by its guard."""
    here = e.b.as_bits(e.active)
    live = e.b.load_field(e.warp, WARP, "live", I32)
    is_partial = e.b.and_(e.b.icmp_unsigned("!=", here, I32(0)), e.b.icmp_unsigned("!=", here, live))
    with e.b.if_then(is_partial, likely=False):
        e.frame.record_lanes(live, here)
        e.frame.fault(FAULT_KINDS.index(FaultKind.BAD_MASK))


def lanes_of(i: Instruction) -> Lanes | Operand:
    """Return the lanes that an instruction waits for: all of them, if it is .sync.aligned."""
    return Lanes.LIVE if "sync" in i.modifiers else Lanes.NONE


def tensor_site(e: InstructionEmitter, i: Instruction, access: Access) -> Value:
    return e.unit.add_site(e.frame, AccessSite(Space.TENSOR, access, 4, 1, 0, i.line, i.name, i.ptx_line))


# Allocation


def emit_alloc(e: InstructionEmitter, i: Instruction) -> None:
    """Allocate columns, and store their address to shared memory."""
    e.frame.store_row(0, e.b.resize(e.read(i.operands[1], 32), 64))
    e.call_check("tensor_alloc", tensor_site(e, i, Access.ATOMIC))
    row = e.b.at(e.warp, field_offset(WARP, "operands"))
    address = e.b.load(row, typ=ir.VectorType(I64, LANES), align=4)
    # One lane stores for the warp.
    whole = e.frame.active
    e.frame.active = e.b.as_lanes(e.b.and_(e.b.as_bits(whole), e.b.neg(e.b.as_bits(whole))))
    space = space_of(i)
    target = e.memory.addresses(i.operands[0], space)
    e.memory.check(target, space, Access.STORE, 4)
    e.memory.scatter(target, e.b.resize(address, 32))
    e.frame.active = whole


def emit_dealloc(e: InstructionEmitter, i: Instruction) -> None:
    e.frame.store_row(0, e.b.resize(e.read(i.operands[0], 32), 64))
    e.frame.store_row(2, e.b.resize(e.read(i.operands[1], 32), 64))
    e.call_check("tensor_dealloc", tensor_site(e, i, Access.ATOMIC))


# Loads and stores


def emit_load(e: InstructionEmitter, i: Instruction) -> None:
    registers = items(i.operands[0])
    cells = check_fragment(e, i, registers, i.operands[1], i.operands[2:], Access.LOAD)
    for number, register in enumerate(registers):
        if "pack::16b" in i.modifiers:
            halves = [e.b.and_(load_cells(e, cells, number, half), e.b.splat(0xFFFF, 32)) for half in range(2)]
            e.write(register, e.b.or_(halves[0], e.b.shl(halves[1], e.b.splat(16, 32))))
        else:
            e.write(register, load_cells(e, cells, number))


def emit_store(e: InstructionEmitter, i: Instruction) -> None:
    registers = items(i.operands[-1])
    cells = check_fragment(e, i, registers, i.operands[0], i.operands[1:-1], Access.STORE)
    for number, register in enumerate(registers):
        value = e.read(register, 32)
        if "unpack::16b" in i.modifiers:
            e.memory.scatter(cells(number, 0), e.b.and_(value, e.b.splat(0xFFFF, 32)))
            e.memory.scatter(cells(number, 1), e.b.lshr(value, e.b.splat(16, 32)))
        else:
            e.memory.scatter(cells(number, None), value)


# Returns the addresses of the cells of a register, or of one of its halves.
Cells = Callable[[int, int | None], Value]


def check_fragment(
    e: InstructionEmitter,
    i: Instruction,
    registers: tuple[Operand, ...],
    address: Operand,
    split: tuple[Operand, ...],
    access: Access,
) -> Cells:
    """Check an access to a fragment; return where its cells are."""
    shape = i.modifiers[3]
    lanes, per_number, position = SHAPES[shape]
    count = per_number * int(i.modifiers[4].removeprefix("x"))
    if len(registers) != count:
        raise ValueError(f"{len(registers)} registers, not {count}")
    is_packed = "pack::16b" in i.modifiers or "unpack::16b" in i.modifiers
    columns = (1 + max(position(lane, count - 1)[1] for lane in range(LANES))) << is_packed
    place = tensor_address(e, address)
    e.frame.store_row(0, place)
    distance = e.b.splat(0, 64)
    if shape == "16x32bx2":
        (immediate,) = split
        assert isinstance(immediate, Immediate)
        distance = e.b.splat(immediate.value, 64)
    e.frame.store_row(2, distance)
    e.call_check(
        "tensor_access", tensor_site(e, i, access), (access == Access.STORE, columns, lanes, shape == "16x32bx2")
    )
    base = e.b.broadcast(e.b.load_field(e.cta, CTA, "tensor_memory", I64))
    first_column = e.b.and_(place, e.b.splat(0xFFFF, 64))
    if shape == "16x32bx2":
        upper = ir.Constant(distance.type, [-(lane >= LANES // 2) for lane in range(LANES)])
        first_column = e.b.add(first_column, e.b.and_(distance, upper))
    first_lane = e.b.lshr(place, e.b.splat(16, 64))
    first = e.b.add(base, e.b.mul(first_column, e.b.splat(COLUMN_BYTES, 64)))
    first = e.b.add(first, e.b.mul(first_lane, e.b.splat(4, 64)))

    def cells(number: int, half: int | None) -> Value:
        offsets = []
        for lane in range(LANES):
            row, column = position(lane, number)
            offsets.append(4 * row + COLUMN_BYTES * (column if half is None else 2 * column + half))
        return e.b.add(first, ir.Constant(first.type, offsets))

    return cells


def load_cells(e: InstructionEmitter, cells: Cells, number: int, half: int | None = None) -> Value:
    return e.memory.gather(cells(number, half), 32)


def tensor_address(e: InstructionEmitter, operand: Operand) -> Value:
    """Return an address in tensor memory: the column in bits 0 to 15, the lane from 16 on."""
    # Addresses of the global space are taken as they stand: tensor memory has no window.
    return e.b.and_(e.memory.addresses(operand, Space.GLOBAL), e.b.splat(0xFFFFFFFF, 64))


# Products


def emit_multiply(e: InstructionEmitter, i: Instruction) -> None:
    """Emit ``tcgen05.mma.cta_group::1.kind [d], a, b, idesc, {disable-output-lane}, enable-input-d, scale-input-d``.

    With ``.block_scale``, the addresses of the scale factors come in place of disable-output-lane.
    """
    kind = i.modifiers[2].removeprefix("kind::")
    d, a, b, descriptor, *others = i.operands
    scale_factors = []
    if "block_scale" in i.modifiers:
        scale_factors = [tensor_address(e, others.pop(0)) for _ in range(2)]
    disabled = items(others.pop(0)) if isinstance(others[0], Group) else ()
    accumulates = others.pop(0)
    scale = 0
    if others:
        (constant,) = others
        assert isinstance(constant, Immediate)
        scale = constant.value
    pairs = "cta_group::2" in i.modifiers
    if len(disabled) not in (0, 8 if pairs else 4) or not 0 <= scale < 16:
        raise ValueError(f"{len(disabled)} registers of disabled lanes, a scale of {scale}")
    a_in_tensor = isinstance(a, Address)
    rows = [
        tensor_address(e, d),
        tensor_address(e, a) if a_in_tensor else e.read(a, 64),
        e.read(b, 64),
        e.b.resize(e.read(descriptor, 32), 64),
        e.b.resize(e.read(accumulates, 1), 64),
    ]
    words = [e.b.resize(e.read(word, 32), 64) for word in disabled]
    words += [e.b.splat(0, 64)] * (8 - len(words))
    rows += [e.b.or_(low, e.b.shl(high, e.b.splat(32, 64))) for low, high in zip(words[::2], words[1::2], strict=True)]
    code = e.unit.common_function(CODE, multiplier(kind))
    rows.append(e.b.broadcast(e.b.ptrtoint(code, I64)))
    rows += scale_factors
    for row, value in enumerate(rows):
        e.frame.store_row(2 * row, value)
    number = e.unit.add_site(e.frame, AccessSite(Space.SHARED, Access.LOAD, CHUNK, 1, 0, i.line, i.name, i.ptx_line))
    tensor_site(e, i, Access.ATOMIC)
    e.call_check("tensor_multiply", number, (KINDS.index(kind), a_in_tensor, scale, pairs, _scale_groups(i)))


def _scale_groups(i: Instruction) -> int:
    """Return how many scale factors a row of A has along k, or 0."""
    if "block_scale" not in i.modifiers:
        return 0
    kind = i.modifiers[2]
    vectors = {"kind::mxf8f6f4": {"block32": 1}, "kind::mxf4": {"block32": 2}}.get(kind, {"block32": 2, "block16": 4})
    size = next((m for m in i.modifiers if m.startswith(("scale_vec", "block1", "block3"))), "block32")
    return int(size[-2]) if size.startswith("scale_vec") else vectors[size]


def emit_copy(e: InstructionEmitter, i: Instruction) -> None:
    """Copy from shared memory to tensor memory: ``tcgen05.cp.cta_group.shape.multicast.formats [taddr], s-desc``."""
    address, descriptor = i.operands
    multicast = next((m for m in i.modifiers if m.startswith("warpx")), "")
    shape = SPREADS[".".join(filter(None, [i.modifiers[2], multicast]))]
    width = 4 if "b4x16_p64" in i.modifiers else 6 if "b6x16_p32" in i.modifiers else 0
    e.frame.store_row(0, tensor_address(e, address))
    e.frame.store_row(2, e.read(descriptor, 64))
    number = e.unit.add_site(e.frame, AccessSite(Space.SHARED, Access.LOAD, CHUNK, 1, 0, i.line, i.name, i.ptx_line))
    tensor_site(e, i, Access.STORE)
    e.call_check("tensor_copy", number, (*shape, width, "cta_group::2" in i.modifiers))


def emit_shift(e: InstructionEmitter, i: Instruction) -> None:
    """Shift 32 bytes of the lanes of a warp by one: ``tcgen05.shift.cta_group.down [taddr]``."""
    e.frame.store_row(0, tensor_address(e, i.operands[0]))
    e.call_check("tensor_shift", tensor_site(e, i, Access.ATOMIC), ("cta_group::2" in i.modifiers,))


def emit_commit(e: InstructionEmitter, i: Instruction) -> None:
    """Have an mbarrier, or one at this place in each block of a mask, signaled when earlier products are complete."""
    barrier, *masks = i.operands
    space = Space.CLUSTER if "shared::cluster" in i.modifiers else Space.GENERIC
    e.frame.store_row(0, e.memory.addresses(barrier, space))
    if masks:
        e.frame.store_row(2, e.b.resize(e.read(masks[0], 16), 64))
    number = e.unit.add_site(e.frame, AccessSite(space, Access.ATOMIC, 8, 1, 0, i.line, i.name, i.ptx_line))
    e.call_check("tensor_commit", number, (bool(masks),))


def registers_read(i: Instruction) -> tuple[Operand, ...]:
    """Return the operands that are read: all of them but the registers of tcgen05.ld."""
    # The first operand of dealloc is read, and counts as written, too: only tcgen05.ld has a result, and all others
    # have an address or nothing there.
    operands = i.operands[1:] if i.modifiers[0] == "ld" else i.operands
    if i.guard is None:
        return operands
    # A load preserves its registers where its guard is false.
    return (*i.operands, i.guard)


_LOADS = (f"16x64b|16x128b|16x256b|32x32b|16x32bx2 {_NUMBERS}",)
_COLLECTOR = "|".join(f"collector::a::{usage}" for usage in ("fill", "use", "lastuse", "discard"))

_VECTORS = {"mxf8f6f4": "scale_vec::1X|block32", "mxf4": "scale_vec::2X|block32"}
_SCALED = "|".join(f"kind::{kind}.block_scale(?:.(?:{vectors}))?" for kind, vectors in _VECTORS.items())
_SCALED += "|kind::mxf4nvf4.block_scale.(?:scale_vec::2X|scale_vec::4X|block16|block32)"
_COPIES = "|".join(SPREADS)

OPS = (
    Op(
        "tcgen05",
        (
            "alloc cta_group::1|cta_group::2 sync aligned SHARED? b32",
            "dealloc cta_group::1|cta_group::2 sync aligned b32",
            "relinquish_alloc_permit cta_group::1|cta_group::2 sync aligned",
            *(f"ld sync aligned {shape} pack::16b? b32" for shape in _LOADS),
            *(f"st sync aligned {shape} unpack::16b? b32" for shape in _LOADS),
            "wait::ld|wait::st sync aligned",
            "fence::before_thread_sync|fence::after_thread_sync",
            f"mma cta_group::1|cta_group::2 {'|'.join(f'kind::{kind}' for kind in KINDS[:4])} (?:{_COLLECTOR})?",
            f"mma cta_group::1|cta_group::2 {_SCALED} (?:{_COLLECTOR})?",
            f"cp cta_group::1|cta_group::2 {_COPIES} (?:b8x16.b6x16_p32|b8x16.b4x16_p64)?",
            "shift cta_group::1|cta_group::2 down",
            "commit cta_group::1|cta_group::2 mbarrier::arrive::one CLUSTER? b64",
            "commit cta_group::1|cta_group::2 mbarrier::arrive::one CLUSTER? multicast::cluster b64",
        ),
        emit_tensor,
        lanes=lanes_of,
        reads=registers_read,
        since=100,
    ),
)
