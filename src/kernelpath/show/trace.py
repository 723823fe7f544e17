"""A picture of a recorded step, from its trace: ranges and calls of the host above, what runs on the GPU below."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from kernelpath.course.traces.chrome import Range, Timeline
from kernelpath.show.palette import INK, OTHERS, UNUSED

_WIDTH = 5.6
_POINTS_PER_LETTER = 4.6


def draw(timeline: Timeline, span: tuple[float, float] | None = None) -> Figure:
    """Rows from the top: ranges by depth, launches, and a row for each stream, colored by the range of the launch.

    span: from which to which microsecond after the first event, all of it if None.
    """
    first = min([one.start for one in timeline.ranges] + [timeline.activities[0].start])
    last = max([one.end for one in timeline.ranges] + [one.end for one in timeline.activities])
    begin, end = span or (0.0, last - first)
    depths = _depths(timeline.ranges)
    names = dict.fromkeys(one.name for one in timeline.ranges if depths[one] == max(depths.values(), default=0))
    colors = {name: OTHERS[place % len(OTHERS)] for place, name in enumerate(names)}
    streams = sorted({one.stream for one in timeline.activities})
    rows = [*(f"ranges {depth + 1}" for depth in range(max(depths.values(), default=-1) + 1)), "launches"]
    rows += [f"GPU, stream {stream}" for stream in streams]
    figure = Figure(figsize=(_WIDTH, 0.42 * len(rows) + 1.1))
    axes = figure.subplots()
    scale = 72 * 0.78 * _WIDTH / (end - begin)  # points per microsecond

    for one, depth in depths.items():
        spot = (one.start - first, one.end - one.start)
        shade = (colors.get(one.name, UNUSED), 0.5)
        axes.broken_barh([spot], (depth - 0.4, 0.8), facecolor=shade, edgecolor="white", lw=0.5)
        _label(axes, one.name, spot, depth, (begin, end), scale)
    calls = [time - first for _, time in timeline.calls.values()]
    place = len(rows) - len(streams) - 1
    axes.vlines(calls, place - 0.35, place + 0.35, colors=INK, lw=0.4)
    for activity in timeline.activities:
        around = timeline.range_of(activity)
        color = colors.get(around.name, INK) if around else INK
        row = place + 1 + streams.index(activity.stream)
        spot = (activity.start - first, activity.duration)
        axes.broken_barh([spot], (row - 0.4, 0.8), facecolor=color, edgecolor="white", lw=0.2)
    axes.set_xlim(begin, end)
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.set_yticks(range(len(rows)), rows)
    axes.tick_params(labelsize=8)
    axes.set_xlabel("microseconds", fontsize=8)
    axes.spines[["top", "right"]].set_visible(False)
    shown = [Patch(color=color, label=name) for name, color in colors.items()]
    shown.append(Patch(color=INK, label="no range of its own"))
    below = (0.42, -0.75 / figure.get_figheight())
    axes.legend(handles=shown, loc="upper center", bbox_to_anchor=below, ncols=4, fontsize=8, frameon=False)
    figure.tight_layout()
    return figure


def _depths(ranges: Sequence[Range]) -> dict[Range, int]:
    """How many ranges are open around each, on any thread: backward's ranges lie below those of the main thread."""
    return {one: sum(other.start < one.start and one.end < other.end for other in ranges) for one in ranges}


def _label(
    axes: Axes, name: str, spot: tuple[float, float], row: float, span: tuple[float, float], scale: float
) -> None:
    """The name inside of its bar, where it has room."""
    begin, end = max(spot[0], span[0]), min(spot[0] + spot[1], span[1])
    if (end - begin) * scale > _POINTS_PER_LETTER * len(name):
        axes.text((begin + end) / 2, row, name, fontsize=8, color=INK, ha="center", va="center")
