"""Strided copy: a contiguous tensor with the elements of a view of three dimensions, of any strides but negative ones.

A view is drawn as strides over a storage of its own: what transposing, slicing and expanding make of a tensor.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch

from kernelpath.course import draw
from kernelpath.course.problem import BYTES, EXACT, Problem

# The bytes of the unit in which global memory moves.
SECTOR = 32

Strides = tuple[int, int, int]

# The elements between planes of a view with few elements of a large tensor: more than an int32 holds.
PLANE_STRIDE = (1 << 31) + 8

# Strides and offset in elements, by planes, rows and columns.
VIEWS: Mapping[str, Callable[[int, int, int], tuple[Strides, int]]] = {
    "contiguous": lambda p, r, c: ((r * c, c, 1), 0),
    "slice": lambda p, r, c: (((r + 1) * (c + 5), c + 5, 1), c + 8),  # base[:, 1:, 3:-2]
    "heads first": lambda p, r, c: ((c, p * c, 1), 0),  # base.permute(1, 0, 2)
    "transposed": lambda p, r, c: ((r * c, 1, r), 0),  # base.transpose(1, 2)
    "channels first": lambda p, r, c: ((1, p * c, p), 0),  # base.permute(2, 0, 1)
    "every second column": lambda p, r, c: ((2 * r * c, 2 * c, 2), 0),  # base[:, :, ::2]
    "every second, transposed": lambda p, r, c: ((2 * r * c, 2, 2 * r), 0),  # base[:, :, ::2].transpose(1, 2)
    "rows repeated": lambda p, r, c: ((c, 0, 1), 0),  # base[:, None].expand(p, r, c)
    "columns repeated": lambda p, r, c: ((r, 1, 0), 0),  # base[:, :, None].expand(p, r, c)
    "transpose repeated": lambda p, r, c: ((0, 1, r), 0),  # base.t().expand(p, r, c)
    "one element": lambda p, r, c: ((0, 0, 0), 0),  # base.expand(p, r, c)
    "planes far apart": lambda p, r, c: ((PLANE_STRIDE, c, 1), 0),
}

# Views that fit into the memory of a GPU whatever their size.
EVERYDAY = tuple(view for view in VIEWS if view != "planes far apart")


def inputs(rng: torch.Generator, view: str, planes: int, rows: int, columns: int, dtype: str) -> tuple[torch.Tensor]:
    shape = planes, rows, columns
    strides, offset = VIEWS[view](*shape)
    last = sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))
    return (draw.normal(rng, offset + last + 1, dtype=dtype).as_strided(shape, strides, offset),)


def reference(x: torch.Tensor) -> torch.Tensor:
    return x.clone(memory_format=torch.contiguous_format)


def extreme(rng: torch.Generator, x: torch.Tensor) -> None:
    """Set every kind of bits. The repeats along an axis of stride 0 are one element and are written once."""
    draw.any_bits_(rng, draw.without_repeats(x))


def compulsory_bytes(view: str, planes: int, rows: int, columns: int, dtype: str) -> int:
    """Count the output once, and each sector that holds an element of the view once, the least that memory moves."""
    itemsize = BYTES[dtype]
    shape = (planes, rows, columns)
    strides, _ = VIEWS[view](*shape)
    return itemsize * planes * rows * columns + sector_bytes(shape, strides, itemsize)


def sector_bytes(shape: tuple[int, ...], strides: tuple[int, ...], itemsize: int) -> int:
    """Return the bytes of the sectors that hold a view's elements, from an address that is a multiple of 32.

    Axis by axis, the smallest stride first: pieces with gaps of less than a sector form one longer piece, in which
    every sector has an element; with larger gaps each has sectors of its own. A sector that two of those share is
    counted twice.
    """
    piece = itemsize
    pieces = 1
    for stride, size in sorted(zip(strides, shape, strict=True)):
        if stride == 0 or size == 1:
            continue
        if pieces == 1 and stride * itemsize - piece < SECTOR:
            piece += (size - 1) * stride * itemsize
        else:
            pieces *= size
    return pieces * -(-piece // SECTOR) * SECTOR


def case(view: str, planes: int, rows: int, columns: int, dtype: str = "float32") -> dict[str, str | int]:
    return {"view": view, "planes": planes, "rows": rows, "columns": columns, "dtype": dtype}


PROBLEM = Problem(
    inputs=inputs,
    cases=(
        case("contiguous", 1, 1, 1),
        case("slice", 3, 33, 61),
        case("heads first", 3, 17, 48, "bfloat16"),
        case("transposed", 1, 127, 65, "bfloat16"),
        case("transposed", 2, 96, 160),
        case("channels first", 3, 7, 509),
        case("every second column", 1, 37, 201),
        case("every second, transposed", 1, 129, 190),
        case("rows repeated", 2, 61, 64),
        case("columns repeated", 2, 61, 67, "bfloat16"),
        case("one element", 1, 3, 1009),
        case("transpose repeated", 13, 128, 192),
        # Large enough for the limit on bytes: what repeats is not to be loaded again, whichever axis repeats it.
        case("rows repeated", 2, 253, 320),
        case("columns repeated", 2, 256, 331),
    ),
    vary=("planes", "rows", "columns"),
    far=(
        case("transposed", 1, 65_540, 65_540),
        case("contiguous", 1, 65_540, 65_540),
        case("planes far apart", 3, 100, 1000, "bfloat16"),
    ),
    reference=reference,
    tolerance={"float32": EXACT, "bfloat16": EXACT},  # nothing is computed
    extreme=extreme,
    limits=(
        case("transposed", 1, 65_537, 2, "bfloat16"),
        case("transposed", 1, 2, 65_537, "bfloat16"),
        case("heads first", 2_053, 2, 2, "bfloat16"),
    ),
    must_reach={"planes": 2_048},
    gpu_limits=(case("heads first", 65_537, 2, 2, "bfloat16"),),  # where a program has a plane: 65,537 programs
    compulsory_bytes=compulsory_bytes,
)
