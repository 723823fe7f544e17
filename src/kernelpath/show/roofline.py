"""Draw a roofline, for the pictures of terminals, notebooks and the web page.

The model is Williams, Waterman and Patterson's (Communications of the ACM 52(4), 2009). The ceilings are measured in
the same process as the kernels and never taken from a data sheet.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from kernelpath import words
from kernelpath.grading.roofline import bandwidth
from kernelpath.show import naming
from kernelpath.show.palette import INK, OTHERS, QUIET, color

COMPULSORY = "operations per byte of compulsory traffic"

# Marker, filling and size of each role. Marks of equal kernels can be told apart where they overlap.
_SHAPES = {"yours": ("o", "full", 6), "reference": ("s", "none", 10), "baseline": ("D", "full", 5)}

_MARKERS = "^vPX*pdh"
_MARK_POINTS = 12.0  # width of a mark in points
_MIN_ROOF_RATIO = 1.5  # ratio of two roofs that leaves room for a label between them
_LABEL_STEPS = 60  # candidate positions of a label along a roof
_LEGEND_POINTS = (100.0, 60.0)  # width and height of the legend in points


@dataclass(frozen=True)
class Mark:
    """A kernel on a roofline.

    Attributes:
        label: The text in the legend, with the role first. Marks with equal labels look alike.
        intensity: Operations per byte.
        rate: Operations per second.
        light: The rate at the measured ceiling, to which a dotted line leads; 0 for no line.
        name: The name beside the mark.
        link: The target of a click on the mark in a page.
        hover: The text that a page shows under the mouse.
    """

    label: str
    intensity: float
    rate: float
    light: float = 0.0
    name: str = ""
    link: str = ""
    hover: str = ""

    @property
    def place(self) -> tuple[float, float]:
        """Return the coordinates: operations per byte, and TFLOP/s."""
        return self.intensity, self.rate / 1e12


@dataclass(frozen=True)
class Roof:
    """The limits of a machine: bytes per second, and operations per second by kind of arithmetic."""

    memory: float
    arithmetic: Mapping[str, float]

    @classmethod
    def measured(cls, ceilings: Mapping[str, float]) -> Roof:
        """Create a roof from ceilings as `work.ceilings.measure` names them."""
        gemm_rates = {name.removeprefix("matmul_"): rate for name, rate in ceilings.items() if "matmul_" in name}
        rates_by_label = {f"{name} product, {words.arithmetic(rate)}": rate for name, rate in gemm_rates.items()}
        return cls(bandwidth(ceilings), rates_by_label)


def draw(
    marks: Sequence[Mark],
    roof: Roof,
    x: str = COMPULSORY,
    *,
    y: str = "TFLOP/s",
    inches: tuple[float, float] = (8, 4.6),
    along: str = "memory",
    right: float = 0,
) -> Figure:
    """Draw kernels under the roof of a machine: operations per second over operations per byte.

    A kernel whose data stays in cache may be above the slanted line.

    Args:
        x: The label of the horizontal axis.
        y: The label of the vertical axis.
        inches: Width and height.
        along: The memory whose bandwidth the slanted line is.
        right: An intensity that must be inside the picture.
    """
    figure = Figure(figsize=inches)
    figure.subplots_adjust(left=0.72 / inches[0], right=0.98, bottom=0.12, top=0.97)
    axes = figure.subplots()
    _draw_roof(axes, roof, marks, along, right)
    shapes = _choose_shapes(marks)
    labels_in_legend = set[str]()
    for index, mark in enumerate(marks):
        marker, filling, size, shade = shapes[mark.label]
        (line,) = axes.plot(
            *mark.place,
            marker,
            color=shade,
            fillstyle=filling,
            markersize=size,
            markeredgewidth=1.5,
            label=mark.label if mark.label not in labels_in_legend else None,
        )
        labels_in_legend.add(mark.label)
        if mark.light:
            axes.vlines(mark.intensity, mark.place[1], mark.light / 1e12, color=QUIET, linestyle=":", zorder=1)
        if mark.link:
            line.set_url(mark.link)
            line.set_gid(f"mark-{index}")
    _draw_names(axes, marks)
    axes.set_xlabel(x, fontsize=9, color=INK)
    axes.set_ylabel(y, fontsize=9, color=INK)
    axes.tick_params(labelsize=8, colors=INK, which="both")
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(INK)
    axes.grid(alpha=0.25, color=QUIET)
    if marks:
        crowded = any(mark.name for mark in marks)  # names stay off the corner
        axes.legend(fontsize=8, frameon=False, labelcolor=INK, loc="upper left" if crowded else "best")
    return figure


def _choose_shapes(marks: Sequence[Mark]) -> dict[str, tuple[str, str, int, str]]:
    """Return marker, filling, size and color by label: those of the roles, then a cycle for all others."""
    shapes: dict[str, tuple[str, str, int, str]] = {}
    for label in dict.fromkeys(mark.label for mark in marks):
        index = len(shapes)
        default = (_MARKERS[index % len(_MARKERS)], "none", 7)
        shape = next((shape for role, shape in _SHAPES.items() if label.startswith(role)), default)
        shapes[label] = (*shape, color(label, OTHERS[index % len(OTHERS)]))
    return shapes


def _draw_roof(axes: Axes, roof: Roof, marks: Sequence[Mark], along: str, required_right: float) -> None:
    """Draw the slope of memory up to the fastest arithmetic, and a line for each slower arithmetic."""
    memory = roof.memory / 1e12
    ridges = sorted(((rate / roof.memory, rate / 1e12, label) for label, rate in roof.arithmetic.items()), reverse=True)
    places = [mark.intensity for mark in marks] or [1.0]
    left = min([min(places) / 2, *(ridge / 8 for ridge, _, _ in ridges)])
    right = max([4 * place for place in (*places, *(ridge for ridge, _, _ in ridges))] + [1.5 * required_right])
    top = ridges[0][0] if ridges else right
    corners = [(left, left * memory), (top, top * memory), (right, top * memory)]
    axes.plot(*zip(*corners[: 3 if ridges else 2], strict=True), color=INK, linewidth=1.8)
    for ridge, rate, _ in ridges:
        if ridge < top:
            axes.plot([ridge, right], [rate, rate], color=INK, linewidth=1.8)
    lowest = min([left * memory, *(mark.place[1] for mark in marks)])
    axes.set(xscale="log", yscale="log", xlim=(left, right), ylim=(lowest / 2, 2 * top * memory))
    axes.xaxis.set_major_formatter("{x:g}")
    axes.yaxis.set_major_formatter("{x:g}")
    for rate, label in _merge_roof_labels([(rate, label) for _, rate, label in ridges]):
        _draw_roof_label(axes, (rate / memory, right), rate, label, [mark.place for mark in marks])
    first, rate = min((mark.place for mark in marks), default=(1.0, 0.0))
    clear = -15.0 if rate > memory * first else 8.0  # points; the first mark stands on the other side
    _draw_slope_label(axes, corners[:2], f"{along}, {words.bandwidth(roof.memory)}", clear)


def _merge_roof_labels(roofs: Sequence[tuple[float, str]]) -> list[tuple[float, str]]:
    """Return the label of each roof from the highest to the lowest. Roofs without room between them share a label."""
    merged: list[tuple[float, str]] = []
    for rate, label in roofs:
        if merged and merged[-1][0] < _MIN_ROOF_RATIO * rate:
            merged[-1] = (merged[-1][0], f"{label}; {merged[-1][1]}")
        else:
            merged.append((rate, label))
    return merged


def _draw_roof_label(
    axes: Axes, ends: tuple[float, float], rate: float, label: str, marks: Sequence[tuple[float, float]]
) -> None:
    """Draw the label of a roof at its right end, or further left or below the roof if marks are in the way."""
    text = axes.text(ends[1], rate, label, ha="right", fontsize=8, color=INK)
    points = axes.transData.transform(marks) if marks else np.zeros((0, 2))
    margin = _MARK_POINTS / 2 * axes.figure.dpi / 72
    candidates = []
    for above in (True, False):
        text.set(y=1.06 * rate if above else rate / 1.06, va="bottom" if above else "top")
        for x in np.geomspace(ends[1], ends[0], _LABEL_STEPS):
            text.set_x(x)
            (left, low), (right, high) = text.get_window_extent().get_points()
            if left < axes.transData.transform((ends[0], rate))[0]:
                break
            inside = (points > (left - margin, low - margin)) & (points < (right + margin, high + margin))
            candidates.append(
                (int(inside.all(1).sum()), not above, -x, text.get_position()[1], text.get_verticalalignment())
            )
    _, _, x, y, side = min(candidates, default=(0, False, -ends[1], 1.06 * rate, "bottom"))
    text.set(x=-x, y=y, va=side)


def _draw_slope_label(axes: Axes, slope: Sequence[tuple[float, float]], text: str, clear: float) -> None:
    """Draw text along a slope, given by its two ends.

    Args:
        clear: The distance in points above the slope, or below if negative.
    """
    (x0, y0), (x1, y1) = axes.transData.transform(slope)
    angle = math.atan2(y1 - y0, x1 - x0)
    along = 12.0  # points
    axes.annotate(
        text,
        slope[0],
        xytext=(along * math.cos(angle) - clear * math.sin(angle), along * math.sin(angle) + clear * math.cos(angle)),
        textcoords="offset points",
        rotation=math.degrees(angle),
        rotation_mode="anchor",
        fontsize=8,
        color=INK,
    )


def _draw_names(axes: Axes, marks: Sequence[Mark]) -> None:
    """Draw a name beside each mark that has one, with a leader line."""
    scale = 72 / axes.figure.dpi  # points per pixel
    box = axes.bbox
    corner = np.array([box.x0, box.y0])

    def to_points(place: tuple[float, float]) -> tuple[float, float]:
        x, y = (axes.transData.transform(place) - corner) * scale
        return float(x), float(y)

    canvas = naming.LabelCanvas(box.width * scale, box.height * scale)
    for line in axes.get_lines():
        canvas.cover_line([to_points((x, y)) for x, y in np.asarray(line.get_xydata())])
    for text in axes.texts:
        (left, low), (right, high) = (text.get_window_extent().get_points() - corner) * scale
        # The box around rotated text is mostly empty, so only its diagonal is covered.
        if text.get_rotation():
            canvas.cover_line([(left, low), (right, high)], 14.0)
        else:
            canvas.cover([(left, low, right, high)])
    canvas.cover([(0, canvas.size[1] - _LEGEND_POINTS[1], _LEGEND_POINTS[0], canvas.size[1])])
    for x, y in (to_points(mark.place) for mark in marks):
        canvas.cover([(x - _MARK_POINTS / 2, y - _MARK_POINTS / 2, x + _MARK_POINTS / 2, y + _MARK_POINTS / 2)])
    named = [mark for mark in marks if mark.name]
    points = [to_points(mark.place) for mark in named]
    groups = naming.find_crowds(points)
    middles = [points[group[len(group) // 2]] for group in groups]
    places = naming.place_labels([[named[index].name for index in group] for group in groups], middles, canvas)
    for group, (x, y), position in zip(groups, middles, places, strict=True):
        _draw_crowd_names(axes, [named[index] for index in group], (position.x - x, position.y - y), position.side)


def _draw_crowd_names(axes: Axes, marks: Sequence[Mark], end: tuple[float, float], side: tuple[float, float]) -> None:
    """Draw names one below the other, and a line to the middle name's mark.

    Args:
        end: The end of the line, in points from the mark.
    """
    mark = marks[len(marks) // 2]
    across, up = side
    line: dict[str, Any] = {"arrowstyle": "-", "color": QUIET, "linewidth": 0.8, "shrinkA": 0, "shrinkB": 3}
    axes.annotate("", mark.place, xytext=end, textcoords="offset points", arrowprops=line)
    first = end[1] + naming.LINE_POINTS * (len(marks) - 1 + up * len(marks)) / 2
    for row, named_mark in enumerate(marks):
        axes.annotate(
            named_mark.name,
            mark.place,
            xytext=(end[0] + 2 * across, first - naming.LINE_POINTS * row),
            textcoords="offset points",
            ha={1.0: "left", 0.0: "center", -1.0: "right"}[across],
            va="center",
            fontsize=naming.FONT_POINTS,
            color=INK,
            url=named_mark.link or None,
        )
