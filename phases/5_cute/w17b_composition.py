"""Composition: a layout of a layout is a layout again. Three functions of CuTe's algebra, in plain Python.

A layout maps an index to an offset, and `layout(index)` below evaluates it. The first mode of the index varies fastest,
and the last mode continues past its end. Layouts are compared as CuTe prints them, mode by mode.

coalesce     the same function with as few modes as possible, and without nesting. Drop modes of size 1. Merge two
             neighboring modes if the second continues the first: (4,3):(2,8) is 12:2. If no mode remains, the result is
             1:0.

composition  R(c) = A(B(c)). Compose A with each mode of B = (B0, B1, ...): (A o B0, A o B1, ...). An innermost mode s:d
             takes every d-th element of A, s of them. Go through the modes of coalesced A from first to last. A mode of
             size a contributes min(s, ceil(a / d)) elements, whose stride is d times the stride of the mode. Then
             divide s by this number, and continue with the next mode and the step ceil(d / a). The last mode
             contributes all remaining elements. Drop modes that contribute one element. For example, (6,2):(8,2) o
             (4,3):(3,1) is ((2,2),3):((24,2),8), where 4:3 became (2,2):(24,2). A mode s:0 stays s:0.

complement   the layout of the offsets that a layout doesn't reach. Together, the two reach every offset below `size`
             exactly once. Its strides ascend. The complement of 4:2 up to 24 is (2,3):(1,8). The last mode is rounded
             up, so the complement of 3:5 up to 20 is (5,2):(1,15). Ignore modes of size 1 or stride 0, which reach no
             other offset.

Raise ValueError in the cases that CuTe refuses to compile:
- composition, if d is neither a multiple of a nor smaller than a, and another mode follows;
- composition, if the number of elements that a mode contributes does not divide s.
CuTe checks nothing else, and some of its results are wrong. Do better, and raise ValueError in these cases, too:
- composition, if R(c) differs from A(B(c)) for any index c of B;
- complement, if a stride is not a multiple of the span of the modes with smaller strides, their gaps filled.
"""

import ast
from dataclasses import dataclass
from math import prod

import torch

WIDTH = 96


@dataclass(frozen=True)
class Layout:
    """Shape and stride: integers, or tuples of the same form."""

    shape: int | tuple
    stride: int | tuple

    @classmethod
    def parse(cls, text: str) -> "Layout":
        """Parse a layout such as "(4,(2,3)):(1,(4,8))"."""
        return cls(*map(ast.literal_eval, text.split(":")))

    def modes(self) -> list[tuple[int, int]]:
        """Return the size and stride of each innermost mode."""
        return list(zip(flat(self.shape), flat(self.stride), strict=True))

    def size(self) -> int:
        return prod(flat(self.shape))

    def __call__(self, index: int) -> int:
        """Return the offset of an index, which may go past the end of the last mode."""
        *inner, (_, last) = self.modes()
        offset = 0
        for size, stride in inner:
            index, coordinate = divmod(index, size)
            offset += coordinate * stride
        return offset + index * last

    def __str__(self) -> str:
        """Format the layout as CuTe prints it, but with stride 0 where a size is 1."""
        return f"{self.shape}:{zeroed(self.shape, self.stride)}".replace(" ", "")


def flat(numbers: int | tuple) -> list[int]:
    return [one for part in numbers for one in flat(part)] if isinstance(numbers, tuple) else [numbers]


def zeroed(shape: int | tuple, stride: int | tuple) -> int | tuple:
    return tuple(map(zeroed, shape, stride)) if isinstance(shape, tuple) else 0 if shape == 1 else stride


def of_modes(modes: list[tuple[int, int]]) -> Layout:
    """Return the layout with these modes, each (size, stride), without parentheses if there is only one."""
    return Layout(*modes[0]) if len(modes) == 1 else Layout(*(tuple(numbers) for numbers in zip(*modes, strict=True)))


def coalesce(layout: Layout) -> Layout:
    """Return the same function with the fewest modes."""
    raise NotImplementedError("TODO: drop modes of size 1, merge neighbors")


def composition(a: Layout, b: Layout) -> Layout:
    """Return R(c) = a(b(c)). Raises ValueError if composing mode by mode doesn't give this function."""
    raise NotImplementedError("TODO: each innermost mode of b through the modes of a, then the check")


def complement(layout: Layout, size: int) -> Layout:
    """Return the offsets below `size` that the layout leaves out. Raises ValueError if no layout has these offsets."""
    raise NotImplementedError("TODO: a mode for each gap, by ascending stride, then the rest")


def answer(operation: str, *operands: str) -> str:
    """Return the result of one of the three functions as text, or "refused" for a ValueError."""
    layout, *others = operands
    try:
        if operation == "coalesce":
            return str(coalesce(Layout.parse(layout)))
        if operation == "composition":
            return str(composition(Layout.parse(layout), Layout.parse(*others)))
        return str(complement(Layout.parse(layout), int(*others)))
    except ValueError:
        return "refused"


def algebra(questions: list[list[str]], device: str) -> torch.Tensor:
    """Return a row of WIDTH characters for each question, such as ["composition", "(6,2):(8,2)", "(4,3):(3,1)"]."""
    rows = [list(answer(*question)[:WIDTH].ljust(WIDTH).encode()) for question in questions]
    return torch.tensor(rows, dtype=torch.uint8, device=device)
