"""Emit bulk and tensor copies, and changes of tensor maps.

PTX ISA manual, "Asynchronous copy", "tensormap.replace".

The description of a copy goes to ``runtime.bulk`` above its site's number, which has 32 bits:

    bits 0-2  direction     bits 3-5  axes, 0 for a range of bytes     bits 6-9  operation of a reduction
    bits 10-13  element type of a reduction                            bit 14    multicast
    bit 15  cta_group::2                                               bit 16    four rows (gather4, scatter4)
    bit 17  im2col mode                                                bit 18    with im2col offsets

Its operands are rows of 64 bits.
"""

from __future__ import annotations

from warpcheck.isa.spaces import space_of, without_hint
from warpcheck.isa.values import Value, items
from warpcheck.layout import Access, Space
from warpcheck.lower.instruction_emitter import InstructionEmitter
from warpcheck.lowered_kernel import AccessSite
from warpcheck.op import Op
from warpcheck.ptx import Address, Immediate, Instruction, Operand, Symbol
from warpcheck.runtime.boxes import Direction
from warpcheck.runtime.bulk import READ
from warpcheck.runtime.bulk_issue import (
    FIRST_COORDINATE_ROW,
    FIRST_OFFSET_ROW,
    GLOBAL_ROW,
    NBYTES_ROW,
    SHARED_ROW,
    TARGETS_ROW,
    TRACKER_ROW,
)
from warpcheck.runtime.reductions import ElementKind, Operation, reduces

__all__ = ["OPS", "VARIANTS", "emit_bulk"]

_TRACKED = "mbarrier::complete_tx::bytes"
_REDUCTION = "add|min|max|inc|dec|and|or|xor"
_AXES = "1d|2d|3d|4d|5d"
_IMAGES = "3d|4d|5d"
_PAIR = "cta_group::1|cta_group::2"

# The variants of the opcode cp.
VARIANTS = (
    f"async bulk SHARED|CLUSTER global {_TRACKED} multicast::cluster? HINT?",
    f"async bulk CLUSTER SHARED {_TRACKED}",
    "async bulk global SHARED bulk_group HINT?",
    "async bulk prefetch L2 global HINT?",
    f"async bulk tensor {_AXES} SHARED|CLUSTER global tile? {_TRACKED} multicast::cluster? HINT?",
    # The CuTe DSL has the hint in front of the group of blocks, the PTX ISA behind it, and CUTLASS has the group first.
    f"async bulk tensor {_AXES} {_PAIR} CLUSTER global tile? {_TRACKED} multicast::cluster? HINT?",
    f"async bulk tensor {_AXES} SHARED|CLUSTER global tile? {_TRACKED} multicast::cluster? {_PAIR} HINT?",
    f"async bulk tensor {_AXES} SHARED|CLUSTER global tile? {_TRACKED} multicast::cluster? HINT {_PAIR}",
    f"async bulk tensor 2d SHARED|CLUSTER global tile::gather4 {_TRACKED} multicast::cluster? HINT?",
    f"async bulk tensor 2d SHARED|CLUSTER global tile::gather4 {_TRACKED} multicast::cluster? {_PAIR} HINT?",
    "async bulk tensor 2d global SHARED tile::scatter4 bulk_group HINT?",
    "async bulk prefetch tensor 2d L2 global tile::gather4 HINT?",
    f"async bulk tensor {_IMAGES} SHARED|CLUSTER global im2col {_TRACKED} multicast::cluster? HINT?",
    f"async bulk tensor {_IMAGES} {_PAIR} CLUSTER global im2col {_TRACKED} multicast::cluster? HINT?",
    f"async bulk tensor {_IMAGES} SHARED|CLUSTER global im2col {_TRACKED} multicast::cluster? {_PAIR} HINT?",
    f"async bulk tensor {_IMAGES} SHARED|CLUSTER global im2col {_TRACKED} multicast::cluster? HINT {_PAIR}",
    f"async bulk tensor {_IMAGES} global SHARED im2col_no_offs bulk_group HINT?",
    f"async bulk prefetch tensor {_IMAGES} L2 global im2col HINT?",
    f"async bulk tensor {_AXES} global SHARED tile? bulk_group HINT?",
    f"async bulk prefetch tensor {_AXES} L2 global tile? HINT?",
    f"reduce async bulk global SHARED bulk_group HINT? {_REDUCTION} u32|s32|u64|s64|b32|b64|f16|bf16|f32|f64",
    "reduce async bulk global SHARED bulk_group HINT? add noftz f16|bf16",
    f"reduce async bulk CLUSTER SHARED {_TRACKED} {_REDUCTION} u32|s32|u64|s64|b32|b64",
    f"reduce async bulk tensor {_AXES} global SHARED {_REDUCTION} tile? bulk_group HINT?",
    f"reduce async bulk tensor {_IMAGES} global SHARED {_REDUCTION} im2col_no_offs bulk_group HINT?",
    "async bulk commit_group",
    "async bulk wait_group read?",
)

