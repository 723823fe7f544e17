"""Generate random layouts: with nested modes, gaps and broadcasts, and layouts that fit them or just fail to."""

from __future__ import annotations

import random
from collections.abc import Sequence
from math import prod

import torch

from kernelpath.course.labs.layouts import Layout, Mode, Numbers, Tiler, coalesce, concatenate, layout_of_modes

_SIZES = (2, 2, 3, 4, 4, 5, 6, 8)

# The elements of a layout, all of which are compared.
_MAX_ELEMENTS = 128


def source(rng: torch.Generator) -> random.Random:
    """Return Python's own generator, seeded by torch's."""
    return random.Random(int(torch.randint(2**31, (), generator=rng, device=rng.device)))


def layout(rng: random.Random, rank: int, gaps: bool = True, broadcasts: bool = False) -> Layout:
    """Generate a layout that reaches each offset once, except for broadcasts.

    Args:
        gaps: Leave out offsets between some modes.
    """
    sizes = _sizes(rng, rank + rng.randint(0, 3))
    strides = [0] * len(sizes)
    next_stride = 1
    # In a random order, each stride is at least the product of the sizes before it, so no offset is reached twice.
    for index in rng.sample(range(len(sizes)), len(sizes)):
        if broadcasts and rng.random() < 0.4:
            continue
        strides[index], next_stride = next_stride, next_stride * sizes[index]
        if gaps and rng.random() < 0.4:
            next_stride *= rng.choice((2, 3))
    return nested(rng, list(zip(sizes, strides, strict=True)), rank)


def any_layout(rng: random.Random, rank: int) -> Layout:
    """Generate a layout with arbitrary strides, most of which do not divide as they should."""
    sizes = _sizes(rng, rank + rng.randint(0, 1))
    return nested(rng, [(size, rng.choice((1, 1, 2, 3, 4, 5, 6, 8, 10, 12))) for size in sizes], rank)


def _sizes(rng: random.Random, count: int) -> list[int]:
    sizes = [rng.choice(_SIZES) for _ in range(count)]
    while prod(sizes) > _MAX_ELEMENTS:
        sizes[sizes.index(max(sizes))] = 2
    return sizes


def nested(rng: random.Random, modes: Sequence[Mode], rank: int) -> Layout:
    """Group these innermost modes into `rank` brackets, or as many as there are modes."""
    cuts = sorted(rng.sample(range(1, len(modes)), min(rank, len(modes)) - 1))
    parts = [layout_of_modes(modes[start:end]) for start, end in zip([0, *cuts], [*cuts, len(modes)], strict=True)]
    return concatenate(parts) if len(parts) > 1 else parts[0]


def with_units(rng: random.Random, base: Layout) -> Layout:
    """Return the same function with a further mode of size 1, or with a mode split in two."""
    modes = base.modes
    index = rng.randrange(len(modes))
    size, stride = modes[index]
    parts = [factor for factor in range(2, size) if size % factor == 0]
    if parts and rng.random() < 0.6:
        factor = rng.choice(parts)
        modes[index : index + 1] = [(factor, stride), (size // factor, factor * stride)]
    else:
        modes.insert(index, (1, rng.choice((0, 1, stride, 7))))
    return nested(rng, modes, min(base.rank, len(modes)))


def fitting(rng: random.Random, outer: Layout, broadcasts: bool = False) -> Layout:
    """Generate a layout that can be composed with `outer`: its modes are runs of factors of the modes of `outer`."""
    factors = [part for size, _ in coalesce(outer).modes for part in _split_factor(rng, size)]
    starts = [prod(factors[:index]) for index in range(len(factors))]
    cuts = sorted(rng.sample(range(1, len(factors)), rng.randint(0, min(2, len(factors) - 1))))
    runs = list(zip([0, *cuts], [*cuts, len(factors)], strict=True))
    modes = [(prod(factors[start:end]), starts[start]) for start, end in runs if prod(factors[start:end]) > 1]
    rng.shuffle(modes)
    if broadcasts:
        modes.insert(rng.randint(0, len(modes)), (rng.choice((2, 3, 4)), 0))
    return nested(rng, modes, rng.randint(1, len(modes)))


def _split_factor(rng: random.Random, size: int) -> list[int]:
    factor = rng.choice([part for part in range(1, size + 1) if size % part == 0])
    return [part for part in (factor, size // factor) if part > 1]


def tiler(rng: random.Random, base: Layout, by_mode: bool, strided: bool) -> Tiler:
    """Generate tiles of sizes that mostly divide.

    Args:
        strided: Let some tiles take every second or third element.
    """
    if not by_mode:
        return _tile(rng, base.size, strided) if rng.random() < 0.4 else part_of(rng, base)
    extents = [base[mode].size for mode in range(rng.randint(2, base.rank))]
    if rng.random() < 0.04:
        extents = [*(base[mode].size for mode in range(base.rank)), 2]  # one tile too many
    return tuple(_tile(rng, extent, strided) for extent in extents)


def part_of(rng: random.Random, outer: Layout) -> Layout:
    """Generate some of the modes of a layout that fits `outer`."""
    fitting_layout = fitting(rng, outer)
    modes = fitting_layout.modes
    return layout_of_modes(modes[1:]) if len(modes) > 1 else fitting_layout


def _tile(rng: random.Random, extent: int, strided: bool) -> Layout:
    dividing = [part for part in range(2, extent + 1) if extent % part == 0]
    size = rng.choice(dividing) if rng.random() < 0.75 else rng.randint(2, max(2, min(extent, 8)))
    if not strided:
        return Layout(size, 1)
    step = rng.choice([part for part in (1, 2, 3, 4, 6, 8) if part * size <= max(size, extent)])
    parts = [part for part in range(2, size) if size % part == 0]
    if parts and rng.random() < 0.4:
        part = rng.choice(parts)
        shape: Numbers = (part, size // part)
        return Layout(shape, (step, step * part) if rng.random() < 0.5 else (step * (size // part), step))
    return Layout(size, step)
