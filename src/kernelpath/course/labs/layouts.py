"""Implement CuTe's layout algebra in plain Python, with exact results or Refused.

CuTe refuses a stride or a shape that does not divide. It checks no more than that, and for some layouts returns a
different function than requested, or modes of size 0. These are refused here, too: every returned layout is right.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod

# A shape or a stride: an integer, or a tuple of shapes or strides.
Numbers = int | tuple["Numbers", ...]

# Size and stride, both integers.
Mode = tuple[int, int]

# B, M, S.
Swizzle = tuple[int, int, int]

BANKS = 32
WORD_BYTES = 4
LINE_BYTES = 128
VECTOR_BYTES = 16


class Refused(ValueError):
    """The requested layout does not exist. The message says why."""


@dataclass(frozen=True)
class Layout:
    """A function from coordinates to offsets. `str` gives CuTe's notation, with stride 0 where a size is 1."""

    shape: Numbers
    stride: Numbers

    @classmethod
    def parse(cls, text: str) -> Layout:
        """Parse a layout such as "(4,(2,3)):(1,(4,8))"."""
        shape, stride = map(ast.literal_eval, text.split(":"))
        return cls(shape, stride)

    def __str__(self) -> str:
        return f"{self.shape}:{_zero_unit_strides(self.shape, self.stride)}".replace(" ", "")

    def __call__(self, index: int) -> int:
        """Return the offset of an index over all modes, the first fastest. The last mode extends past its end.

        CuTe extends layouts in the same way: predicates handle what a tile has beyond the edge.
        """
        *inner, (_, outermost) = self.modes
        offset = 0
        for size, stride in inner:
            index, coordinate = divmod(index, size)
            offset += coordinate * stride
        return offset + index * outermost

    def __getitem__(self, mode: int) -> Layout:
        assert isinstance(self.shape, tuple)
        assert isinstance(self.stride, tuple)
        return Layout(self.shape[mode], self.stride[mode])

    @property
    def rank(self) -> int:
        return len(self.shape) if isinstance(self.shape, tuple) else 1

    @property
    def modes(self) -> list[Mode]:
        """Return the innermost modes, without their nesting."""
        return list(zip(flatten_numbers(self.shape), flatten_numbers(self.stride), strict=True))

    @property
    def size(self) -> int:
        return prod(flatten_numbers(self.shape))

    @property
    def offsets(self) -> list[int]:
        return [self(index) for index in range(self.size)]


# A tiler of the whole layout, or of its first modes one by one.
Tiler = Layout | tuple[Layout, ...]


def flatten_numbers(numbers: Numbers) -> list[int]:
    return [number for part in numbers for number in flatten_numbers(part)] if isinstance(numbers, tuple) else [numbers]


def _zero_unit_strides(shape: Numbers, stride: Numbers) -> Numbers:
    if isinstance(shape, tuple) and isinstance(stride, tuple):
        return tuple(map(_zero_unit_strides, shape, stride))
    return 0 if shape == 1 else stride


def layout_of_modes(modes: Sequence[Mode]) -> Layout:
    """Return the layout of these innermost modes; without brackets if there is only one."""
    if len(modes) == 1:
        return Layout(*modes[0])
    return Layout(tuple(size for size, _ in modes), tuple(stride for _, stride in modes))


def concatenate(layouts: Sequence[Layout]) -> Layout:
    """Return the layout whose modes are these layouts."""
    return Layout(tuple(layout.shape for layout in layouts), tuple(layout.stride for layout in layouts))


def coalesce(layout: Layout) -> Layout:
    """Return the same function of an index with the fewest modes, without nesting."""
    merged: list[Mode] = []
    for size, stride in layout.modes:
        if size == 1:
            continue
        if merged and stride == merged[-1][0] * merged[-1][1]:
            merged[-1] = (merged[-1][0] * size, merged[-1][1])
        else:
            merged.append((size, stride))
    return layout_of_modes(merged or [(1, 0)])


def composition(outer: Layout, inner: Layout) -> Layout:
    """Compose R(c) = outer(inner(c)), with every mode of `inner` coalesced. Raises Refused."""
    modes = coalesce(outer).modes
    result = _compose(modes, inner.shape, inner.stride)
    # Mode by mode CuTe may return another function than A(B(i)), so each element is compared.
    for index in range(inner.size):
        expected = layout_of_modes(modes)(inner(index))
        actual = result(index)
        if expected != actual:
            raise Refused(
                f"mode by mode they give {result}, which has {actual} at {index}: A(B({index})) is {expected}"
            )
    return result


def _compose(modes: Sequence[Mode], shape: Numbers, stride: Numbers) -> Layout:
    if isinstance(shape, tuple) and isinstance(stride, tuple):
        return concatenate([_compose(modes, *mode) for mode in zip(shape, stride, strict=True)])
    assert isinstance(shape, int)
    assert isinstance(stride, int)
    return layout_of_modes(list(_strided_modes(modes, shape, stride)) or [(1, 0)]) if stride else Layout(shape, 0)


