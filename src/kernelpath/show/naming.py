"""Place names beside the marks of a plot, each with a leader line, so that names cover no name, mark or line."""

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
_CROWD_DISTANCE = 4.0  # horizontal points within which marks count as one crowd
_FONT_SLACK = 1.1  # a browser's font may be wider than matplotlib's
_HORIZONTAL_OFFSETS = (
    10.0,
    14.0,
    22.0,
    34.0,
    50.0,
    70.0,
    95.0,
    125.0,
    160.0,
    200.0,
    250.0,
    310.0,
)  # points from a mark to its name
_VERTICAL_STEP = 4.0  # points between two candidate heights of a name
_SIDE_PENALTY = 2.0  # points of distance that a position to the right of the mark is worth
_CROSSING_PENALTY = 30.0  # points of distance that a crossing of another name is worth, per sample of 48

Point = tuple[float, float]

# Coordinates [n, 2]: x and y.
Points = NDArray[np.float64]

# Boxes [n, 4]: left, bottom, right and top.
Boxes = NDArray[np.float64]


@dataclass(frozen=True)
class LabelPosition:
    """The end of the leader line from a mark, in points, and the side of it on which the names stand.

    Attributes:
        side: (1, 0) for the right, (-1, 0) for the left, (0, 1) for above, (0, -1) for below.
    """

    x: float
    y: float
    side: Point


class LabelCanvas:
    """The covered points of a rectangle. All coordinates are in points, from its lower left corner."""

    def __init__(self, width: float, height: float) -> None:
        self.size = np.array([width, height])
        self._texts, self._marks_and_lines = (np.zeros((int(width) + 1, int(height) + 1), bool) for _ in range(2))

    def cover(self, boxes: Iterable[Sequence[float]], text: bool = False) -> None:
        """Mark boxes that no name may stand on.

        Args:
            text: The box is another name, which no leader line should cross either.
        """
        for left, low, right, high in boxes:
            span = (
                slice(max(int(left), 0), max(int(np.ceil(right)), 0)),
                slice(max(int(low), 0), max(int(np.ceil(high)), 0)),
            )
            (self._texts if text else self._marks_and_lines)[span] = True

    def cover_line(self, ends: Sequence[Point], width: float = 3.0) -> None:
        """Mark a line through these points as covered."""
        for start, end in pairwise(ends):
            centers = np.linspace(start, end, 2 + int(np.hypot(*np.subtract(end, start))))
            self.cover(np.hstack([centers - width / 2, centers + width / 2]))

    def count_covered(self, boxes: Boxes) -> NDArray[Any]:
        """Return the number of points of each box that are covered or lie outside of the rectangle."""
        # A summed-area table gives the number of covered points in each box in constant time.
        sums = np.pad((self._texts | self._marks_and_lines).cumsum(0).cumsum(1), ((1, 0), (1, 0)))
        low, high = (np.clip(corner.astype(int), 0, self.size.astype(int)) for corner in (boxes[:, :2], boxes[:, 2:]))
        inside = np.clip(boxes[:, 2:], 0, self.size) - np.clip(boxes[:, :2], 0, self.size)
        outside = (boxes[:, 2:] - boxes[:, :2]).prod(1) - inside.prod(1)
        (x0, y0), (x1, y1) = low.T, high.T
        covered: NDArray[Any] = np.round(outside) + sums[x1, y1] - sums[x0, y1] - sums[x1, y0] + sums[x0, y0]
        return covered

    def count_crossed(self, paths: NDArray[np.float64]) -> NDArray[Any]:
        """Return the number of samples of each path [n, samples, 2] that lie on text."""
        x, y = np.clip(paths.astype(int), 0, self.size.astype(int)).transpose(2, 0, 1)
        crossed: NDArray[Any] = self._texts[x, y].sum(1)
        return crossed


