"""Encode the descriptor of a tensor for tensor copies (TMA): 128 bytes, as cuTensorMapEncodeTiled writes them.

NVIDIA does not document the layout. It is derived from what ptxas generates for ``tensormap.replace``, and from what a
driver wrote for some two hundred descriptors, some of which a test replays. Axes count from the innermost. CUDA driver
API, "Tensor Map Object Management"; PTX ISA, 5.5.8.

No driver has shown us a descriptor of the im2col mode. Its fields are those that the CuTe DSL 4.8 writes:

    word at 8   bit 0                   im2col mode
    word at 52  bits 24-31              channels per pixel, less 1
    word at 56  bits 0-15, 16-31        the lower and the upper corner along W, H and D: each number is signed, and has
                                        16, 8, or 5 bits
    word at 60  bits 0-9                pixels per column, less 1
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass

__all__ = [
    "BYTES",
    "ELEMENT_TYPES",
    "SWIZZLES",
    "ElementType",
    "TensorMap",
    "corner_bits",
    "encode_im2col",
    "encode_tiled",
]

BYTES = 128
READ, READ_IM2COL = 60, 64  # of them, in im2col mode; what follows may be left as it was
ALIGNMENT = 64
AXES = 5
MAX_BOX = 256
MAX_PIXELS = 1024
MAX_STEP = 8
# The span of each swizzle mode in bytes.
SWIZZLES = (0, 32, 64, 128)

# The number of the swizzle of 128 bytes in atoms of 32; the CuTe DSL writes it as that of 128 bytes and a bit.
_ATOM_32 = 4

_ATOMS = (16, 256, 512, 1024, 1024)

_PACKED_EXTENTS = {2: 2, 16: 128}  # of the innermost axis a tensor has a multiple, by the elements that are packed
_RESERVED = 0b1100
_IM2COL = 1
_RANK = 4
_TYPE = 7
_INTERLEAVE = 11
_SWIZZLE = 13
_FILL = 15
_TF32 = 16
_PROMOTION = 17
_SWIZZLE_ATOM = 19
_BOX = 64
_ATOM = 72  # where the driver keeps the bytes of a box, and what its place in shared memory is a multiple of
_SHARED = 228 << 10  # bytes of a multiprocessor's shared memory, into which a box has to fit


@dataclass(frozen=True)
class ElementType:
    """A type of elements: its numbers for the driver and in a descriptor, its bytes, and whether NaN may fill it.

    Of elements of 4 and 6 bits, ``packed`` counts those that ``bytes`` are for in shared memory, and ``stored`` their
    bytes in global memory, where they have no gaps.
    """

    name: str
    host: int
    code: int
    bytes: int
    is_float: bool = False
    is_tf32: bool = False
    packed: int = 1
    stored: int = 0


# The codes of types of 4 and 6 bits are those that the CuTe DSL 4.8 writes (seen for b4x16 and b6x16_p32).
ELEMENT_TYPES = (
    ElementType("u8", 0, 0, 1),
    ElementType("u16", 1, 1, 2),
    ElementType("u32", 2, 2, 4),
    ElementType("s32", 3, 3, 4),
    ElementType("u64", 4, 4, 8),
    ElementType("s64", 5, 5, 8),
    ElementType("f16", 6, 6, 2, is_float=True),
    ElementType("f32", 7, 7, 4, is_float=True),
    ElementType("f64", 8, 9, 8, is_float=True),
    ElementType("bf16", 9, 10, 2, is_float=True),
    ElementType("f32.ftz", 10, 8, 4, is_float=True),
    ElementType("tf32", 11, 7, 4, is_float=True, is_tf32=True),
    ElementType("tf32.ftz", 12, 8, 4, is_float=True, is_tf32=True),
    ElementType("b4x16", 13, 11, 1, packed=2, stored=1),
    ElementType("b4x16_p64", 14, 12, 16, packed=16, stored=8),
    ElementType("b6x16_p32", 15, 13, 16, packed=16, stored=12),
)


@dataclass(frozen=True)
class TensorMap:
    """The contents of a descriptor.

    ``address`` is that of the first element, ``extents`` those of the tensor in elements, ``strides`` in bytes, of all
    axes but the innermost. A copy takes every ``steps``-th element of ``box`` elements along each axis.

    In im2col mode, ``box`` has the channels of a pixel and the pixels of a column, and ``corners`` the lower and the
    upper corner of the bounding box along W, H and D. The lower corner counts from the first element of an axis, the
    upper one from the last.
    """

    type: ElementType
    address: int
    extents: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]
    steps: tuple[int, ...]
    interleave: int = 0
    swizzle: int = 0
    promotion: int = 0
    nan_fill: bool = False
    corners: tuple[tuple[int, ...], ...] = ()

    @property
    def rank(self) -> int:
        return len(self.extents)

    @property
    def counts(self) -> tuple[int, ...]:
        """Return the elements along each axis that a copy takes: the innermost has no step, whatever the map says.

        In im2col mode, return the channels and the pixels.
        """
        if self.corners:
            return self.box
        outer = zip(self.box[1:], self.steps[1:], strict=True)
        return (self.box[0], *(-(-extent // step) for extent, step in outer))

    def encode(self) -> bytes:
        """Return the descriptor as bytes."""
        # Word 2: rank - 1, type, interleave, swizzle, fill mode, tf32, promotion; see the shifts above.
        flags = self.rank - 1 << _RANK | self.type.code << _TYPE | self.interleave << _INTERLEAVE
        flags |= (
            min(self.swizzle, 3) << _SWIZZLE
            | (self.swizzle == _ATOM_32) << _SWIZZLE_ATOM
            | self.nan_fill << _FILL
            | self.promotion << _PROMOTION
        )
        flags |= self.type.is_tf32 << _TF32
        strides = [stride >> 4 for stride in _padded(self.strides, AXES - 1, 0)]
        # Strides have 36 bits in units of 16 bytes: the upper four of each are together in one word.
        high = sum((stride >> 32) << 4 * axis for axis, stride in enumerate(strides))
        # Less 1, so that an extent of 2^32 has room in 32 bits.
        extents, box, steps = (
            [value - 1 for value in _padded(values, AXES, 1)] for values in (self.extents, self.box, self.steps)
        )
        packed = sum(step << 3 * axis for axis, step in enumerate(steps)) | box[0] << 24
        outer = sum(extent << 8 * axis for axis, extent in enumerate(box[1:]))
        low = [stride & 0xFFFFFFFF for stride in strides]
        if self.corners:
            lower, upper = (_pack_corner(corner) for corner in self.corners)
            words = flags | _IM2COL, *low, high, *extents, packed, lower | upper << 16, box[1]
            return struct.pack("<Q14I", self.address, *words).ljust(BYTES, b"\0")
        content = struct.pack("<Q13I", self.address, flags, *low, high, *extents, packed, outer).ljust(_BOX, b"\0")
        content += struct.pack("<QQ", _box_bytes(self.type, self.box, self.steps), _ATOMS[self.swizzle])
        return content.ljust(BYTES, b"\0")

    @classmethod
    def decode(cls, content: bytes) -> TensorMap:
        """Decode a descriptor of 128 bytes. Raises ValueError for bytes that are not a descriptor."""
        address, flags, *words, pixels = struct.unpack_from("<Q14I", content)
        low = words[:4]
        high = words[4]
        extents = words[5:10]
        packed = words[10]
        outer = words[11]
        rank = (flags >> _RANK & 7) + 1
        code = flags >> _TYPE & 15
        is_tf32 = bool(flags >> _TF32 & 1)
        types = [kind for kind in ELEMENT_TYPES if (kind.code, kind.is_tf32) == (code, is_tf32)]
        if not address or flags & _RESERVED or rank > AXES or not types:
            raise ValueError("no tensor map")
        strides = [(part | (high >> 4 * axis & 15) << 32) << 4 for axis, part in enumerate(low)]
        box = [packed >> 24, *(outer >> 8 * axis & 255 for axis in range(AXES - 1))]
        corners: tuple[tuple[int, ...], ...] = ()
        if flags & _IM2COL:
            if rank < 3:
                raise ValueError("no tensor map")
            box = [packed >> 24, pixels & MAX_PIXELS - 1]
            corners = tuple(_unpack_corner(outer >> shift & 0xFFFF, rank - 2) for shift in (0, 16))
        return cls(
            type=types[0],
            address=address,
            extents=tuple(extent + 1 for extent in extents[:rank]),
            strides=tuple(strides[: rank - 1]),
            box=tuple(extent + 1 for extent in box[:rank]),
            steps=tuple((packed >> 3 * axis & 7) + 1 for axis in range(rank)),
            interleave=flags >> _INTERLEAVE & 3,
            swizzle=(flags >> _SWIZZLE & 3) + (flags >> _SWIZZLE_ATOM & 1),
            promotion=flags >> _PROMOTION & 3,
            nan_fill=bool(flags >> _FILL & 1),
            corners=corners,
        )


def encode_tiled(
    data_type: int,
    address: int,
    extents: Sequence[int],
    strides: Sequence[int],
    box: Sequence[int],
    steps: Sequence[int],
    interleave: int = 0,
    swizzle: int = 0,
    promotion: int = 0,
    oob_fill: int = 0,
) -> bytes:
    """Return what cuTensorMapEncodeTiled writes for the same arguments, including the numbers of its enumerations.

    Raises ValueError, with the rule, where it returns CUDA_ERROR_INVALID_VALUE.
    """
    if refusal := _refusal(data_type, address, extents, strides, box, steps, interleave, swizzle, promotion, oob_fill):
        raise ValueError(f"cuTensorMapEncodeTiled: CUDA_ERROR_INVALID_VALUE: {refusal}")
    kind = ELEMENT_TYPES[data_type]
    shape = tuple(extents), tuple(strides)[: len(extents) - 1], tuple(box), tuple(steps)
    return TensorMap(kind, address, *shape, interleave, swizzle, promotion, bool(oob_fill)).encode()


def encode_im2col(
    data_type: int,
    address: int,
    extents: Sequence[int],
    strides: Sequence[int],
    lower_corner: Sequence[int],
    upper_corner: Sequence[int],
    channels_per_pixel: int,
    pixels_per_column: int,
    steps: Sequence[int],
    interleave: int = 0,
    swizzle: int = 0,
    promotion: int = 0,
    oob_fill: int = 0,
) -> bytes:
    """Return a descriptor of the im2col mode; the arguments are those of cuTensorMapEncodeIm2col.

    Axes count from the innermost: the corners are along W, H and D.

    Raises ValueError, with the rule, where the manual says that cuTensorMapEncodeIm2col returns
    CUDA_ERROR_INVALID_VALUE.
    """
    rank = len(extents)
    corners = tuple(lower_corner)[: rank - 2], tuple(upper_corner)[: rank - 2]
    refusal = _refusal_of_column(extents, corners, channels_per_pixel, pixels_per_column)
    # The other rules are those of a tiled map whose box is one pixel.
    pixel = [channels_per_pixel, *[1] * (rank - 1)]
    modes = interleave, swizzle, promotion, oob_fill
    refusal = refusal or _refusal(data_type, address, extents, strides, pixel, steps, *modes)
    if refusal:
        refusal = refusal.replace("boxDim[0]", "channelsPerPixel")
        raise ValueError(f"cuTensorMapEncodeIm2col: CUDA_ERROR_INVALID_VALUE: {refusal}")
    kind = ELEMENT_TYPES[data_type]
    shape = tuple(extents), tuple(strides)[: rank - 1], (channels_per_pixel, pixels_per_column), tuple(steps)
    return TensorMap(kind, address, *shape, interleave, swizzle, promotion, bool(oob_fill), corners).encode()


def corner_bits(spatial_axes: int) -> int:
    """Return the bits of a coordinate of a corner, and of an im2col offset: 16, 8, or 5 for one to three axes."""
    return 16 // spatial_axes


def _pack_corner(corner: Sequence[int]) -> int:
    bits = corner_bits(len(corner))
    return sum((coordinate & (1 << bits) - 1) << bits * axis for axis, coordinate in enumerate(corner))


def _unpack_corner(word: int, spatial_axes: int) -> tuple[int, ...]:
    bits = corner_bits(spatial_axes)
    fields = (word >> bits * axis & (1 << bits) - 1 for axis in range(spatial_axes))
    return tuple(field - (field >> bits - 1 << bits) for field in fields)


def _refusal_of_column(extents: Sequence[int], corners: Sequence[Sequence[int]], channels: int, pixels: int) -> str:
    """Return the rule of the im2col mode that the arguments break; an empty text if they break none."""
    rank = len(extents)
    if not 3 <= rank <= AXES:
        return f"tensorRank is {rank}, it must be 3 to {AXES}"
    bound = 1 << corner_bits(rank - 2) - 1
    for name, corner in zip(("pixelBoxLowerCorner", "pixelBoxUpperCorner"), corners, strict=True):
        if len(corner) != rank - 2:
            return f"{name} has {len(corner)} values for a tensor of {rank} axes"
        for axis, coordinate in enumerate(corner):
            if not -bound <= coordinate < bound:
                return f"{name}[{axis}] is {coordinate}, it must be {-bound} to {bound - 1} for a tensor of {rank} axes"
    for axis, (lower, upper) in enumerate(zip(*corners, strict=True)):
        if lower > extents[axis + 1] - 1 + upper:
            return f"the bounding box is empty: along axis {axis + 1} its upper corner is below its lower one"
    for name, value, maximum in (("channelsPerPixel", channels, MAX_BOX), ("pixelsPerColumn", pixels, MAX_PIXELS)):
        if not 1 <= value <= maximum:
            return f"{name} is {value}, it must be 1 to {maximum}"
    return ""


def _refusal(
    data_type: int,
    address: int,
    extents: Sequence[int],
    strides: Sequence[int],
    box: Sequence[int],
    steps: Sequence[int],
    interleave: int,
    swizzle: int,
    promotion: int,
    oob_fill: int,
) -> str:
    """Return the rule that the arguments break; an empty text if they break none."""
    rank = len(extents)
    inner = 0
    if not 0 <= data_type < len(ELEMENT_TYPES):
        return f"tensorDataType {data_type} is none of CUtensorMapDataType"
    kind = ELEMENT_TYPES[data_type]
    if not 1 <= rank <= AXES:
        return f"tensorRank is {rank}, it must be 1 to {AXES}"
    for name, values, required in (
        ("globalStrides", strides, rank - 1),
        ("boxDim", box, rank),
        ("elementStrides", steps, rank),
    ):
        if len(values) < required:
            return f"{name} has {len(values)} values for a tensor of {rank} axes"
    for name, value, maximum in (
        ("interleave", interleave, 2),
        ("swizzle", swizzle, _ATOM_32),
        ("l2Promotion", promotion, 3),
    ):
        if not 0 <= value <= maximum:
            return f"{name} is {value}, it must be 0 to {maximum}"
    # CU_TENSOR_MAP_INTERLEAVE_32B doubles the alignment of address and strides,
    # and so do types whose elements have gaps in shared memory.
    unit = 32 if interleave == 2 or kind.packed == 16 else 16
    if interleave and rank < 3:
        return "an interleaved tensor has at least 3 axes"
    if address % unit or not 0 <= address < 1 << 64:
        return f"globalAddress {address:#x} is not a multiple of {unit}"
    for axis, extent in enumerate(extents):
        if not 1 <= extent <= 1 << 32:
            return f"globalDim[{axis}] is {extent}, it must be 1 to 2^32"
    for axis, stride in enumerate(strides[: rank - 1]):
        if stride % unit or not 0 <= stride < 1 << 40:
            return f"globalStrides[{axis}] is {stride} bytes, it must be a multiple of {unit} below 2^40"
    for axis, extent in enumerate(box[:rank]):
        if not 1 <= extent <= MAX_BOX:
            return f"boxDim[{axis}] is {extent}, it must be 1 to {MAX_BOX}"
    for axis, step in enumerate(steps[:rank]):
        if not 1 <= step <= MAX_STEP:
            return f"elementStrides[{axis}] is {step}, it must be 1 to {MAX_STEP}"
    if extents[0] % _PACKED_EXTENTS.get(kind.packed, 1):
        return f"globalDim[0] is {extents[0]}, it must be a multiple of {_PACKED_EXTENTS[kind.packed]} for {kind.name}"
    if kind.packed == 16 and box[0] != 128:
        return f"boxDim[0] is {box[0]}, it must be 128 for {kind.name}"
    inner = box[0] * kind.bytes // kind.packed
    if not interleave and inner % 16:
        return f"boxDim[0] is {box[0]} elements, {inner} bytes: it must be a multiple of 16 bytes"
    if not interleave and swizzle and inner > SWIZZLES[min(swizzle, 3)]:
        span = SWIZZLES[min(swizzle, 3)]
        return f"boxDim[0] is {box[0]} elements, {inner} bytes: more than the {span} of CU_TENSOR_MAP_SWIZZLE_{span}B"
    if (nbytes := _box_bytes(kind, box[:rank], steps)) > _SHARED:
        return f"the box has {nbytes:,} bytes, more than the {_SHARED:,} of shared memory"
    if oob_fill not in (0, 1) or (oob_fill and not kind.is_float):
        return f"oobFill is {oob_fill}, NaN is for floating-point types"
    return ""


def _box_bytes(kind: ElementType, box: Sequence[int], steps: Sequence[int]) -> int:
    """Return the bytes of a box, as the driver counts them: it rounds down if an axis is not a multiple of its step."""
    return math.prod(extent // step for extent, step in zip(box, steps, strict=False)) * kind.bytes // kind.packed


def _padded(values: Sequence[int], count: int, filler: int) -> list[int]:
    return [*values, *[filler] * (count - len(values))]
