"""Figures for notebooks: threads, sectors, banks, times, and numbers side by side.

Every function returns a matplotlib Figure drawn from the data it is given; nothing is measured here. A figure is
narrow enough that its text can still be read on a page of 390 pixels, and curves differ by more than their color.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patheffects import withStroke
from matplotlib.ticker import EngFormatter
from numpy.typing import ArrayLike, NDArray

from kernelpath import words
from kernelpath.show import roofline as roofs
from kernelpath.show.labels import apart, name_at_the_right_end
from kernelpath.show.palette import INK, ROLES, color
from kernelpath.show.warp import banks, sectors, wavefronts

__all__ = ["banks", "bars", "grid", "groups", "lines", "product", "roofline", "sectors", "timeline", "wavefronts"]

_WIDTH = 5.6  # inches; at 390 pixels a point is then about a pixel
_WIDEST_GRID = 7.2
_LONG, _SHORTEST = 62, 9  # characters of a line below the groups of a figure, and below one of them
_SPANS = colormaps["viridis"]
_MARKERS = "os^Dvp"
_STROKES = ("-", "--", "-.", ":")
_HATCHES = ("", "///", "...", "\\\\\\", "xxx", "---", "|||")  # bars differ in gray too


def grid(
    panels: Mapping[str, ArrayLike],
    lines: tuple[int, int] | None = None,
    colors: Mapping[str, ArrayLike] | None = None,
) -> Figure:
    """Matrices of small integers, one below the other, each cell colored and labeled by its value.

    panels: title -> integers, rows x columns; a vector is drawn as one row. lines: a heavy line after so many rows and
    columns. colors: title -> integers that color the cells of a panel in place of its values.
    """
    matrices = {title: np.atleast_2d(np.asarray(ids)) for title, ids in panels.items()}
    heights = [values.shape[0] for values in matrices.values()]
    widest = max(values.shape[1] for values in matrices.values())
    figure = Figure(figsize=(min(_WIDEST_GRID, 0.34 * widest + 0.4), 0.26 * sum(heights) + 0.4 * len(heights)))
    stacked = np.atleast_1d(figure.subplots(len(matrices), 1, height_ratios=heights))
    for axes, (title, values) in zip(stacked, matrices.items(), strict=True):
        _cells(axes, values, lines, by=(colors or {}).get(title))
        axes.set_xlim(-0.5, widest - 0.5)
        _bare(axes, title)
    figure.tight_layout()
    return figure


def product(a: ArrayLike, b: ArrayLike, c: ArrayLike, lines: tuple[int, int] | None = None) -> Figure:
    """Three matrices of small integers where a product has them: b above c, and a at the left of c.

    a: m x k, b: k x n, c: m x n. lines: as for `grid`.
    """
    a, b, c = (np.asarray(matrix) for matrix in (a, b, c))
    (m, k), n = a.shape, b.shape[1]
    side = (_WIDTH - 0.4) / (k + n)
    figure = Figure(figsize=(_WIDTH, side * (k + m) + 0.8))
    panels = figure.subplots(2, 2, width_ratios=(k, n), height_ratios=(k, m))
    panels[0, 0].set_axis_off()
    for axes, values, title in ((panels[0, 1], b, "B"), (panels[1, 0], a, "A"), (panels[1, 1], c, "C")):
        _cells(axes, values, lines, highest=max(a.max(), b.max(), c.max()))
        _bare(axes, title)
    figure.tight_layout()
    return figure


def _cells(
    axes: Axes,
    values: NDArray[Any],
    lines: tuple[int, int] | None,
    highest: int | None = None,
    by: ArrayLike | None = None,
) -> None:
    rows, columns = values.shape
    shades = values if by is None else np.asarray(by).reshape(rows, columns)
    top = max(shades.max() if highest is None else highest, shades.min() + 1)
    axes.imshow(shades, cmap="viridis", aspect="auto", vmin=shades.min(), vmax=top)
    middle = (shades.min() + top) / 2
    for (row, column), value in np.ndenumerate(values):
        color = "white" if shades[row, column] <= middle else "black"
        axes.text(column, row, str(value), ha="center", va="center", fontsize=7, color=color)
    if lines:
        for row in range(lines[0], rows, lines[0]):
            axes.axhline(row - 0.5, color="white", linewidth=3)
        for column in range(lines[1], columns, lines[1]):
            axes.axvline(column - 0.5, color="white", linewidth=3)


def bars(values: Mapping[str, float], unit: str, best: float | None = None, title: str = "") -> Figure:
    """Horizontal bars with their numbers. best: a line that no bar should pass, such as the compulsory bytes."""
    if not values:
        return _nothing()
    figure = Figure(figsize=(_WIDTH - 1.4, 0.38 * len(values) + 0.8))  # the names stand to the left of it
    axes = figure.subplots()
    drawn = axes.barh(list(values), list(values.values()), color=[color(label) for label in values], height=0.7)
    told = [_told(value, max(values.values())) for value in values.values()]
    for text in axes.bar_label(drawn, labels=told, padding=4, fontsize=8):
        text.set_path_effects([withStroke(linewidth=2.5, foreground="white")])  # where the line below crosses it
    if best is not None:
        axes.axvline(best, color=INK, linestyle=":", linewidth=1)
    axes.invert_yaxis()
    axes.set_xlabel(unit, fontsize=8)
    axes.margins(x=0.12)
    _quiet(axes, title)
    return figure


def _told(value: float, largest: float) -> str:
    """The number beside a bar; of one that cannot be seen, that it is small."""
    visible = largest / 1000
    return words.number(value) if not 0 < value < visible else f"< {words.number(visible, 1)}"


def groups(values: Mapping[str, Mapping[str, float]], unit: str) -> Figure:
    """Bars in groups: group -> label -> value. A label has the same color in every group."""
    labels = list(dict.fromkeys(label for group in values.values() for label in group))
    if not labels:
        return _nothing()
    figure = Figure(figsize=(_WIDTH, 3.6))
    axes = figure.subplots()
    width = 0.8 / max(1, len(labels))
    for place, label in enumerate(labels):
        heights = [group.get(label, 0.0) for group in values.values()]
        centers = [group + (place - (len(labels) - 1) / 2) * width for group in range(len(values))]
        shade = ROLES.get(label) or colormaps["Blues"](0.35 + 0.5 * place / len(labels))
        hatch = _HATCHES[place % len(_HATCHES)]
        named = f" {label}" if label.startswith("_") else label  # which a legend would leave out
        drawn = axes.bar(centers, heights, 0.92 * width, color=shade, label=named, hatch=hatch, edgecolor="white", lw=0)
        told = [words.number(round(height) if height >= 10 else height, 3) for height in heights]
        axes.bar_label(drawn, labels=told, fontsize=7, padding=2, rotation=90)
    folded = [textwrap.fill(group, max(_SHORTEST, _LONG // len(values))) for group in values]
    axes.set_xticks(range(len(values)), folded, fontsize=8)
    axes.set_ylabel(unit, fontsize=8)
    axes.margins(y=0.15)
    _quiet(axes, "")
    below = -0.06 - 0.05 * max(1 + group.count("\n") for group in folded)
    axes.legend(fontsize=8, frameon=False, loc="upper center", bbox_to_anchor=(0.5, below), ncols=2)
    return figure


def lines(
    series: Mapping[str, Mapping[float, float]],
    x: str,
    y: str,
    title: str = "",
    log: bool = True,
    marks: Mapping[str, float] | None = None,
    markers: bool = True,
    ticks: Callable[[float], str] | None = None,
    log_y: bool = False,
) -> Figure:
    """Curves of y over x, each named at its right end.

    series: label -> x -> y. log: the x axis is to base 2. marks: label -> x of a vertical line, such as the size of a
    cache. markers: dots at the points. ticks: the text of an x value; where there are many, only some are named.
    log_y: the y axis is to base 10; else it begins at 0.
    """
    if not any(series.values()):
        return _nothing()
    figure = Figure(figsize=(_WIDTH - 0.8, 3.6))  # the names stand to the right of it
    axes = figure.subplots()
    places = sorted({place for points in series.values() for place in points})
    for index, (label, points) in enumerate(series.items()):
        axes.plot(
            list(points),
            list(points.values()),
            linestyle=_STROKES[index % len(_STROKES)],
            marker=_MARKERS[index % len(_MARKERS)] if markers else None,
            markersize=4,
            linewidth=1.5,
            clip_on=False,
            label=label,
        )
    axes.margins(x=0.12, y=0.13)  # above, there is room for a name
    if log:
        axes.set_xscale("log", base=2)
    if log_y:
        axes.set_yscale("log")
    else:
        axes.set_ylim(min(0, *(value for points in series.values() for value in points.values())), None)
        if axes.get_ylim()[1] >= 1e5:
            axes.yaxis.set_major_formatter(EngFormatter(sep=" "))
    name_at_the_right_end(axes)
    if ticks:
        named = apart(places, log)
        axes.set_xticks(named, [ticks(place) for place in named], fontsize=7)
        axes.minorticks_off()
    for label, place in (marks or {}).items():
        axes.axvline(place, color=INK, linestyle=":", linewidth=1)
        axes.text(place, axes.get_ylim()[1], f" {label}", fontsize=7, va="top", color=INK)
    axes.set(xlabel=x, ylabel=y)
    _quiet(axes, title)
    return figure


def timeline(rows: Mapping[str, Sequence[tuple[float, float]]], x: str) -> Figure:
    """What happens when: for each label its spans, each a begin and a duration in the unit that x names."""
    figure = Figure(figsize=(_WIDTH, 0.45 * len(rows) + 0.7))
    axes = figure.subplots()
    for place, spans in enumerate(rows.values()):
        colors = [_SPANS(0.15 + 0.7 * (k % 2)) for k in range(len(spans))]
        axes.broken_barh(spans, (place - 0.35, 0.7), facecolors=colors, edgecolor="white", linewidth=0.5)
    axes.set_yticks(range(len(rows)), list(rows))
    axes.invert_yaxis()
    axes.set_xlabel(x, fontsize=8)
    _quiet(axes, "")
    return figure


def roofline(
    kernels: Mapping[str, tuple[float, float]],
    bandwidth: float,
    peak: float,
    *,
    x: str = "intensity (bytes asked for): operations per byte",
    y: str = "TFLOP/s",
    compulsory: float = 0,
    along: str = "copy",
    flat: str = "",
) -> Figure:
    """Kernels under the roof of a machine. The legend gives their rates in units of 10^12 per second.

    kernels: label -> operations per byte asked of memory, operations per second. bandwidth: bytes per second, the
    slanted line, which `along` names. peak: operations per second, the flat line, which `flat` names. compulsory:
    operations per compulsory byte, a dotted vertical line. x, y: what the axes say.
    """
    if not kernels:
        return _nothing()
    marks = [
        roofs.Mark(f"{label}: {words.number(rate / 1e12, 3)}", intensity, rate)
        for label, (intensity, rate) in kernels.items()
    ]
    roof = roofs.Roof(bandwidth, {flat or words.arithmetic(peak): peak})
    figure = roofs.draw(marks, roof, x, y=y, inches=(_WIDTH, 4.8), along=along, right=compulsory)
    (axes,) = figure.axes
    if compulsory:
        axes.axvline(compulsory, color=INK, linestyle=":", linewidth=1.2, label=f"compulsory bytes: {compulsory:.3g}")
    axes.legend(fontsize=8, frameon=False, labelcolor=INK, loc="upper center", bbox_to_anchor=(0.5, -0.13), ncols=2)
    return figure


def _nothing() -> Figure:
    figure = Figure(figsize=(3, 0.4))
    axes = figure.subplots()
    axes.text(0, 0.5, "nothing was measured", fontsize=9, color=INK, va="center")
    axes.set_axis_off()
    return figure


def _bare(axes: Axes, title: str) -> None:
    axes.set(xticks=[], yticks=[])
    axes.set_title(title, fontsize=9, loc="left", color=INK)
    for spine in axes.spines.values():
        spine.set_visible(False)


def _quiet(axes: Axes, title: str) -> None:
    axes.set_title(title, fontsize=10, loc="left", color=INK)
    axes.tick_params(labelsize=8)
    axes.spines[["top", "right"]].set_visible(False)
