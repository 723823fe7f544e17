"""The tile and the rest are tabulated and read off again as layouts; the three forms are one table of permutations."""

import ast
import functools
import operator
from itertools import product

import numpy as np
import torch


class NoLayout(Exception):
    pass


class L:
    """Shape and stride as nested lists of arrays would be too much: two flat lists, and the brackets as a template."""

    def __init__(self, shape, stride):
        self.shape, self.stride = shape, stride

    def flat(self):
        return list(zip(flatten(self.shape), flatten(self.stride), strict=False))

    def modes(self):
        return (
            [L(s, d) for s, d in zip(self.shape, self.stride, strict=False)]
            if isinstance(self.shape, tuple)
            else [self]
        )

    def __call__(self, index):
        index, out = np.asarray(index), 0
        for size, stride in self.flat()[:-1]:
            out, index = out + index % size * stride, index // size
        return out + index * self.flat()[-1][1]

    def __len__(self):
        return int(np.prod(flatten(self.shape)))

    def table(self):
        return self(np.arange(len(self)))


def flatten(t):
    return functools.reduce(operator.iadd, map(flatten, t), []) if isinstance(t, tuple) else [t]


def group(parts):
    return L(tuple(p.shape for p in parts), tuple(p.stride for p in parts))


def recognized(values):
    modes = []
    while len(values) > 1:
        breaks = np.flatnonzero(values != np.arange(len(values)) * values[1])
        run = int(breaks[0]) if len(breaks) else len(values)
        if len(values) % run:
            raise NoLayout
        block = values.reshape(-1, run)
        if (block - block[:, :1] != block[0]).any():
            raise NoLayout
        modes.append((run, int(values[1])))
        values = block[:, 0]
    if len(modes) < 2:
        return L(*(modes or [(1, 0)])[0])
    return L(*map(tuple, zip(*modes, strict=False)))


def divisible(outer, count, step):
    for size, _ in outer.flat()[:-1]:
        if step % size and step > size:
            raise NoLayout
        here = min(-(-size // step), count)
        if count % here:
            raise NoLayout
        count, step = count // here, -(-step // size)


def compose(outer, inner):
    if isinstance(inner.shape, tuple):
        return group([compose(outer, part) for part in inner.modes()])
    if inner.stride:
        divisible(outer, inner.shape, inner.stride)
    return recognized(outer(inner.table()))


def starts(tile, size):
    """Where tiles begin: the offsets that no tile before has reached, one after the other."""
    gaps, end = [], 1
    for stride, count in sorted((d, s) for s, d in tile.flat() if d and s > 1):
        if stride % end:
            raise NoLayout
        gaps.append(range(0, stride, end))
        end = stride * count
    gaps.append(range(0, max(size, 1), end))
    return recognized(np.array([sum(one) for one in product(*reversed(gaps))]))


def divided(layout, tile):
    outer = recognized(layout.table())
    inner = group([tile, starts(tile, len(layout))])
    result = compose(outer, inner)
    if (result.table() != outer(inner.table())).any():
        raise NoLayout
    return result


def parsed(text):
    return L(*map(ast.literal_eval, text.split(":")))


def answer(form, layout, tiler):
    layout = parsed(layout)
    if isinstance(tiler, str):
        tile, rest = divided(layout, parsed(tiler)).modes()
        return group([tile, *rest.modes()] if form == "tiled_divide" else [tile, rest])
    modes = layout.modes()
    if len(tiler) > len(modes):
        raise NoLayout
    done = [divided(mode, parsed(tile)) for mode, tile in zip(modes, tiler, strict=False)]
    more = modes[len(tiler) :]
    tiles, rests = group([one.modes()[0] for one in done]), [one.modes()[1] for one in done] + more
    forms = {"logical_divide": done + more, "zipped_divide": [tiles, group(rests)], "tiled_divide": [tiles, *rests]}
    return group(forms[form])


def without_units(shape, stride):
    return tuple(map(without_units, shape, stride)) if isinstance(shape, tuple) else stride * (shape > 1)


def divisions(questions, device):
    out = torch.full((len(questions), 96), ord(" "), dtype=torch.uint8)
    for row, question in zip(out, questions, strict=False):
        try:
            found = answer(*question)
            text = f"{found.shape}:{without_units(found.shape, found.stride)}".replace(" ", "")
        except NoLayout:
            text = "refused"
        row[: len(text)] = torch.tensor(list(text.encode()), dtype=torch.uint8)
    return out.to(device)
