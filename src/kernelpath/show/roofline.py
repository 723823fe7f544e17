"""The roofline, drawn by one function for terminals' pictures, notebooks and the web page.

It is Williams, Waterman and Patterson's (Communications of the ACM 52(4), 2009), from ceilings that were measured in
the same process as the kernels, never from a data sheet.
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

_SHAPES = {"yours": ("o", "full", 6), "reference": ("s", "none", 10), "baseline": ("D", "full", 5)}
"""Marker, filling and size of a role; those of equal kernels are still told apart where they lie on each other."""

_MARKERS = "^vPX*pdh"
_MARK = 12.0  # points that a mark takes
_ROOM = 1.5  # of a roof over the one below, for the words between them
_STEPS = 60  # places along a roof at which the words may stand
_LEGEND = (100.0, 60.0)  # room for the legend, in points of width and height


@dataclass(frozen=True)
class Mark:
    """A kernel on a roofline.

    label: in the legend, with the role first; marks of equal label look alike. intensity: operations per byte.
    rate: operations per second. light: the rate at the measured ceiling, to which a dotted line leads; 0 for none.
    name: stands beside the mark. link: where a click on it leads in a page. hover: what a page shows under the mouse.
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
        """Where it stands: operations per byte, and TFLOP/s."""
        return self.intensity, self.rate / 1e12


@dataclass(frozen=True)
class Roof:
    """What a machine can do: bytes per second, and operations per second by what is computed."""

    memory: float
    arithmetic: Mapping[str, float]

    @classmethod
    def measured(cls, ceilings: Mapping[str, float]) -> Roof:
        """From ceilings as `work.ceilings.measure` names them."""
        products = {name.removeprefix("matmul_"): rate for name, rate in ceilings.items() if "matmul_" in name}
        told = {f"{name} product, {words.arithmetic(rate)}": rate for name, rate in products.items()}
        return cls(bandwidth(ceilings), told)


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
    """Kernels under the roof of a machine: what they do in a second over what they do for each byte.

    A kernel that lives on its caches may stand above the slanted line. x, y: what the axes say. inches: width and
    height. along: what the slanted line is the bandwidth of. right: an intensity that has to be inside the picture.
    """
    figure = Figure(figsize=inches)
    figure.subplots_adjust(left=0.72 / inches[0], right=0.98, bottom=0.12, top=0.97)
    axes = figure.subplots()
    _draw_roof(axes, roof, marks, along, right)
    shapes, named = _shapes(marks), set[str]()
    for place, mark in enumerate(marks):
        marker, filling, size, shade = shapes[mark.label]
        (drawn,) = axes.plot(
            *mark.place,
            marker,
            color=shade,
            fillstyle=filling,
            markersize=size,
            markeredgewidth=1.5,
            label=mark.label if mark.label not in named else None,
        )
        named.add(mark.label)
        if mark.light:
            axes.vlines(mark.intensity, mark.place[1], mark.light / 1e12, color=QUIET, linestyle=":", zorder=1)
        if mark.link:
            drawn.set_url(mark.link)
            drawn.set_gid(f"mark-{place}")
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


def _shapes(marks: Sequence[Mark]) -> dict[str, tuple[str, str, int, str]]:
    """Marker, filling, size and color by label: those of the roles, and others in their order."""
    found: dict[str, tuple[str, str, int, str]] = {}
    for label in dict.fromkeys(mark.label for mark in marks):
        place = len(found)
        other = (_MARKERS[place % len(_MARKERS)], "none", 7)
        shape = next((shape for role, shape in _SHAPES.items() if label.startswith(role)), other)
        found[label] = (*shape, color(label, OTHERS[place % len(OTHERS)]))
    return found


def _draw_roof(axes: Axes, roof: Roof, marks: Sequence[Mark], along: str, further: float) -> None:
    """The slope of memory, bent where the fastest arithmetic begins; a line for each slower one."""
    memory = roof.memory / 1e12
    ridges = sorted(((rate / roof.memory, rate / 1e12, told) for told, rate in roof.arithmetic.items()), reverse=True)
    places = [mark.intensity for mark in marks] or [1.0]
    left = min([min(places) / 2, *(ridge / 8 for ridge, _, _ in ridges)])
    right = max([4 * place for place in (*places, *(ridge for ridge, _, _ in ridges))] + [1.5 * further])
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
    for rate, told in _told([(rate, told) for _, rate, told in ridges]):
        _draw_told(axes, (rate / memory, right), rate, told, [mark.place for mark in marks])
    first, rate = min((mark.place for mark in marks), default=(1.0, 0.0))
    clear = -15.0 if rate > memory * first else 8.0  # points; the first mark stands on the other side
    _draw_along(axes, corners[:2], f"{along}, {words.bandwidth(roof.memory)}", clear)


