"""Everything on whole tensors: bits by shifts, wavefronts by a histogram over banks."""

import ast
import functools
import operator

import torch


def digits(text):
    shape, stride = map(ast.literal_eval, text.split(":"))

    def flat(t):
        return functools.reduce(operator.iadd, map(flat, t), []) if isinstance(t, tuple) else [t]

    index, out = None, 0
    sizes = flat(shape)
    index = torch.arange(torch.tensor(sizes).prod().item())
    for size, step in zip(sizes, flat(stride), strict=False):
        out = out + index % size * step
        index = index // size
    return out


def swizzled(b, m, s, offsets):
    if not -s >= b and not s >= b:
        return offsets[:0]
    y, z = (m + s, m) if s > 0 else (m, m - s)
    bits = torch.bitwise_right_shift(offsets, y) % 2**b
    return torch.bitwise_xor(offsets, bits * 2**z)


def wavefronts(addresses, width):
    words = (addresses[:, None] + torch.arange(0, width, 4)) // 4
    total = 0
    for group in words.view(-1, 32):
        total += torch.bincount(group.unique() % 32, minlength=32).max()
    return total


def choose(columns, size):
    """By trying: the fewest bits that let 8 rows of 16 bytes be read at once, at every column."""
    m = (16 // size).bit_length() - 1
    rows = torch.arange(8)
    for b in range(5):
        for s in range(max(3, b), 9):
            tries = [swizzled(b, m, s, rows * columns + c) * size for c in range(0, columns, 16 // size)]
            later = [swizzled(b, m, s, (rows + 8) * columns) * size]
            if all(wavefronts(one, 16) == 1 for one in tries + later):
                return torch.tensor([b, m, s])
    raise AssertionError


def banks(questions, device):
    rows = []
    for kind, first, second in questions:
        if kind == "swizzle":
            found = swizzled(*first, torch.tensor(second))
        elif kind == "compose":
            found = swizzled(*first, digits(second))
        elif kind == "wavefronts":
            found = torch.as_tensor(wavefronts(torch.tensor(first), second)).view(1)
        else:
            found = choose(first, second)
        rows.append(torch.nn.functional.pad(found, (0, 128 - len(found)), value=-1))
    return torch.stack(rows).to(device)
