"""Random layouts: with modes within modes, gaps and broadcasts, and with what fits them or just fails to."""

from __future__ import annotations

import random
from collections.abc import Sequence
from math import prod

import torch

from kernelpath.course.labs.layouts import Layout, Mode, Numbers, Tiler, beside, coalesce, of_modes

_SIZES = (2, 2, 3, 4, 4, 5, 6, 8)
_MOST = 128
"""Elements of a layout: every one is looked at."""


def source(rng: torch.Generator) -> random.Random:
    """Python's own generator, fixed by torch's."""
    return random.Random(int(torch.randint(2**31, (), generator=rng, device=rng.device)))


def layout(rng: random.Random, rank: int, gaps: bool = True, broadcasts: bool = False) -> Layout:
    """Each offset once, but for broadcasts; gaps: between some modes there are offsets that it does not reach."""
    sizes = _sizes(rng, rank + rng.randint(0, 3))
    strides, reached = [0] * len(sizes), 1
    for place in rng.sample(range(len(sizes)), len(sizes)):
        if broadcasts and rng.random() < 0.4:
            continue
        strides[place], reached = reached, reached * sizes[place]
        if gaps and rng.random() < 0.4:
            reached *= rng.choice((2, 3))
    return nested(rng, list(zip(sizes, strides, strict=True)), rank)


def any_layout(rng: random.Random, rank: int) -> Layout:
    """With strides of no plan: most do not divide what they should."""
    sizes = _sizes(rng, rank + rng.randint(0, 1))
    return nested(rng, [(size, rng.choice((1, 1, 2, 3, 4, 5, 6, 8, 10, 12))) for size in sizes], rank)


def _sizes(rng: random.Random, count: int) -> list[int]:
    sizes = [rng.choice(_SIZES) for _ in range(count)]
    while prod(sizes) > _MOST:
        sizes[sizes.index(max(sizes))] = 2
    return sizes


def nested(rng: random.Random, modes: Sequence[Mode], rank: int) -> Layout:
    """These innermost modes in `rank` brackets, or as many as there are modes."""
    cuts = sorted(rng.sample(range(1, len(modes)), min(rank, len(modes)) - 1))
    parts = [of_modes(modes[begin:end]) for begin, end in zip([0, *cuts], [*cuts, len(modes)], strict=True)]
    return beside(parts) if len(parts) > 1 else parts[0]


def with_units(rng: random.Random, drawn: Layout) -> Layout:
    """The same function, with a further mode of size 1, or a mode split where nothing asks for it."""
    modes = drawn.modes
    place = rng.randrange(len(modes))
    size, stride = modes[place]
    parts = [factor for factor in range(2, size) if size % factor == 0]
    if parts and rng.random() < 0.6:
        factor = rng.choice(parts)
        modes[place : place + 1] = [(factor, stride), (size // factor, factor * stride)]
    else:
        modes.insert(place, (1, rng.choice((0, 1, stride, 7))))
    return nested(rng, modes, min(drawn.rank, len(modes)))


def fitting(rng: random.Random, outer: Layout, broadcasts: bool = False) -> Layout:
    """A layout whose composition with `outer` exists: its modes are runs of factors of the modes of `outer`."""
    factors = [part for size, _ in coalesce(outer).modes for part in _factored(rng, size)]
    starts = [prod(factors[:place]) for place in range(len(factors))]
    cuts = sorted(rng.sample(range(1, len(factors)), rng.randint(0, min(2, len(factors) - 1))))
    runs = list(zip([0, *cuts], [*cuts, len(factors)], strict=True))
    modes = [(prod(factors[begin:end]), starts[begin]) for begin, end in runs if prod(factors[begin:end]) > 1]
    rng.shuffle(modes)
    if broadcasts:
        modes.insert(rng.randint(0, len(modes)), (rng.choice((2, 3, 4)), 0))
    return nested(rng, modes, rng.randint(1, len(modes)))


def _factored(rng: random.Random, size: int) -> list[int]:
    factor = rng.choice([part for part in range(1, size + 1) if size % part == 0])
    return [part for part in (factor, size // factor) if part > 1]


def tiler(rng: random.Random, drawn: Layout, by_mode: bool, strided: bool) -> Tiler:
    """Tiles of sizes that mostly divide; strided: some take every second or third element."""
    if not by_mode:
        return _tile(rng, drawn.size, strided) if rng.random() < 0.4 else part_of(rng, drawn)
    extents = [drawn[mode].size for mode in range(rng.randint(2, drawn.rank))]
    if rng.random() < 0.04:
        extents = [*(drawn[mode].size for mode in range(drawn.rank)), 2]  # one tile too many
    return tuple(_tile(rng, extent, strided) for extent in extents)


def part_of(rng: random.Random, outer: Layout) -> Layout:
    """Some of the modes of a layout that fits `outer`."""
    whole = fitting(rng, outer)
    modes = whole.modes
    return of_modes(modes[1:]) if len(modes) > 1 else whole


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