def _told(roofs: Sequence[tuple[float, str]]) -> list[tuple[float, str]]:
    """What stands above each roof, from the highest to the lowest; roofs with no room between them share a line."""
    found: list[tuple[float, str]] = []
    for rate, told in roofs:
        if found and found[-1][0] < _ROOM * rate:
            found[-1] = (found[-1][0], f"{told}; {found[-1][1]}")
        else:
            found.append((rate, told))
    return found


def _draw_told(
    axes: Axes, ends: tuple[float, float], rate: float, told: str, marks: Sequence[tuple[float, float]]
) -> None:
    """What a roof is, at its right end, unless marks are there: then further left, or below it."""
    text = axes.text(ends[1], rate, told, ha="right", fontsize=8, color=INK)
    points = axes.transData.transform(marks) if marks else np.zeros((0, 2))
    near = _MARK / 2 * axes.figure.dpi / 72
    crowded = []
    for above in (True, False):
        text.set(y=1.06 * rate if above else rate / 1.06, va="bottom" if above else "top")
        for x in np.geomspace(ends[1], ends[0], _STEPS):
            text.set_x(x)
            (left, low), (right, high) = text.get_window_extent().get_points()
            if left < axes.transData.transform((ends[0], rate))[0]:
                break
            inside = (points > (left - near, low - near)) & (points < (right + near, high + near))
            crowded.append(
                (int(inside.all(1).sum()), not above, -x, text.get_position()[1], text.get_verticalalignment())
            )
    _, _, x, y, side = min(crowded, default=(0, False, -ends[1], 1.06 * rate, "bottom"))
    text.set(x=-x, y=y, va=side)


def _draw_along(axes: Axes, slope: Sequence[tuple[float, float]], text: str, clear: float) -> None:
    """Text along a slope, given by its ends. clear: points by which it stands above it, below it if negative."""
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
    """A name beside each mark that has one, with a line between them."""
    scale, box = 72 / axes.figure.dpi, axes.bbox  # points to a pixel
    corner = np.array([box.x0, box.y0])

    def at(place: tuple[float, float]) -> tuple[float, float]:
        x, y = (axes.transData.transform(place) - corner) * scale
        return float(x), float(y)

    paper = naming.Paper(box.width * scale, box.height * scale)
    for line in axes.get_lines():
        paper.cover_line([at((x, y)) for x, y in np.asarray(line.get_xydata())])
    for text in axes.texts:
        (left, low), (right, high) = (text.get_window_extent().get_points() - corner) * scale
        if text.get_rotation():
            paper.cover_line([(left, low), (right, high)], 14.0)
        else:
            paper.cover([(left, low, right, high)])
    paper.cover([(0, paper.size[1] - _LEGEND[1], _LEGEND[0], paper.size[1])])
    for x, y in (at(mark.place) for mark in marks):
        paper.cover([(x - _MARK / 2, y - _MARK / 2, x + _MARK / 2, y + _MARK / 2)])
    named = [mark for mark in marks if mark.name]
    points = [at(mark.place) for mark in named]
    crowds = naming.crowds(points)
    middles = [points[crowd[len(crowd) // 2]] for crowd in crowds]
    places = naming.place([[named[one].name for one in crowd] for crowd in crowds], middles, paper)
    for crowd, (x, y), found in zip(crowds, middles, places, strict=True):
        _name_crowd(axes, [named[one] for one in crowd], (found.x - x, found.y - y), found.side)


def _name_crowd(axes: Axes, marks: Sequence[Mark], end: tuple[float, float], side: tuple[float, float]) -> None:
    """Names one under the other, and a line to the middle one's mark. end: of the line, in points from there."""
    mark, (across, up) = marks[len(marks) // 2], side
    line: dict[str, Any] = {"arrowstyle": "-", "color": QUIET, "linewidth": 0.8, "shrinkA": 0, "shrinkB": 3}
    axes.annotate("", mark.place, xytext=end, textcoords="offset points", arrowprops=line)
    first = end[1] + naming.LINE_POINTS * (len(marks) - 1 + up * len(marks)) / 2
    for row, one in enumerate(marks):
        axes.annotate(
            one.name,
            mark.place,
            xytext=(end[0] + 2 * across, first - naming.LINE_POINTS * row),
            textcoords="offset points",
            ha={1.0: "left", 0.0: "center", -1.0: "right"}[across],
            va="center",
            fontsize=naming.FONT_POINTS,
            color=INK,
            url=one.link or None,
        )
