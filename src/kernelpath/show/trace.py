"""Draw a recorded step from its trace: ranges and calls of the host at the top, GPU activities below."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from kernelpath.course.traces.chrome import ChromeTrace, Range
from kernelpath.show.palette import INK, OTHERS, UNUSED

_WIDTH = 5.6
_POINTS_PER_LETTER = 4.6


def draw(timeline: ChromeTrace, span: tuple[float, float] | None = None) -> Figure:
    """Draw ranges by depth, launches, and a row for each stream, colored by the range of the launch.

    Args:
        span: The first and last microsecond after the first event to draw, everything if None.
    """
    first = min([timed_range.start for timed_range in timeline.ranges] + [timeline.activities[0].start])
    last = max(
        [timed_range.end for timed_range in timeline.ranges] + [timed_range.end for timed_range in timeline.activities]
    )
    span_start, span_end = span or (0.0, last - first)
    depths = _depths(timeline.ranges)
    names = dict.fromkeys(
        timed_range.name for timed_range in timeline.ranges if depths[timed_range] == max(depths.values(), default=0)
    )
    colors = {name: OTHERS[index % len(OTHERS)] for index, name in enumerate(names)}
    streams = sorted({timed_range.stream for timed_range in timeline.activities})
    rows = [*(f"ranges {depth + 1}" for depth in range(max(depths.values(), default=-1) + 1)), "launches"]
    rows += [f"GPU, stream {stream}" for stream in streams]
    figure = Figure(figsize=(_WIDTH, 0.42 * len(rows) + 1.1))
    axes = figure.subplots()
    scale = 72 * 0.78 * _WIDTH / (span_end - span_start)  # points per microsecond

    for timed_range, depth in depths.items():
        bar = (timed_range.start - first, timed_range.end - timed_range.start)
        shade = (colors.get(timed_range.name, UNUSED), 0.5)
        axes.broken_barh([bar], (depth - 0.4, 0.8), facecolor=shade, edgecolor="white", lw=0.5)
        _label(axes, timed_range.name, bar, depth, (span_start, span_end), scale)
    calls = [time - first for _, time in timeline.calls.values()]
    launch_row = len(rows) - len(streams) - 1
    axes.vlines(calls, launch_row - 0.35, launch_row + 0.35, colors=INK, lw=0.4)
    for activity in timeline.activities:
        enclosing_range = timeline.range_of(activity)
        color = colors.get(enclosing_range.name, INK) if enclosing_range else INK
        row = launch_row + 1 + streams.index(activity.stream)
        bar = (activity.start - first, activity.duration)
        axes.broken_barh([bar], (row - 0.4, 0.8), facecolor=color, edgecolor="white", lw=0.2)
    axes.set_xlim(span_start, span_end)
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.set_yticks(range(len(rows)), rows)
    axes.tick_params(labelsize=8)
    axes.set_xlabel("microseconds", fontsize=8)
    axes.spines[["top", "right"]].set_visible(False)
    legend_entries = [Patch(color=color, label=name) for name, color in colors.items()]
    legend_entries.append(Patch(color=INK, label="no range of its own"))
    below = (0.42, -0.75 / figure.get_figheight())
    axes.legend(handles=legend_entries, loc="upper center", bbox_to_anchor=below, ncols=4, fontsize=8, frameon=False)
    figure.tight_layout()
    return figure


def _depths(ranges: Sequence[Range]) -> dict[Range, int]:
    """Return how many ranges enclose each range, on any thread: backward's ranges are inside the main thread's."""
    return {inner: sum(outer.start < inner.start and inner.end < outer.end for outer in ranges) for inner in ranges}


def _label(
    axes: Axes, name: str, bar: tuple[float, float], row: float, span: tuple[float, float], scale: float
) -> None:
    """Draw the name inside of its bar if there is room."""
    start = max(bar[0], span[0])
    end = min(bar[0] + bar[1], span[1])
    if (end - start) * scale > _POINTS_PER_LETTER * len(name):
        axes.text((start + end) / 2, row, name, fontsize=8, color=INK, ha="center", va="center")
