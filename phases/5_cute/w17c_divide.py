"""Division: a layout cut into tiles, in the three forms that CuTe's kernels use, in plain Python.

Dividing a layout A by a tile B means reading A in a different order, first the elements of the first tile, then the
elements of the next tile, and so on. The tile B is a layout itself. 4:1 takes four neighbors, 4:2 takes every second
one of eight elements, and (2,2):(1,8) takes a square from a matrix with 8 rows. B's complement says where the tiles
start, so you don't need any new arithmetic:

    A / B = A o (B, complement(B, size of A))

The result has two modes, (tile, rest). If the tiles do not fill A, the complement rounds up, and a kernel has to mask
the elements beyond the edge.

A tiler <B0, B1, ...> divides mode by mode: B0 divides mode 0 of A, and so on. A may have further modes, which do not
change. Each divided mode becomes a pair (tile, rest), and the three forms differ in the order of these pairs. For
(M,N,L) divided by <TM,TN>:

logical_divide   ((TM,RM), (TN,RN), L)    still a matrix, with rows and columns in pairs
zipped_divide    ((TM,TN), (RM,RN,L))     tiles in front: mode 0 is a tile, mode 1 selects the tile
tiled_divide     ((TM,TN), RM, RN, L)     the same, with a mode for each direction in which tiles follow each other

If A is divided by a single layout, the logical and zipped forms are the same, and the tiled form removes the
parentheses around the rest, if there are any.

For example, the three forms of (6,8):(8,1) divided by <3:1, 4:1> are ((3,2),(4,2)):((8,24),(1,4)),
((3,4),(2,2)):((8,1),(24,4)), and the second form without its last parentheses. Raise ValueError if composition or
complement does, and if a tiler has more modes than A.

Copy the next three functions, coalesce, composition and complement, from your w17b_composition.py.
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

    def parts(self) -> list["Layout"]:
        """Return the outermost modes, each as a layout."""
        return list(map(Layout, self.shape, self.stride)) if isinstance(self.shape, tuple) else [self]

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
    raise NotImplementedError("TODO: yours from w17b_composition.py")


def composition(a: Layout, b: Layout) -> Layout:
    """Return R(c) = a(b(c)). Raises ValueError if composing mode by mode doesn't give this function."""
    raise NotImplementedError("TODO: yours from w17b_composition.py")


def complement(layout: Layout, size: int) -> Layout:
    """Return the offsets below `size` that the layout leaves out. Raises ValueError if no layout has these offsets."""
    raise NotImplementedError("TODO: yours from w17b_composition.py")


def beside(layouts: list[Layout]) -> Layout:
    """Return the layout that has these layouts as its modes."""
    return Layout(tuple(one.shape for one in layouts), tuple(one.stride for one in layouts))


def logical_divide(layout: Layout, tiler: Layout | tuple[Layout, ...]) -> Layout:
    """Return (tile, rest), or a pair (tile, rest) in each divided mode if the tiler is a tuple."""
    raise NotImplementedError("TODO: compose with the tile and its complement, mode by mode for a tuple of tiles")


def zipped_divide(layout: Layout, tiler: Layout | tuple[Layout, ...]) -> Layout:
    """Return ((tiles), (rests))."""
    raise NotImplementedError("TODO: the same pairs, tiles in front")


def tiled_divide(layout: Layout, tiler: Layout | tuple[Layout, ...]) -> Layout:
    """Return ((tiles), rest, rest, ...)."""
    raise NotImplementedError("TODO: the same, without the brackets around the rests")


def answer(operation: str, layout: str, tiler: str | list[str]) -> str:
    """Return the result of one of the three divisions as text, or "refused" for a ValueError."""
    divide = {"logical_divide": logical_divide, "zipped_divide": zipped_divide, "tiled_divide": tiled_divide}[operation]
    try:
        tiles = Layout.parse(tiler) if isinstance(tiler, str) else tuple(map(Layout.parse, tiler))
        return str(divide(Layout.parse(layout), tiles))
    except ValueError:
        return "refused"


def divisions(questions: list[list], device: str) -> torch.Tensor:
    """Return a row of WIDTH characters for each question, such as ["zipped_divide", "(6,8):(8,1)", ["3:1", "4:1"]]."""
    rows = [list(answer(*question)[:WIDTH].ljust(WIDTH).encode()) for question in questions]
    return torch.tensor(rows, dtype=torch.uint8, device=device)
