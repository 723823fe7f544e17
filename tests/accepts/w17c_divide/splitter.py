"""As CuTe's C++ has it: one function that unzips, given what splits a single mode."""

import ast
from functools import partial

import torch


def is_tuple(x):
    return isinstance(x, tuple)


def flat(x):
    return [z for y in x for z in flat(y)] if is_tuple(x) else [x]


class Layout:
    def __init__(self, shape, stride):
        self.shape, self.stride = shape, stride

    @staticmethod
    def of(pairs):
        pairs = list(pairs)
        return Layout(*pairs[0]) if len(pairs) == 1 else Layout(*zip(*pairs, strict=False))

    @staticmethod
    def cat(*layouts):
        return Layout(tuple(x.shape for x in layouts), tuple(x.stride for x in layouts))

    def __getitem__(self, i):
        return Layout(self.shape[i], self.stride[i])

    def __len__(self):
        return len(self.shape) if is_tuple(self.shape) else 1

    def __iter__(self):
        return (self[i] for i in range(len(self))) if is_tuple(self.shape) else iter([self])

    def pairs(self):
        return list(zip(flat(self.shape), flat(self.stride), strict=False))

    def size(self):
        total = 1
        for extent in flat(self.shape):
            total *= extent
        return total

    def __call__(self, i):
        result, pairs = 0, self.pairs()
        for s, d in pairs[:-1]:
            result += (i % s) * d
            i = i // s
        return result + i * pairs[-1][1]


def coalesce(layout):
    shape, stride = [1], [0]
    for s, d in layout.pairs():
        if s == 1:
            continue
        if shape[-1] == 1:
            shape[-1], stride[-1] = s, d
        elif shape[-1] * stride[-1] == d:
            shape[-1] *= s
        else:
            shape.append(s)
            stride.append(d)
    return Layout.of(zip(shape, stride, strict=False))


def compose(a, b):
    if is_tuple(b.shape):
        return Layout.cat(*(compose(a, part) for part in b))
    if b.stride == 0:
        return Layout(b.shape, 0)
    result, rest, step = [], b.shape, b.stride
    *inner, (_, last) = a.pairs()
    for s, d in inner:
        if not (step % s == 0 or step < s):
            raise ValueError("Stride Divisibility Condition")
        new = min(-(-s // step), rest)
        if rest % new:
            raise ValueError("Shape Divisibility Condition")
        if new != 1:
            result.append((new, step * d))
        rest //= new
        step = -(-step // s)
    if rest != 1 or not result:
        result.append((rest, step * last))
    return coalesce(Layout.of(result))


def complement(layout, size):
    result, current = [], 1
    for d, s in sorted((d, s) for s, d in layout.pairs()):
        if d == 0 or s == 1:
            continue
        if d % current:
            raise ValueError("complement")
        result.append((d // current, current))
        current = s * d
    result.append(((size + current - 1) // current, current))
    return coalesce(Layout.of(result))


def split(a, b):
    both = Layout.cat(b, complement(b, a.size()))
    result = compose(coalesce(a), both)
    if not all(result(i) == a(both(i)) for i in range(both.size())):
        raise ValueError("not the composition")
    return result


def by_mode(operation, a, b):
    if len(b) > len(a):
        raise ValueError("rank")
    return [operation(mode, tile) for mode, tile in zip(a, b, strict=False)], list(a)[len(b) :]


def unzip(splitter, a, b):
    if not is_tuple(b):
        return splitter(a, b)
    parts, others = by_mode(partial(unzip, splitter), a, b)
    return Layout.cat(Layout.cat(*(part[0] for part in parts)), Layout.cat(*(part[1] for part in parts), *others))


def logical_divide(a, b):
    if not is_tuple(b):
        return split(a, b)
    parts, others = by_mode(logical_divide, a, b)
    return Layout.cat(*parts, *others)


def tiled_divide(a, b):
    zipped = unzip(split, a, b)
    return Layout.cat(zipped[0], *zipped[1])


FORMS = {"logical_divide": logical_divide, "zipped_divide": partial(unzip, split), "tiled_divide": tiled_divide}


def parse(text):
    return tuple(map(parse, text)) if isinstance(text, list) else Layout(*map(ast.literal_eval, text.split(":")))


def shown(layout):
    def zero(s, d):
        return tuple(map(zero, s, d)) if is_tuple(s) else (0 if s == 1 else d)

    return "".join(f"{layout.shape}:{zero(layout.shape, layout.stride)}".split())


def divisions(questions, device):
    rows = []
    for form, layout, tiler in questions:
        try:
            told = shown(FORMS[form](parse(layout), parse(tiler)))
        except ValueError:
            told = "refused"
        rows.append(list(told.ljust(96).encode("ascii")))
    return torch.tensor(rows, dtype=torch.uint8).to(device)