_KINDS = {kind.name.lower(): kind for kind in ElementKind} | {"b32": ElementKind.U32, "b64": ElementKind.U64}
_OPERATIONS = {operation.name.lower(): operation for operation in Operation if operation}


def emit_bulk(e: InstructionEmitter, i: Instruction) -> None:
    """Issue a copy of each active lane, or group copies and wait for them."""
    if "commit_group" in i.modifiers:
        e.call_check("commit_bulk")
    elif "wait_group" in i.modifiers:
        allowed = i.operands[0]
        assert isinstance(allowed, Immediate)
        # wait_group.read waits only until the sources have been read (PTX ISA, "cp.async.bulk.wait_group").
        e.call_check("wait_bulk", allowed.value | READ * ("read" in i.modifiers))
    else:
        issue(e, i)


def issue(e: InstructionEmitter, i: Instruction) -> None:
    tensor = "tensor" in i.modifiers
    direction = _direction(i)
    operands = list(without_hint(i))
    target = operands.pop(0)
    source = target if direction == Direction.PREFETCH else operands.pop(0)
    global_operand, shared_operand = (target, source) if direction == Direction.STORE else (source, target)
    if tensor:
        (tensor_map, coordinates) = items(global_operand)
        store_operand(e, GLOBAL_ROW, e.memory.addresses(tensor_map, _space_of_map(e, tensor_map)))
        for axis, coordinate in enumerate(items(coordinates)):
            # Coordinates are .s32: boxes may begin before the tensor.
            store_operand(e, FIRST_COORDINATE_ROW + axis, e.b.resize(e.read(coordinate, 32), 64, signed=True))
    else:
        store_operand(
            e,
            GLOBAL_ROW,
            e.memory.addresses(global_operand, Space.SHARED if direction == Direction.PEER else Space.GLOBAL),
        )
        store_operand(e, NBYTES_ROW, e.b.resize(e.read(operands.pop(0), 32), 64))
    if direction != Direction.PREFETCH:
        # With shared::cluster the destination and its mbarrier are in any block of the cluster, else in this one.
        space = Space.CLUSTER if "shared::cluster" in i.modifiers else Space.SHARED
        store_operand(e, SHARED_ROW, e.memory.addresses(shared_operand, space))
        if direction != Direction.STORE:
            store_operand(e, TRACKER_ROW, e.memory.addresses(operands.pop(0), space))
    if "im2col" in i.modifiers:
        for axis, offset in enumerate(items(operands.pop(0))):
            store_operand(e, FIRST_OFFSET_ROW + axis, e.b.resize(e.read(offset, 16), 64))
    if "multicast::cluster" in i.modifiers:
        # The mask of a multicast has 16 bits, one for each rank in the cluster.
        store_operand(e, TARGETS_ROW, e.b.resize(e.read(operands.pop(0), 16), 64))
    axes = next(int(m[0]) for m in i.modifiers if m in _AXES.split("|")) if tensor else 0
    # See the module's docstring for the layout.
    operation, kind = _reduction(e, i)
    description = direction | axes << 3 | operation << 6 | kind << 10 | ("multicast::cluster" in i.modifiers) << 14
    description |= ("cta_group::2" in i.modifiers) << 15
    description |= ("tile::gather4" in i.modifiers or "tile::scatter4" in i.modifiers) << 16
    description |= ("im2col" in i.modifiers or "im2col_no_offs" in i.modifiers) << 17
    description |= ("im2col" in i.modifiers) << 18
    access = Access.ATOMIC if operation else Access.STORE if direction == Direction.STORE else Access.LOAD
    number = e.unit.add_site(e.frame, AccessSite(Space.GENERIC, access, 16, 4, 0, i.line, i.name), description)
    e.call_check("issue_bulk", number)


