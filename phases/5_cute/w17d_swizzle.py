"""Swizzle: offsets of a tile in shared memory, spread over the banks by an XOR.

Swizzle<B,M,S> takes B bits of an offset and XORs them into B other bits that are S bits lower:

    offset   ... Y Y Y . . Z Z Z m m m m      B = 3 bits each, M = 4 bits below that stay, S = 5 bits from Z to Y
    result   ... Y Y Y . . Z^Y   m m m m

Bits Z start at bit M, and bits Y at bit M + S. For a negative S, it is the other way around. Y starts at bit M, and Z,
the bits that change, at bit M - S. Y and Z must not overlap, so raise ValueError if |S| < B. CuTe's C++ rejects this
case at compile time. No two offsets become equal, and a swizzle undoes itself. A swizzled layout isn't a layout,
because it isn't linear. It is a separate kind of function, swizzle o layout, and CuTe keeps both parts in a
ComposedLayout.

Shared memory has 32 banks of 4 bytes. The word at byte address a is in bank a / 4 modulo 32. A warp's request is served
in groups of lanes that request 128 bytes together: all 32 lanes at 4 bytes each, 16 lanes at 8 bytes, or 8 lanes at 16
bytes. A group takes as many wavefronts as there are different words in its busiest bank; equal words count once. In
requests wider than 4 bytes, no two lanes have the same address here.

`choose` finds the swizzle for a tile whose rows are stored one after another. The size of a row is 16 bytes times a
power of two greater than one. ldmatrix reads a tensor core's operands, 16 bytes from each of 8 rows at a time, in the
same column. With the swizzle, which counts elements, such a read takes a single wavefront for any 8 rows that start at
a multiple of 8. The swizzle keeps each vector of 16 bytes together, so M follows from the size of an element. The
swizzle changes as few bits as possible. There is exactly one such swizzle.
"""

import ast
import itertools

import torch

WIDTH = 128


def offsets_of(layout: str) -> list[int]:
    """Return all offsets of a layout such as "(4,(2,3)):(1,(4,8))", with the first mode fastest."""
    shape, stride = map(ast.literal_eval, layout.split(":"))
    steps = [[step * i for i in range(size)] for size, step in zip(flat(shape), flat(stride), strict=True)]
    return [sum(parts) for parts in itertools.product(*reversed(steps))]


def flat(numbers: int | tuple) -> list[int]:
    return [one for part in numbers for one in flat(part)] if isinstance(numbers, tuple) else [numbers]


def swizzle(b: int, m: int, s: int, offset: int) -> int:
    """Return the offset with its bits Z replaced by Z ^ Y. Raises ValueError if Y and Z overlap."""
    raise NotImplementedError("TODO: take Y out, shift it to Z, XOR")


def compose(b: int, m: int, s: int, layout: str) -> list[int]:
    """Return the offset of swizzle o layout at every index of the layout."""
    raise NotImplementedError("TODO: the layout first, then the swizzle")


def wavefronts(addresses: list[int], width: int) -> int:
    """Return the wavefronts of a request, from the byte address of each lane. A lane requests `width` bytes (4, 8 or
    16)."""
    raise NotImplementedError("TODO: group by group, the bank with the most different words")


def choose(columns: int, element_bytes: int) -> tuple[int, int, int]:
    """Return (B, M, S) for a tile whose rows have `columns` elements."""
    raise NotImplementedError("TODO: which bits of an offset are the bank's, and which are the row's?")


def answer(operation: str, *operands) -> list[int]:
    """Return the result of one of the four functions as a list, which is empty for a ValueError."""
    first, second = operands
    try:
        if operation == "swizzle":
            return [swizzle(*first, offset) for offset in second]
        if operation == "compose":
            return compose(*first, second)
        return [wavefronts(first, second)] if operation == "wavefronts" else list(choose(first, second))
    except ValueError:
        return []


def banks(questions: list[list], device: str) -> torch.Tensor:
    """Return a row of WIDTH numbers for each question, such as ["swizzle", [3, 4, 3], offsets], filled up with -1."""
    answers = [answer(*question) for question in questions]
    return torch.tensor([[*one, *[-1] * (WIDTH - len(one))] for one in answers], device=device)