def _strided_modes(modes: Sequence[Mode], count: int, step: int) -> Iterator[Mode]:
    """Yield the modes of every `step`-th element, `count` of them."""
    description = f"{count}:{step}"
    for size, stride in modes[:-1]:
        # CuTe's "Stride Divisibility Condition". Source: CUTLASS, cute/layout.hpp, composition_impl.
        if step % size and step >= size:
            raise Refused(f"{description} meets a mode of {size}, and neither of {step} and {size} divides the other")
        mode_count = min(-(-size // step), count)
        if count % mode_count:
            raise Refused(f"{description} takes {mode_count} from a mode of {size}, which does not divide {count}")
        if mode_count > 1:
            yield mode_count, step * stride
        count //= mode_count
        step = -(-step // size)
        if count == 1:
            return
    yield count, step * modes[-1][1]


def complement(layout: Layout, size: int) -> Layout:
    """Return a layout of the offsets up to `size` that `layout` does not reach; both reach each once.

    Raises Refused.
    """
    gaps = []
    reached = 1
    for stride, count in sorted((stride, count) for count, stride in layout.modes if stride and count > 1):
        if stride % reached:
            raise Refused(f"stride {stride} is not divisible by {reached}, where the modes of smaller strides end")
        gaps.append((stride // reached, reached))
        reached = count * stride
    return coalesce(layout_of_modes([*gaps, (-(-size // reached), reached)]))


def logical_divide(layout: Layout, tiler: Tiler) -> Layout:
    """Return (the tile, the rest); for a tiler by modes, the division of each mode. Raises Refused."""
    if isinstance(tiler, Layout):
        return composition(layout, concatenate([tiler, complement(tiler, layout.size)]))
    return concatenate([*_split(layout, tiler), *(layout[mode] for mode in range(len(tiler), layout.rank))])


def _split(layout: Layout, tiler: tuple[Layout, ...]) -> list[Layout]:
    if len(tiler) > layout.rank:
        raise Refused(f"the tiler has {len(tiler)} modes, the layout {layout.rank}")
    return [logical_divide(layout[mode], mode_tiler) for mode, mode_tiler in enumerate(tiler)]


def zipped_divide(layout: Layout, tiler: Tiler) -> Layout:
    """Return ((the tile's modes), (the rest's modes)). Raises Refused."""
    if isinstance(tiler, Layout):
        return logical_divide(layout, tiler)
    split = _split(layout, tiler)
    remaining_modes = [*(pair[1] for pair in split), *(layout[mode] for mode in range(len(tiler), layout.rank))]
    return concatenate([concatenate([pair[0] for pair in split]), concatenate(remaining_modes)])


def tiled_divide(layout: Layout, tiler: Tiler) -> Layout:
    """Return ((the tile's modes), each mode of the rest). Raises Refused."""
    tile, remainder = (zipped_divide(layout, tiler)[mode] for mode in range(2))
    return concatenate(
        [tile, *(remainder[mode] for mode in range(remainder.rank))]
        if isinstance(remainder.shape, tuple)
        else [tile, remainder]
    )


def apply_swizzle(swizzle: Swizzle, offset: int) -> int:
    """Replace B bits of an offset, from bit M on, by their XOR with the bits S higher (lower if S < 0).

    Raises Refused if both ranges of bits overlap.
    """
    bits, base, shift = swizzle
    if abs(shift) < bits:
        raise Refused(f"{bits} bits that are {abs(shift)} apart overlap")
    # As in CuTe's Swizzle<B, M, S>: the bits from M + max(0, S) on change the bits from M - min(0, S) on. Source:
    # CUTLASS, cute/swizzle.hpp.
    source = ((1 << bits) - 1) << base + max(0, shift)
    moved = offset & source
    return offset ^ (moved >> shift if shift >= 0 else moved << -shift)


def wavefronts(addresses: Sequence[int], width: int) -> int:
    """Return the wavefronts of one request of a warp to shared memory.

    Groups of lanes that request 128 bytes are served one after another.

    Args:
        addresses: The byte address of each lane.
        width: The bytes of each lane, from 4 to 16.
    """
    lanes = LINE_BYTES // width
    total = 0
    for first in range(0, len(addresses), lanes):
        group = addresses[first : first + lanes]
        words = {word for address in group for word in range(address // WORD_BYTES, (address + width) // WORD_BYTES)}
        banks = [word % BANKS for word in words]
        total += max(map(banks.count, banks))
    return total


def without_conflicts(columns: int, element_bytes: int) -> Swizzle:
    """Return the swizzle with the fewest bits for a row-major tile whose rows are 16 bytes times a power of two.

    The swizzle is in elements. It keeps 16 bytes together and lets 8 rows be read in one wavefront, 16 bytes of each at
    any column.
    """
    base = (VECTOR_BYTES // element_bytes).bit_length() - 1
    vectors = columns * element_bytes // VECTOR_BYTES
    column_bits = vectors.bit_length() - 1
    max_bits = (LINE_BYTES // VECTOR_BYTES).bit_length() - 1
    return min(column_bits, max_bits), base, max(column_bits, max_bits)
