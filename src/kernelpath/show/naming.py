"""Names beside the marks of a picture, each with a line to its mark: none on another, on a mark or on a line."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from matplotlib.textpath import TextPath
from numpy.typing import NDArray

FONT_POINTS = 8
LINE_POINTS = 11.0
_NEAR = 4.0  # points across between marks that lie on each other
_SLACK = 1.1  # a browser's font may be wider than matplotlib's
_ACROSS = (10.0, 14.0, 22.0, 34.0, 50.0, 70.0, 95.0, 125.0, 160.0, 200.0, 250.0, 310.0)  # points from mark to name
_STEP = 4.0  # points between two heights at which a name may stand
_LESS_LIKED = 2.0  # points that a name would rather go than stand elsewhere than at the right
_CROSSES = 30.0  # points that a name would rather go than have its line run through another, for each of 48 places

Point = tuple[float, float]
Points = NDArray[np.float64]
"""[n, 2]: across and up."""
Boxes = NDArray[np.float64]
"""[n, 4]: left, low, right and high."""


@dataclass(frozen=True)
class Placed:
    """Where the line from a mark ends, in points, and on which side of that the names stand.

    side: (1, 0) for the right, (-1, 0) for the left, (0, 1) for above, (0, -1) for below.
    """

    x: float
    y: float
    side: Point


class Paper:
    """Which points of a rectangle are covered. All coordinates are in points, from its lower left corner."""

    def __init__(self, width: float, height: float) -> None:
        self.size = np.array([width, height])
        self._texts, self._others = (np.zeros((int(width) + 1, int(height) + 1), bool) for _ in range(2))

    def cover(self, boxes: Iterable[Sequence[float]], text: bool = False) -> None:
        """Something that no name may stand on. text: another name, which no line to a mark should cross either."""
        for left, low, right, high in boxes:
            span = (
                slice(max(int(left), 0), max(int(np.ceil(right)), 0)),
                slice(max(int(low), 0), max(int(np.ceil(high)), 0)),
            )
            (self._texts if text else self._others)[span] = True

    def cover_line(self, ends: Sequence[Point], width: float = 3.0) -> None:
        """A line through these points."""
        for one, other in pairwise(ends):
            centers = np.linspace(one, other, 2 + int(np.hypot(*np.subtract(other, one))))
            self.cover(np.hstack([centers - width / 2, centers + width / 2]))

    def covered(self, boxes: Boxes) -> NDArray[Any]:
        """How many points of each box are covered, or lie outside."""
        sums = np.pad((self._texts | self._others).cumsum(0).cumsum(1), ((1, 0), (1, 0)))
        low, high = (np.clip(corner.astype(int), 0, self.size.astype(int)) for corner in (boxes[:, :2], boxes[:, 2:]))
        inside = np.clip(boxes[:, 2:], 0, self.size) - np.clip(boxes[:, :2], 0, self.size)
        outside = (boxes[:, 2:] - boxes[:, :2]).prod(1) - inside.prod(1)
        (x0, y0), (x1, y1) = low.T, high.T
        covered: NDArray[Any] = np.round(outside) + sums[x1, y1] - sums[x0, y1] - sums[x1, y0] + sums[x0, y0]
        return covered

    def crossed(self, paths: NDArray[np.float64]) -> NDArray[Any]:
        """How many places of each path [n, places, 2] lie on text."""
        x, y = np.clip(paths.astype(int), 0, self.size.astype(int)).transpose(2, 0, 1)
        crossed: NDArray[Any] = self._texts[x, y].sum(1)
        return crossed


def crowds(marks: Sequence[Point]) -> list[list[int]]:
    """Which marks lie on each other, one above the other, from the top: one line leads to all their names."""
    found: list[list[int]] = []
    for one in sorted(range(len(marks)), key=lambda one: (round(marks[one][0] / _NEAR), -marks[one][1])):
        (x, y), (before, above) = marks[one], marks[found[-1][-1]] if found else (-np.inf, 0.0)
        if abs(x - before) < _NEAR and abs(above - y) < 3 * _NEAR:
            found[-1].append(one)
        else:
            found.append([one])
    return [sorted(crowd, key=lambda one: -marks[one][1]) for crowd in found]


def place(names: Sequence[Sequence[str]], marks: Sequence[Point], paper: Paper) -> list[Placed]:
    """Where names stand, one under the other: near their mark and on nothing that the paper has, which then has them.

    The most lines come first. Where there is no room left, they cover as little as they can.
    """
    found: dict[int, Placed] = {}
    for number in sorted(range(len(names)), key=lambda one: -len(names[one])):
        lines, point = names[number], marks[number]
        mark, height = np.asarray(point), LINE_POINTS * len(lines)
        width = _SLACK * max(TextPath((0, 0), line, size=FONT_POINTS).get_extents().width for line in lines)
        ends, sides = _candidates(mark, float(paper.size[1]))
        half = np.array([width, height]) / 2
        boxes = np.hstack([ends + (sides - 1) * half, ends + (sides + 1) * half])
        covered = paper.covered(boxes)
        ends, sides, boxes = (one[covered == covered.min()] for one in (ends, sides, boxes))
        paths = mark + (ends - mark)[:, None] * np.linspace(0.0, 1.0, 48)[:, None]
        away = np.hypot(*(ends - mark).T) + _LESS_LIKED * (sides[:, 0] <= 0)
        best = int(np.argmin(_CROSSES * paper.crossed(paths) + away))
        (x, y), (across, up) = ends[best].tolist(), sides[best].tolist()
        found[number] = Placed(x, y, (across, up))
        paper.cover(boxes[best : best + 1], text=True)
        paper.cover_line([point, (x, y)], 1.0)
    return [found[number] for number in range(len(names))]


def _candidates(mark: Points, most: float) -> tuple[Points, Points]:
    """Ends of a name's line, up to `most` above and below its mark, and on which side of them the name stands."""
    rises = _STEP * np.arange(-(most // _STEP), most // _STEP + 1)
    ends, sides = [], []
    for side in (1.0, -1.0):
        across, rise = (grid.ravel() for grid in np.meshgrid(side * np.array(_ACROSS), rises))
        ends.append(np.stack([across, rise], 1))
        sides.append(np.stack([np.full_like(rise, side), np.zeros_like(rise)], 1))
    across, rise = (grid.ravel() for grid in np.meshgrid((0.0, *_ACROSS, *(-one for one in _ACROSS)), rises))
    ends.append(np.stack([across, rise], 1))
    sides.append(np.stack([np.zeros_like(rise), np.sign(rise)], 1))
    away = np.concatenate(ends)
    apart = np.hypot(*away.T) >= _ACROSS[0]
    return mark + away[apart], np.concatenate(sides)[apart]