def issue_request(e: InstructionEmitter, i: Instruction) -> None:
    """Issue a request to cancel the launch of a cluster: its response arrives as a copy to shared memory does."""
    response, barrier = i.operands
    space = space_of(i)
    store_operand(e, SHARED_ROW, e.memory.addresses(response, space))
    store_operand(e, TRACKER_ROW, e.memory.addresses(barrier, space))
    multicasts = "multicast::cluster::all" in i.modifiers
    store_operand(e, TARGETS_ROW, e.b.splat(1, 64))
    description = Direction.CANCEL | multicasts << 14
    site = AccessSite(Space.GENERIC, Access.LOAD, 16, 4, 0, i.line, i.name)
    e.call_check("issue_bulk", e.unit.add_site(e.frame, site, description))


def store_operand(e: InstructionEmitter, row: int, value: Value) -> None:
    e.frame.store_row(2 * row, value)


def _direction(i: Instruction) -> Direction:
    if "prefetch" in i.modifiers:
        return Direction.PREFETCH
    spaces = [m for m in i.modifiers if m == "global" or m.startswith("shared")]
    if spaces[0] == "global":
        return Direction.STORE
    return Direction.LOAD if spaces[1] == "global" else Direction.PEER


def _space_of_map(e: InstructionEmitter, tensor_map: Operand) -> Space:
    is_parameter = (
        isinstance(tensor_map, Address)
        and isinstance(tensor_map.base, Symbol)
        and tensor_map.base.name in e.layout.params
    )
    # A parameter that is named is an offset in the parameter window; any other address of a map is generic.
    return Space.PARAM if is_parameter else Space.GENERIC


def _reduction(e: InstructionEmitter, i: Instruction) -> tuple[Operation, ElementKind]:
    """Return the operation and the element type of a reduction, as far as the instruction names them."""
    if "reduce" not in i.modifiers:
        return Operation.NONE, ElementKind.U8
    operation = next(_OPERATIONS[m] for m in i.modifiers if m in _OPERATIONS)
    kind = ElementKind.U8 if "tensor" in i.modifiers else _KINDS[i.modifiers[-1]]
    if "tensor" not in i.modifiers and not reduces(operation, kind):
        raise e.unsupported()
    return operation, kind


# Tensor maps

# The place of each field of a tensor map, for the first axis: the word's offset in bytes, the bit in it, and its size
# in bits.
_FIELDS = {
    "global_address": (0, 0, 64),
    "rank": (8, 4, 3),
    "elemtype": (8, 7, 4),
    "interleave_layout": (8, 11, 2),
    "swizzle_mode": (8, 13, 2),
    "fill_mode": (8, 15, 1),
    "global_dim": (32, 0, 32),
    "global_stride": (12, 0, 32),
    "element_stride": (52, 0, 3),
    "box_dim": (52, 24, 8),
}


def emit_tensormap(e: InstructionEmitter, i: Instruction) -> None:
    if i.modifiers[0] == "cp_fenceproxy":
        copy_map(e, i)
    else:
        replace(e, i)


