"""Offsets written in binary and cut into strings: slow, and easy to believe."""

import ast

import torch

BITS = 20


def swizzle(b, m, s, offset):
    if b > abs(s):
        raise ValueError
    text = f"{offset:0{BITS}b}"[::-1]
    y, z = (m + s, m) if s > 0 else (m, m + -s)
    mixed = "".join(str(int(one != other)) for one, other in zip(text[y : y + b], text[z : z + b], strict=False))
    return int((text[:z] + mixed + text[z + b :])[::-1], 2)


def walk(shape, stride):
    if isinstance(shape, tuple):
        tables = [walk(*one) for one in zip(shape, stride, strict=False)]
        found = tables[0]
        for table in tables[1:]:
            found = [one + other for other in table for one in found]
        return found
    return list(range(0, shape * stride, stride)) if stride else [0] * shape


def compose(b, m, s, layout):
    return [swizzle(b, m, s, offset) for offset in walk(*(ast.literal_eval(part) for part in layout.split(":")))]


def wavefronts(addresses, width):
    rounds, waiting = 0, list(addresses)
    while waiting:
        group, waiting = waiting[: 128 // width], waiting[128 // width :]
        pending = {word for address in group for word in range(address // 4, (address + width) // 4)}
        while pending:
            served = {}
            for word in pending:
                served.setdefault(word % 32, word)
            pending -= set(served.values())
            rounds += 1
    return rounds


def choose(columns, element_bytes):
    m = [16, 8, 4, 2].index(16 // element_bytes)
    pieces = f"{columns * element_bytes // 16:b}"
    zeros = len(pieces) - 1
    return [min(zeros, 3), 4 - m, max(zeros, 3)]


def one(kind, first, second):
    try:
        if kind == "swizzle":
            return [swizzle(*first, offset) for offset in second]
        if kind == "compose":
            return compose(*first, second)
    except ValueError:
        return []
    return [wavefronts(first, second)] if kind == "wavefronts" else choose(first, second)


def banks(questions, device):
    rows = [(one(*question) + [-1] * 128)[:128] for question in questions]
    return torch.tensor(rows, device=device)
