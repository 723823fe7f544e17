"""Draw the chart of ``pipeline`` as a picture, with lines from each signal to the warp that it wakes."""

from __future__ import annotations

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from kernelpath.show.palette import INK, QUIET, UNUSED, WASTED
from kernelpath.show.pipeline import (
    ARRIVE,
    COLUMNS,
    EXIT,
    LAND,
    LOAD,
    MULTIPLY,
    RUN,
    STORE,
    STUCK,
    UNIT,
    WAIT,
    WRITTEN,
    Chart,
    parts,
    stage_of,
)

__all__ = ["draw"]

_WIDTH = 7.2  # inches
_ROW = 0.26
_COLORS = {LOAD: "#0072b2", STORE: "#cc79a7", LAND: "#56b4e9", WRITTEN: "#e3b8d0", ARRIVE: "#009e73"}
_COLORS |= {
    MULTIPLY: "#e69f00",
    RUN: "#555555",
    EXIT: "#000000",
    STUCK: WASTED,
}  # Okabe and Ito's palette for color-blind readers
_ON_LIGHT = (LAND, WRITTEN, MULTIPLY)


def draw(chart: Chart, title: str = "") -> Figure:
    """Draw a row for warps with equal events, a column for each event, and lines from a signal to the warp it wakes."""
    spans = parts(chart)
    figure = Figure(figsize=(_WIDTH, len(spans) * (_ROW * len(chart.labels) + 0.45) + 0.95), layout="constrained")
    figure.suptitle(title, fontsize=10, color=INK)
    for axes, span in zip(figure.subplots(len(spans), 1, squeeze=False)[:, 0], spans, strict=True):
        _draw_part(axes, chart, span)
    signs = [
        Patch(facecolor=_COLORS[sign], label=f"{sign} {meaning}")
        for sign, meaning in chart.legend.items()
        if sign in _COLORS and sign != STUCK
    ]
    signs.append(Patch(facecolor=UNUSED, hatch="////", edgecolor="white", label="waits"))
    if chart.stuck:
        signs.append(Patch(facecolor=WASTED, hatch="////", edgecolor="white", label="waits when the launch fails"))
    figure.legend(handles=signs, loc="outside lower center", ncols=3, fontsize=7, frameon=False, labelcolor=INK)
    return figure


def _draw_part(axes: Axes, chart: Chart, span: range) -> None:
    for row, signs in enumerate(chart.rows):
        for sign, color in ((WAIT, UNUSED), (STUCK, WASTED)):
            waits = [(column - 0.5, 1) for column in span if signs[column] == sign]
            axes.broken_barh(waits, (row - 0.25, 0.5), facecolors=color, edgecolor="white", hatch="////", linewidth=0)
    for column in span:
        mark = chart.marks[column]
        axes.broken_barh(
            [(column - 0.5, 1)], (mark.row - 0.38, 0.76), facecolors=_COLORS[mark.sign], edgecolor="white", lw=0.4
        )
        ink = INK if mark.sign in _ON_LIGHT else "white"
        copies = mark.sign in (LOAD, LAND)
        axes.text(
            column,
            mark.row,
            mark.sign + (stage_of(mark.barrier) if copies else ""),
            ha="center",
            va="center",
            fontsize=5 if copies else 6,
            color=ink,
        )
        if mark.after is not None and mark.after in span:
            ends = (chart.marks[mark.after].row, mark.row)
            shift = 0.38 if ends[1] > ends[0] else -0.38
            axes.plot((mark.after, column), (ends[0] + shift, ends[1] - shift), color=QUIET, linewidth=0.8)
    axes.set_xlim(span.start - 0.6, span.start + min(COLUMNS, len(chart.marks)) - 0.4)
    axes.set_ylim(len(chart.labels) - 0.5, -0.5)
    axes.set_yticks(range(len(chart.labels)), list(chart.labels), fontsize=7, color=INK)
    axes.set_xticks([])
    axes.set_xlabel(UNIT if span.stop == len(chart.marks) else "", fontsize=6.5, color=INK)
    axes.set_title(f"step {chart.marks[span.start].step:,}", fontsize=7, loc="left", color=INK)
    axes.spines[:].set_visible(False)
