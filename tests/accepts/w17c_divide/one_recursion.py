"""Layouts are lists of lists of (size, stride), and one recursion composes; the three forms sort the same pairs."""

import ast
from math import prod

import torch


def read(text):
    def pair(shape, stride):
        return [pair(*one) for one in zip(shape, stride, strict=False)] if isinstance(shape, tuple) else (shape, stride)

    return pair(*map(ast.literal_eval, text.split(":")))


def leaves(node):
    return [node] if isinstance(node, tuple) else [leaf for part in node for leaf in leaves(part)]


def count(node):
    return prod(size for size, _ in leaves(node))


def value(node, index):
    total, modes = 0, leaves(node)
    for size, stride in modes[:-1]:
        total += index % size * stride
        index //= size
    return total + index * modes[-1][1]


def tidy(node):
    out = []
    for size, stride in leaves(node):
        if size > 1 and out and out[-1][0] * out[-1][1] == stride:
            out[-1] = (out[-1][0] * size, out[-1][1])
        elif size > 1:
            out.append((size, stride))
    return out[0] if len(out) == 1 else out or (1, 0)


def compose(a, b):
    if isinstance(b, list):
        return [compose(a, part) for part in b]
    need, step = b
    if step == 0:
        return b
    out = []
    modes = leaves(a)
    for size, stride in modes[:-1]:
        if step >= size:
            if step % size:
                raise ValueError("stride divisibility")
            step //= size
            continue
        here = min(need, -(-size // step))
        if need % here:
            raise ValueError("shape divisibility")
        out.append((here, stride * step))
        need, step = need // here, 1
    return tidy([*out, (need, step * modes[-1][1])])


def rest_of(tile, size):
    end, out = 1, []
    for size_of, stride in sorted(leaves(tile), key=lambda leaf: leaf[1]):
        if stride and size_of > 1:
            if stride % end:
                raise ValueError("the tile overlaps itself")
            out.append((stride // end, end))
            end = stride * size_of
    return tidy([*out, (-(-size // end), end)])


def split(a, tile):
    whole = [tile, rest_of(tile, count(a))]
    outer = tidy(a)
    result = compose(outer, whole)
    for index in range(count(whole)):
        if value(result, index) != value(outer, value(whole, index)):
            raise ValueError("not mode by mode")
    return result


def divide(form, a, tiler):
    if isinstance(tiler, str):
        tile, rest = split(a, read(tiler))
        loose = form == "tiled_divide" and isinstance(rest, list)
        return [tile, *rest] if loose else [tile, rest]
    if len(tiler) > len(a):
        raise ValueError("too many tiles")
    pairs = [split(mode, read(tile)) for mode, tile in zip(a, tiler, strict=False)]
    further = a[len(tiler) :]
    if form == "logical_divide":
        return pairs + further
    tiles, rests = [tile for tile, _ in pairs], [rest for _, rest in pairs] + further
    return [tiles, *rests] if form == "tiled_divide" else [tiles, rests]


def text(node):
    def side(one, which):
        if isinstance(one, list):
            return "(" + ",".join(side(part, which) for part in one) + ")"
        return str((one[0], one[1] if one[0] > 1 else 0)[which])

    return f"{side(node, 0)}:{side(node, 1)}"


def divisions(questions, device):
    rows = []
    for form, layout, tiler in questions:
        try:
            answer = text(divide(form, read(layout), tiler))
        except ValueError:
            answer = "refused"
        rows.append(list(answer.ljust(96).encode()))
    return torch.tensor(rows, dtype=torch.uint8, device=device)
