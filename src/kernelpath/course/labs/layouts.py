"""CuTe's algebra of layouts in plain Python: exact, or refused.

CuTe refuses where a stride or a shape does not divide. It checks no more than that, and for some layouts returns
another function than the one asked for, or modes of size 0. Those are refused here, too: what is returned is right.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod

Numbers = int | tuple["Numbers", ...]
"""A shape or a stride: an integer, or a tuple of such."""

Mode = tuple[int, int]
"""Size and stride, both integers."""

Swizzle = tuple[int, int, int]
"""B, M, S."""

BANKS, WORD_BYTES, LINE_BYTES, VECTOR_BYTES = 32, 4, 128, 16


class Refused(ValueError):
    """There is no such layout. The message says why."""


@dataclass(frozen=True)
class Layout:
    """A function from coordinates to offsets. `str` gives CuTe's notation, with stride 0 where a size is 1."""

    shape: Numbers
    stride: Numbers

    @classmethod
    def parse(cls, text: str) -> Layout:
        """The layout that is written so, such as "(4,(2,3)):(1,(4,8))"."""
        shape, stride = map(ast.literal_eval, text.split(":"))
        return cls(shape, stride)

    def __str__(self) -> str:
        return f"{self.shape}:{_zeroed(self.shape, self.stride)}".replace(" ", "")

    def __call__(self, index: int) -> int:
        """The offset of a coordinate counted through all modes, the first fastest; the last mode goes on past its end.

        That is how CuTe extends a layout: what a tile has beyond the edge is left to predicates.
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
        """The innermost modes, without their brackets."""
        return list(zip(flat(self.shape), flat(self.stride), strict=True))

    @property
    def size(self) -> int:
        return prod(flat(self.shape))

    @property
    def offsets(self) -> list[int]:
        return [self(index) for index in range(self.size)]


Tiler = Layout | tuple[Layout, ...]
"""Of the whole layout, or of its first modes, one by one."""


def flat(numbers: Numbers) -> list[int]:
    return [one for part in numbers for one in flat(part)] if isinstance(numbers, tuple) else [numbers]


def _zeroed(shape: Numbers, stride: Numbers) -> Numbers:
    if isinstance(shape, tuple) and isinstance(stride, tuple):
        return tuple(map(_zeroed, shape, stride))
    return 0 if shape == 1 else stride


def of_modes(modes: Sequence[Mode]) -> Layout:
    """The layout of these innermost modes; without brackets where it is one."""
    if len(modes) == 1:
        return Layout(*modes[0])
    return Layout(tuple(size for size, _ in modes), tuple(stride for _, stride in modes))


def beside(layouts: Sequence[Layout]) -> Layout:
    """The layout whose modes are these."""
    return Layout(tuple(one.shape for one in layouts), tuple(one.stride for one in layouts))


def coalesce(layout: Layout) -> Layout:
    """The same function of an index with the fewest modes, none within another."""
    merged: list[Mode] = []
    for size, stride in layout.modes:
        if size == 1:
            continue
        if merged and stride == merged[-1][0] * merged[-1][1]:
            merged[-1] = (merged[-1][0] * size, merged[-1][1])
        else:
            merged.append((size, stride))
    return of_modes(merged or [(1, 0)])


def composition(outer: Layout, inner: Layout) -> Layout:
    """R(c) = outer(inner(c)), every mode of `inner` coalesced. Raises Refused."""
    modes = coalesce(outer).modes
    result = _composed(modes, inner.shape, inner.stride)
    for index in range(inner.size):
        wanted, found = of_modes(modes)(inner(index)), result(index)
        if wanted != found:
            raise Refused(f"mode by mode they give {result}, which has {found} at {index}: A(B({index})) is {wanted}")
    return result


def _composed(modes: Sequence[Mode], shape: Numbers, stride: Numbers) -> Layout:
    if isinstance(shape, tuple) and isinstance(stride, tuple):
        return beside([_composed(modes, *one) for one in zip(shape, stride, strict=True)])
    assert isinstance(shape, int)
    assert isinstance(stride, int)
    return of_modes(list(_steps(modes, shape, stride)) or [(1, 0)]) if stride else Layout(shape, 0)


def _steps(modes: Sequence[Mode], count: int, step: int) -> Iterator[Mode]:
    """The modes of every `step`-th element, `count` of them."""
    told = f"{count}:{step}"
    for size, stride in modes[:-1]:
        if step % size and step >= size:
            raise Refused(f"{told} meets a mode of {size}, and neither of {step} and {size} divides the other")
        taken = min(-(-size // step), count)
        if count % taken:
            raise Refused(f"{told} takes {taken} from a mode of {size}, which does not divide {count}")
        if taken > 1:
            yield taken, step * stride
        count //= taken
        step = -(-step // size)
        if count == 1:
            return
    yield count, step * modes[-1][1]


def complement(layout: Layout, size: int) -> Layout:
    """What reaches the offsets up to `size` that `layout` does not: both together reach each once. Raises Refused."""
    gaps, reached = [], 1
    for stride, count in sorted((stride, count) for count, stride in layout.modes if stride and count > 1):
        if stride % reached:
            raise Refused(f"stride {stride} is not divisible by {reached}, where the modes of smaller strides end")
        gaps.append((stride // reached, reached))
        reached = count * stride
    return coalesce(of_modes([*gaps, (-(-size // reached), reached)]))


def logical_divide(layout: Layout, tiler: Tiler) -> Layout:
    """(the tile, the rest); of a tiler by modes, that in each of its modes. Raises Refused."""
    if isinstance(tiler, Layout):
        return composition(layout, beside([tiler, complement(tiler, layout.size)]))
    return beside([*_split(layout, tiler), *(layout[mode] for mode in range(len(tiler), layout.rank))])


def _split(layout: Layout, tiler: tuple[Layout, ...]) -> list[Layout]:
    if len(tiler) > layout.rank:
        raise Refused(f"the tiler has {len(tiler)} modes, the layout {layout.rank}")
    return [logical_divide(layout[mode], one) for mode, one in enumerate(tiler)]


def zipped_divide(layout: Layout, tiler: Tiler) -> Layout:
    """((the tile's modes), (the rest's modes)). Raises Refused."""
    if isinstance(tiler, Layout):
        return logical_divide(layout, tiler)
    split = _split(layout, tiler)
    rest = [*(one[1] for one in split), *(layout[mode] for mode in range(len(tiler), layout.rank))]
    return beside([beside([one[0] for one in split]), beside(rest)])


def tiled_divide(layout: Layout, tiler: Tiler) -> Layout:
    """((the tile's modes), each mode of the rest). Raises Refused."""
    tile, rest = (zipped_divide(layout, tiler)[mode] for mode in range(2))
    return beside([tile, *(rest[mode] for mode in range(rest.rank))] if isinstance(rest.shape, tuple) else [tile, rest])


def swizzled(swizzle: Swizzle, offset: int) -> int:
    """An offset with B of its bits, from bit M on, exchanged for their XOR with those S higher (lower where S < 0).

    Raises Refused where the bits of both overlap.
    """
    bits, base, shift = swizzle
    if abs(shift) < bits:
        raise Refused(f"{bits} bits that are {abs(shift)} apart overlap")
    source = ((1 << bits) - 1) << base + max(0, shift)
    moved = offset & source
    return offset ^ (moved >> shift if shift >= 0 else moved << -shift)


def wavefronts(addresses: Sequence[int], width: int) -> int:
    """Of one request of a warp to shared memory. addresses: in bytes, of each lane; width: bytes of each, from 4 to 16.

    Groups of lanes that ask for 128 bytes are served one after another.
    """
    lanes, total = LINE_BYTES // width, 0
    for first in range(0, len(addresses), lanes):
        group = addresses[first : first + lanes]
        words = {word for one in group for word in range(one // WORD_BYTES, (one + width) // WORD_BYTES)}
        banks = [word % BANKS for word in words]
        total += max(map(banks.count, banks))
    return total


def without_conflicts(columns: int, element_bytes: int) -> Swizzle:
    """Of a row-major tile whose rows are 16 bytes times a power of two: the swizzle of fewest bits, in elements, that
    keeps 16 bytes together and lets 8 rows be read in one wavefront, 16 bytes of each at any column."""
    base = (VECTOR_BYTES // element_bytes).bit_length() - 1
    vectors = columns * element_bytes // VECTOR_BYTES
    across = vectors.bit_length() - 1
    most = (LINE_BYTES // VECTOR_BYTES).bit_length() - 1
    return min(across, most), base, max(across, most)
