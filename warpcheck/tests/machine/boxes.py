"""Boxes of tensors, and a plain model of where tensor copies put their elements."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from warpcheck.tensor_map import ELEMENT_TYPES, encode_tiled

__all__ = ["Case", "Words", "loaded", "stored"]

Words = np.ndarray[Any, Any]


@dataclass
class Case:
    """A tensor, a box, and the coordinates of the box.

    Attributes:
        kind: The index of the element type in ELEMENT_TYPES.
        extents: The extents of the tensor, innermost first, as in all other lists.
        box: The extents of the box.
        coords: The coordinates of the first element.
        swizzle: The index of the swizzle: none, 32, 64, or 128 bytes.
        steps: The element strides. They are 1 by default.
        fill: 1 to fill elements outside of the tensor with NaN, 0 to fill them with zeros.
        at: The offset of the box in shared memory, in bytes.
        strides: The strides of the outer dimensions in bytes. By default they are the smallest possible ones.
    """

    kind: int
    extents: list[int]
    box: list[int]
    coords: list[int]
    swizzle: int = 0
    steps: list[int] = field(default_factory=list)
    fill: int = 0
    at: int = 0
    strides: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.steps = self.steps or [1] * self.rank
        if not self.strides:
            step = self.extents[0] * self.size
            for extent in self.extents[1:]:
                self.strides.append(-(-step // 16) * 16)
                step = self.strides[-1] * extent

    @property
    def rank(self) -> int:
        return len(self.extents)

    @property
    def size(self) -> int:
        return ELEMENT_TYPES[self.kind].bytes

    @property
    def counts(self) -> list[int]:
        return [self.box[0], *(-(-extent // step) for extent, step in zip(self.box[1:], self.steps[1:], strict=True))]

    @property
    def pitch(self) -> int:
        """Return the bytes of shared memory from one row to the next. With a swizzle, this is the swizzle's span."""
        return (self.box[0] * self.size, 32, 64, 128)[self.swizzle]

    @property
    def total(self) -> int:
        return int(np.prod(self.counts)) * self.size

    @property
    def nbytes(self) -> int:
        """Return the size of the tensor in bytes."""
        end = self.strides[-1] * self.extents[-1] if self.strides else self.extents[0] * self.size
        return -(-end // 16) * 16

    @property
    def dumped(self) -> int:
        """Return the bytes of shared memory in older recordings, which assume that rows are contiguous."""
        return -(-(self.at + self.total) // 1024) * 1024

    @property
    def shared(self) -> int:
        """Return the number of bytes of shared memory to compare."""
        rows = self.total // (self.box[0] * self.size)
        return -(-(self.at + rows * self.pitch) // 1024) * 1024

    def map(self, address: int) -> bytes:
        shape = self.extents, self.strides, self.box, self.steps
        return encode_tiled(self.kind, address, *shape, 0, self.swizzle, 0, self.fill)

    def places(self) -> list[tuple[int, int | None]]:
        """Return the offsets of each element: in shared memory, and in the tensor, or None if it is outside."""
        located: list[tuple[int, int | None]] = []
        for number, index in enumerate(np.ndindex(*self.counts[::-1])):
            row, column = divmod(number, self.box[0])
            offset = self.at + row * self.pitch + column * self.size
            # A swizzle XORs the index of a 16-byte chunk with address bits 7 and up: one, two, or three of them.
            offset ^= (offset >> 7 & (0, 1, 3, 7)[self.swizzle]) << 4
            steps = [1, *self.steps[1:]]
            coordinate = [c + k * s for c, k, s in zip(self.coords, index[::-1], steps, strict=True)]
            is_inside = all(0 <= p < extent for p, extent in zip(coordinate, self.extents, strict=True))
            tensor_offset = sum(p * s for p, s in zip(coordinate, [self.size, *self.strides], strict=True))
            located.append((offset, tensor_offset if is_inside else None))
        return located


# The NaN that a load writes for elements outside of the tensor: 0x7ff7 in each half-word.
_NAN = b"\xf7\x7f" * 4


def loaded(case: Case, memory: Words) -> Words:
    """Return the contents of shared memory after a load."""
    out = np.full(case.shared, 0xEE, np.uint8)
    for offset, tensor_offset in case.places():
        outside = _NAN[: case.size] if case.fill else bytes(case.size)
        content = (
            np.frombuffer(outside, np.uint8)
            if tensor_offset is None
            else memory[tensor_offset : tensor_offset + case.size]
        )
        out[offset : offset + case.size] = content
    return out


def stored(case: Case, memory: Words, tile: Words) -> Words:
    """Return the contents of the tensor after a store."""
    out = memory.copy()
    for offset, tensor_offset in case.places():
        if tensor_offset is not None:
            out[tensor_offset : tensor_offset + case.size] = tile[offset : offset + case.size]
    return out