def replace(e: InstructionEmitter, i: Instruction) -> None:
    """Set one field of a tensor map in memory. Extents, boxes and steps are stored less 1, strides in units of 16
    bytes.
    """
    name = i.modifiers[2]
    address = e.memory.addresses(i.operands[0], space_of(i))
    axis = 0
    if len(i.operands) == 3:
        ordinal = i.operands[1]
        assert isinstance(ordinal, Immediate)
        axis = ordinal.value
    value = e.read(i.operands[-1], 64 if i.modifiers[-1] == "b64" else 32)
    offset, bit, bits = _FIELDS[name]
    if name == "global_address":
        e.frame.store_row(0, value)
        e.memory.check(address, space_of(i), Access.STORE, 8)
        e.memory.scatter(address, value)
        return
    if name == "elemtype":
        # tf32 is 11, with denormals as zeros 12; the map has those of f32, and a bit. The types of 4 and 6 bits follow.
        is_above = e.b.icmp_unsigned(">", value, e.b.splat(10, 32))
        is_tf32 = e.b.and_(is_above, e.b.icmp_unsigned("<", value, e.b.splat(13, 32)))
        code = e.b.sub(value, e.b.select(is_tf32, e.b.splat(4, 32), e.b.splat(2, 32)))
        value = e.b.select(is_above, code, value)
        set_bits(e, i, address, 8, 16, 1, e.b.zext(is_tf32, value.type))
    # The rank is given less 1 already (PTX ISA, "tensormap.replace").
    if name in ("global_dim", "element_stride", "box_dim"):
        value = e.b.sub(value, e.b.splat(1, 32))
    # Strides have 36 bits: the upper four are in the word at 28, four for each axis.
    if name == "global_stride":
        units = e.b.lshr(value, e.b.splat(4, 64))
        set_bits(e, i, address, 28, 4 * axis, 4, e.b.resize(e.b.lshr(units, e.b.splat(32, 64)), 32))
        value = e.b.resize(units, 32)
    if name in ("global_dim", "global_stride"):
        offset += 4 * axis
    elif name == "element_stride":
        bit = 3 * axis
    elif name == "box_dim" and axis:
        offset = 56
        bit = 8 * (axis - 1)
    set_bits(e, i, address, offset, bit, bits, value)


def set_bits(
    e: InstructionEmitter, i: Instruction, address: Value, offset: int, bit: int, bits: int, value: Value
) -> None:
    """Set some bits of a word of a tensor map, in each active lane."""
    word_address = e.b.add(address, e.b.splat(offset, 64))
    mask = (1 << bits) - 1
    old_bits: Value = e.b.splat(0, 32)
    # The field shares its word with others, which are read and kept.
    if bits < 32:
        e.memory.check(word_address, space_of(i), Access.LOAD, 4)
        old_bits = e.b.and_(e.memory.gather(word_address, 32), e.b.splat(~(mask << bit), 32))
    word = e.b.or_(old_bits, e.b.shl(e.b.and_(value, e.b.splat(mask, 32)), e.b.splat(bit, 32)))
    e.frame.store_row(0, e.b.resize(word, 64))
    e.memory.check(word_address, space_of(i), Access.STORE, 4)
    e.memory.scatter(word_address, word)


def copy_map(e: InstructionEmitter, i: Instruction) -> None:
    """Synchronize the lanes of a warp, copy a tensor map from shared to global memory, and release it."""
    # Its .sync orders the lanes of the warp: Triton 3.6 makes descriptors without any other synchronization.
    e.call_check("warp_sync")
    # A map has 128 bytes, a word for each lane.
    lanes = e.b.mul(e.b.resize(e.operands.read_special("%laneid"), 64), e.b.splat(4, 64))
    target = e.b.add(e.memory.addresses(i.operands[0], Space.GLOBAL), lanes)
    source = e.b.add(e.memory.addresses(i.operands[1], Space.SHARED), lanes)
    e.memory.check(source, Space.SHARED, Access.LOAD, 4)
    word = e.memory.gather(source, 32)
    e.frame.store_row(0, e.b.resize(word, 64))
    e.memory.check(target, Space.GLOBAL, Access.STORE, 4)
    e.memory.scatter(target, word)
    # The release of the map, at a scope wider than the block.
    e.call_check("fence", 1)


OPS = (
    Op(
        "tensormap",
        (
            f"replace tile {'|'.join(_FIELDS)} global|SHARED? b1024 b32|b64",
            "cp_fenceproxy global SHARED tensormap::generic release SCOPE sync aligned",
        ),
        emit_tensormap,
        results=0,
    ),
)
