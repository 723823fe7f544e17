"""Draw figures for notebooks: threads, sectors, banks, times, and numbers side by side.

Every function returns a matplotlib Figure of the data that it gets and measures nothing. A figure is narrow enough to
be legible on a page of 390 pixels, and curves differ in more than their color.
"""

from __future__ import annotations

import io
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
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
from kernelpath.show.palette import INK, ROLES, color
from kernelpath.show.warp import banks, sectors, wavefronts
from kernelpath.verdict import Measurement

__all__ = ["banks", "bars", "grid", "groups", "lines", "product", "roofline", "sectors", "timeline", "wavefronts"]

_WIDTH = 5.6  # inches; at 390 pixels a point is then about a pixel
_MAX_GRID_INCHES = 7.2
_MAX_LABEL_CHARACTERS = 62  # of a line below all groups of a figure
_MIN_LABEL_CHARACTERS = 9  # of a line below one group
_SPAN_COLORS = colormaps["viridis"]
_MARKERS = "os^Dvp"
_LINE_STYLES = ("-", "--", "-.", ":")
_HATCHES = ("", "///", "...", "\\\\\\", "xxx", "---", "|||")  # bars differ in gray too


def grid(
    panels: Mapping[str, ArrayLike],
    lines: tuple[int, int] | None = None,
    colors: Mapping[str, ArrayLike] | None = None,
) -> Figure:
    """Draw matrices of small integers one below the other, each cell colored and labeled by its value.

    Args:
        panels: Integers, rows x columns, by title. A vector is drawn as one row.
        lines: The numbers of rows and columns after which a heavy line follows.
        colors: Integers that color the cells of a panel instead of its values, by title.
    """
    matrices = {title: np.atleast_2d(np.asarray(ids)) for title, ids in panels.items()}
    heights = [values.shape[0] for values in matrices.values()]
    widest = max(values.shape[1] for values in matrices.values())
    figure = Figure(figsize=(min(_MAX_GRID_INCHES, 0.34 * widest + 0.4), 0.26 * sum(heights) + 0.4 * len(heights)))
    stacked = np.atleast_1d(figure.subplots(len(matrices), 1, height_ratios=heights))
    for axes, (title, values) in zip(stacked, matrices.items(), strict=True):
        _draw_cells(axes, values, lines, by=(colors or {}).get(title))
        axes.set_xlim(-0.5, widest - 0.5)
        _remove_axes(axes, title)
    figure.tight_layout()
    return figure


def product(a: ArrayLike, b: ArrayLike, c: ArrayLike, lines: tuple[int, int] | None = None) -> Figure:
    """Draw the matrices of a matrix product in their usual places: b above c, and a to the left of c.

    Args:
        a: Integers, m x k.
        b: Integers, k x n.
        c: Integers, m x n.
        lines: As for `grid`.
    """
    a, b, c = (np.asarray(matrix) for matrix in (a, b, c))
    (m, k), n = a.shape, b.shape[1]
    cell_inches = (_WIDTH - 0.4) / (k + n)
    figure = Figure(figsize=(_WIDTH, cell_inches * (k + m) + 0.8))
    panels = figure.subplots(2, 2, width_ratios=(k, n), height_ratios=(k, m))
    panels[0, 0].set_axis_off()
    for axes, values, title in ((panels[0, 1], b, "B"), (panels[1, 0], a, "A"), (panels[1, 1], c, "C")):
        _draw_cells(axes, values, lines, highest=max(a.max(), b.max(), c.max()))
        _remove_axes(axes, title)
    figure.tight_layout()
    return figure