def find_crowds(marks: Sequence[Point]) -> list[list[int]]:
    """Group the marks that lie on each other, from the top down. One leader line leads to all names of a group."""
    groups: list[list[int]] = []
    for index in sorted(
        range(len(marks)), key=lambda index: (round(marks[index][0] / _CROWD_DISTANCE), -marks[index][1])
    ):
        x, y = marks[index]
        previous_x, previous_y = marks[groups[-1][-1]] if groups else (-np.inf, 0.0)
        if abs(x - previous_x) < _CROWD_DISTANCE and abs(previous_y - y) < 3 * _CROWD_DISTANCE:
            groups[-1].append(index)
        else:
            groups.append([index])
    return [sorted(crowd, key=lambda index: -marks[index][1]) for crowd in groups]


def place_labels(names: Sequence[Sequence[str]], marks: Sequence[Point], paper: LabelCanvas) -> list[LabelPosition]:
    """Place each list of names near its mark, where nothing is covered yet, and cover the chosen position.

    The longest lists go first. Where there is no free position, names cover as little as possible.
    """
    positions: dict[int, LabelPosition] = {}
    for number in sorted(range(len(names)), key=lambda index: -len(names[index])):
        lines = names[number]
        point = marks[number]
        mark = np.asarray(point)
        height = LINE_POINTS * len(lines)
        width = _FONT_SLACK * max(TextPath((0, 0), line, size=FONT_POINTS).get_extents().width for line in lines)
        ends, sides = _label_candidates(mark, float(paper.size[1]))
        half = np.array([width, height]) / 2
        # Along each axis, a side of 1 puts the box behind the end of the line, -1 before the end, and 0 centers the
        # box.
        boxes = np.hstack([ends + (sides - 1) * half, ends + (sides + 1) * half])
        covered = paper.count_covered(boxes)
        ends, sides, boxes = (candidates[covered == covered.min()] for candidates in (ends, sides, boxes))
        paths = mark + (ends - mark)[:, None] * np.linspace(0.0, 1.0, 48)[:, None]
        cost = np.hypot(*(ends - mark).T) + _SIDE_PENALTY * (sides[:, 0] <= 0)
        best = int(np.argmin(_CROSSING_PENALTY * paper.count_crossed(paths) + cost))
        x, y = ends[best].tolist()
        side_x, side_y = sides[best].tolist()
        positions[number] = LabelPosition(x, y, (side_x, side_y))
        paper.cover(boxes[best : best + 1], text=True)
        paper.cover_line([point, (x, y)], 1.0)
    return [positions[number] for number in range(len(names))]


def _label_candidates(mark: Points, height: float) -> tuple[Points, Points]:
    """Return the possible ends of a leader line, up to `height` above and below its mark, and the names' side."""
    vertical_offsets = _VERTICAL_STEP * np.arange(-(height // _VERTICAL_STEP), height // _VERTICAL_STEP + 1)
    ends = []
    sides = []
    # Names to the right and to the left of a line's end.
    for side in (1.0, -1.0):
        dx, dy = (grid.ravel() for grid in np.meshgrid(side * np.array(_HORIZONTAL_OFFSETS), vertical_offsets))
        ends.append(np.stack([dx, dy], 1))
        sides.append(np.stack([np.full_like(dy, side), np.zeros_like(dy)], 1))
    # Names above and below a line's end.
    dx, dy = (
        grid.ravel()
        for grid in np.meshgrid(
            (0.0, *_HORIZONTAL_OFFSETS, *(-offset for offset in _HORIZONTAL_OFFSETS)), vertical_offsets
        )
    )
    ends.append(np.stack([dx, dy], 1))
    sides.append(np.stack([np.zeros_like(dy), np.sign(dy)], 1))
    offsets = np.concatenate(ends)
    is_far_enough = np.hypot(*offsets.T) >= _HORIZONTAL_OFFSETS[0]
    return mark + offsets[is_far_enough], np.concatenate(sides)[is_far_enough]