def _draw_cells(
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
    """Draw horizontal bars with their numbers.

    Args:
        best: The value of a line that no bar should pass, such as the compulsory bytes.
    """
    if not values:
        return _empty_figure()
    figure = Figure(figsize=(_WIDTH - 1.4, 0.38 * len(values) + 0.8))  # the names are to the left of the axes
    axes = figure.subplots()
    bar_container = axes.barh(list(values), list(values.values()), color=[color(label) for label in values], height=0.7)
    labels = [_format_bar_label(value, max(values.values())) for value in values.values()]
    for text in axes.bar_label(bar_container, labels=labels, padding=4, fontsize=8):
        text.set_path_effects(
            [withStroke(linewidth=2.5, foreground="white")]
        )  # legible where the line of `best` crosses the number
    if best is not None:
        axes.axvline(best, color=INK, linestyle=":", linewidth=1)
    axes.invert_yaxis()
    axes.set_xlabel(unit, fontsize=8)
    axes.margins(x=0.12)
    _style_axes(axes, title)
    return figure


def _format_bar_label(value: float, largest: float) -> str:
    """Format the number beside a bar, or that a value is too small to be visible."""
    visible = largest / 1000
    return words.number(value) if not 0 < value < visible else f"< {words.number(visible, 1)}"


def groups(values: Mapping[str, Mapping[str, float]], unit: str) -> Figure:
    """Draw bars in groups: group -> label -> value. A label has the same color in every group."""
    labels = list(dict.fromkeys(label for group in values.values() for label in group))
    if not labels:
        return _empty_figure()
    figure = Figure(figsize=(_WIDTH, 3.6))
    axes = figure.subplots()
    width = 0.8 / max(1, len(labels))
    for index, label in enumerate(labels):
        heights = [group.get(label, 0.0) for group in values.values()]
        centers = [group + (index - (len(labels) - 1) / 2) * width for group in range(len(values))]
        shade = ROLES.get(label) or colormaps["Blues"](0.35 + 0.5 * index / len(labels))
        hatch = _HATCHES[index % len(_HATCHES)]
        legend_label = (
            f" {label}" if label.startswith("_") else label
        )  # matplotlib's legend leaves out labels that begin with _
        bar_container = axes.bar(
            centers, heights, 0.92 * width, color=shade, label=legend_label, hatch=hatch, edgecolor="white", lw=0
        )
        numbers = [words.number(round(height) if height >= 10 else height, 3) for height in heights]
        axes.bar_label(bar_container, labels=numbers, fontsize=7, padding=2, rotation=90)
    group_labels = [
        textwrap.fill(group, max(_MIN_LABEL_CHARACTERS, _MAX_LABEL_CHARACTERS // len(values))) for group in values
    ]
    axes.set_xticks(range(len(values)), group_labels, fontsize=8)
    axes.set_ylabel(unit, fontsize=8)
    axes.margins(y=0.15)
    _style_axes(axes, "")
    legend_y = -0.06 - 0.05 * max(1 + group.count("\n") for group in group_labels)
    axes.legend(fontsize=8, frameon=False, loc="upper center", bbox_to_anchor=(0.5, legend_y), ncols=2)
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
    """Draw curves of y over x, each named at its right end.

    Args:
        series: The values of y by x, by label.
        log: Scale the x axis to base 2.
        marks: The x of vertical lines by label, such as the size of a cache.
        markers: Draw dots at the points.
        ticks: Returns the text of an x value. Where there are many values, only some have a text.
        log_y: Scale the y axis to base 10. Otherwise it starts at 0.

    Raises ValueError for an x that a logarithmic axis cannot show.
    """
    if not any(series.values()):
        return _empty_figure()
    x_values = sorted({value for points in series.values() for value in points})
    if log and x_values[0] <= 0:  # a label at such a point would make the picture thousands of inches wide
        raise ValueError(f"x = {x_values[0]:g} is not on a logarithmic axis: pass log=False")
    figure = Figure(figsize=(_WIDTH - 0.8, 3.6))  # the names are to the right of the axes
    axes = figure.subplots()
    for index, (label, points) in enumerate(series.items()):
        axes.plot(
            list(points),
            list(points.values()),
            linestyle=_LINE_STYLES[index % len(_LINE_STYLES)],
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
    name_curves(axes)
    if ticks:
        labeled_values = select_ticks(x_values, log)
        axes.set_xticks(labeled_values, [ticks(value) for value in labeled_values], fontsize=7)
        axes.minorticks_off()
    for label, value in (marks or {}).items():
        axes.axvline(value, color=INK, linestyle=":", linewidth=1)
        axes.text(value, axes.get_ylim()[1], f" {label}", fontsize=7, va="top", color=INK)
    axes.set(xlabel=x, ylabel=y)
    _style_axes(axes, title)
    return figure


def timeline(rows: Mapping[str, Sequence[tuple[float, float]]], x: str) -> Figure:
    """Draw the spans of each label, each a start and a duration in the unit that `x` names."""
    figure = Figure(figsize=(_WIDTH, 0.45 * len(rows) + 0.7))
    axes = figure.subplots()
    for row, spans in enumerate(rows.values()):
        colors = [_SPAN_COLORS(0.15 + 0.7 * (k % 2)) for k in range(len(spans))]
        axes.broken_barh(spans, (row - 0.35, 0.7), facecolors=colors, edgecolor="white", linewidth=0.5)
    axes.set_yticks(range(len(rows)), list(rows))
    axes.invert_yaxis()
    axes.set_xlabel(x, fontsize=8)
    _style_axes(axes, "")
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
    """Draw kernels under the roof of a machine. The legend gives their rates in 10^12 per second.

    Args:
        kernels: Operations per byte requested of memory, and operations per second, by label.
        bandwidth: The slope of the slanted line in bytes per second.
        peak: The height of the flat line in operations per second.
        x: The label of the horizontal axis.
        y: The label of the vertical axis.
        compulsory: The operations per compulsory byte, marked by a dotted vertical line.
        along: The name of the slanted line.
        flat: The name of the flat line.
    """
    if not kernels:
        return _empty_figure()
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


def _empty_figure() -> Figure:
    figure = Figure(figsize=(3, 0.4))
    axes = figure.subplots()
    axes.text(0, 0.5, "nothing was measured", fontsize=9, color=INK, va="center")
    axes.set_axis_off()
    return figure


def _remove_axes(axes: Axes, title: str) -> None:
    axes.set(xticks=[], yticks=[])
    axes.set_title(title, fontsize=9, loc="left", color=INK)
    for spine in axes.spines.values():
        spine.set_visible(False)


def _style_axes(axes: Axes, title: str) -> None:
    axes.set_title(title, fontsize=10, loc="left", color=INK)
    axes.tick_params(labelsize=8)
    axes.spines[["top", "right"]].set_visible(False)


_MAX_TICKS = 12
_AXES_POINTS = 200  # height of the axes of a figure of curves
_LABEL_POINTS = 10  # height of a line of a curve's name


def select_ticks(values: Sequence[float], log: bool) -> list[float]:
    """Select those of ascending values that are far enough apart on the axis for their labels."""
    positions = [np.log2(value) if log else value for value in values]
    # Slightly less than the exact distance, so that rounding leaves out none of _MAX_TICKS evenly spaced values.
    min_distance = (positions[-1] - positions[0]) / (_MAX_TICKS - 1) * 0.999
    selected: list[int] = [0]
    for index, value in enumerate(positions):
        if index and value - positions[selected[-1]] >= min_distance:
            selected.append(index)
    return [values[index] for index in selected]


def name_curves(axes: Axes) -> None:
    """Write the label of each curve beside its last point, from the lowest curve up, without overlaps."""
    on_axes = axes.transScale + axes.transLimits
    curves = [(on_axes.transform(np.asarray(curve.get_xydata())), curve) for curve in axes.get_lines()]
    right = max(points[-1, 0] for points, _ in curves)
    next_free = 0.0  # height in points above which the right margin is free
    for points, curve in sorted(curves, key=lambda entry: entry[0][-1, 1]):
        end, height = points[-1].tolist()  # in widths and heights of the axes
        heights_ahead = [
            other_points[other_points[:, 0] >= end, 1].min(initial=1.0)
            for other_points, entry in curves
            if entry is not curve
        ]
        is_clear = end < right and height < min(heights_ahead, default=1.0) - 0.08
        covered = not is_clear and (end < right or height < 0.04)  # by another curve that continues, or by the axis
        place_left = (
            covered and end < right and len(points) > 1 and height > points[-2, 1]
        )  # room above a curve that rises
        lift = 2.0 if covered else 0.0
        if end == right:
            label_height = _LABEL_POINTS * (1 + str(curve.get_label()).count("\n"))
            bottom = _AXES_POINTS * height + (lift if covered else -label_height / 2)
            lift += max(0.0, next_free - bottom)
            next_free = max(next_free, bottom) + label_height
        x, y = np.asarray(curve.get_xydata())[-1]
        axes.annotate(
            str(curve.get_label()),
            (x, y),
            xytext=(-5 if place_left else 5, lift),  # clear of the last dot
            textcoords="offset points",
            color=curve.get_color(),
            fontsize=8,
            ha="right" if place_left else "left",
            va="bottom" if covered else "center",
        )


def draw_measurement(measured: Measurement) -> Figure:
    """Draw the learner's kernel, the reference kernel and the baseline as one run measured them.

    A kernel without arithmetic has no place on a roofs. Bars show its bandwidth instead.
    """
    times = {"yours": measured.seconds, "reference": measured.reference_seconds, "baseline": measured.baseline_seconds}
    runs = {role: replace(measured, seconds=seconds) for role, seconds in times.items() if seconds is not None}
    labels = {role: f"{role}: {words.share(run.share_of_light)} of the measured ceiling" for role, run in runs.items()}
    roof = roofs.Roof.measured(measured.ceilings)
    if not measured.flops:
        rates = {labels[role]: run.bytes_per_second / 1e9 for role, run in runs.items()}
        return bars(rates, "GB/s", roof.memory / 1e9, f"dotted: memory, {words.bandwidth(roof.memory)}")
    light = measured.flops / measured.light_seconds
    slowest = max(runs, key=lambda role: runs[role].seconds)
    marks = [
        roofs.Mark(
            label=labels[role],
            intensity=measured.flops / measured.compulsory_bytes,
            rate=measured.flops / run.seconds,
            light=light if role == slowest else 0.0,
        )
        for role, run in runs.items()
    ]
    return roofs.draw(marks, roof)


def png(figure: Figure) -> bytes:
    """Return a figure as a PNG file."""
    picture = io.BytesIO()
    figure.savefig(picture, format="png", dpi=150, bbox_inches="tight")
    return picture.getvalue()
