"""Pictures of what a kernel asks of the machine: threads, sectors, banks, and numbers side by side.

Every function returns a matplotlib Figure drawn from the data it is given; nothing is measured here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from numpy.typing import ArrayLike, NDArray

WARP = 32
SECTOR_BYTES = 32
BANKS = 32
WORD_BYTES = 4

_LANES = colormaps["viridis"]
_UNUSED = "#d9d9d9"
_INK = "#333333"
_MOST_TICKS = 12
_AXES_POINTS = 190  # height of the axes of a figure of curves
_LABEL_POINTS = 10  # height of a curve's name


def grid(panels: Mapping[str, ArrayLike], lines: tuple[int, int] | None = None) -> Figure:
    """Matrices of small integers, one below the other, each cell coloured and labelled by its value.

    panels: title -> integers, rows x columns; a vector is drawn as one row. lines: a heavy line after so many rows and
    columns.
    """
    matrices = {title: np.atleast_2d(np.asarray(ids)) for title, ids in panels.items()}
    heights = [values.shape[0] for values in matrices.values()]
    widest = max(values.shape[1] for values in matrices.values())
    figure = Figure(figsize=(min(11.0, 0.34 * widest + 0.4), 0.26 * sum(heights) + 0.4 * len(heights)))
    stacked = np.atleast_1d(figure.subplots(len(matrices), 1, height_ratios=heights))
    for axes, (title, values) in zip(stacked, matrices.items(), strict=True):
        _cells(axes, values, lines)
        axes.set_xlim(-0.5, widest - 0.5)
        _bare(axes, title)
    figure.tight_layout()
    return figure


def _cells(axes: Axes, values: NDArray[Any], lines: tuple[int, int] | None) -> None:
    rows, columns = values.shape
    axes.imshow(values, cmap="viridis", aspect="auto", vmin=values.min(), vmax=max(values.max(), values.min() + 1))
    middle = (values.min() + values.max()) / 2
    for (row, column), value in np.ndenumerate(values):
        colour = "white" if value <= middle else "black"
        axes.text(column, row, str(value), ha="center", va="center", fontsize=7, color=colour)
    if lines:
        for row in range(lines[0], rows, lines[0]):
            axes.axhline(row - 0.5, color="white", linewidth=3)
        for column in range(lines[1], columns, lines[1]):
            axes.axvline(column - 0.5, color="white", linewidth=3)


def sectors(accesses: Mapping[str, Sequence[int]], width: int = WORD_BYTES) -> Figure:
    """The 32-byte sectors that one warp-level access touches, a panel for each labelled access.

    accesses: label -> byte address of each lane. width: bytes that a lane asks for. Each row is a sector of 8 words;
    coloured words were asked for (the number is the lane), grey words are moved for nothing.
    """
    touched = {label: words_by_sector(dict(enumerate(addresses)), width) for label, addresses in accesses.items()}
    tallest = max(map(len, touched.values()))
    figure = Figure(figsize=(2.6 * len(touched), 0.2 * tallest + 0.9))
    for axes, (label, by_sector) in zip(np.atleast_1d(figure.subplots(1, len(touched))), touched.items(), strict=True):
        draw_sectors(axes, by_sector)
        axes.set(xlim=(0, 8), ylim=(max(tallest, 1), 0))
        _bare(axes, f"{label}\n{_plural(len(by_sector), 'sector')}")
    figure.tight_layout()
    return figure


def draw_sectors(axes: Axes, by_sector: Mapping[int, Mapping[int, int]]) -> None:
    """A row for each sector, from the top down: sector -> word inside it -> the lane that asks for it."""
    for row, sector in enumerate(sorted(by_sector)):
        for word in range(SECTOR_BYTES // WORD_BYTES):
            _word(axes, word, row, by_sector[sector].get(word))


def words_by_sector(addresses: Mapping[int, int], width: int) -> dict[int, dict[int, int]]:
    """sector -> word inside it -> the first lane that asks for it. addresses: in bytes, by lane."""
    found: dict[int, dict[int, int]] = {}
    for lane, address in addresses.items():
        for byte in range(address, address + width, WORD_BYTES):
            sector, inside = divmod(byte, SECTOR_BYTES)
            found.setdefault(sector, {}).setdefault(inside // WORD_BYTES, lane)
    return found


def _word(axes: Axes, x: int, y: int, lane: int | None) -> None:
    colour = _UNUSED if lane is None else _LANES(lane / (WARP - 1))
    axes.add_patch(Rectangle((x + 0.05, y + 0.08), 0.9, 0.84, color=colour, linewidth=0))
    if lane is not None:
        ink = "white" if lane < WARP * 0.6 else "black"
        axes.text(x + 0.5, y + 0.5, str(lane), ha="center", va="center", fontsize=6, color=ink)


def banks(accesses: Mapping[str, Sequence[int]]) -> Figure:
    """The shared-memory banks that one warp-level access meets, a panel for each labelled access.

    accesses: label -> byte address in shared memory of each lane's 4-byte word. A column is a bank; lanes that ask one
    bank for different words are stacked, and the height of the tallest stack is the number of wavefronts.
    """
    queues = {label: _queues(addresses) for label, addresses in accesses.items()}
    heights = [max(map(len, queue.values())) for queue in queues.values()]
    shown = [max(3, height) for height in heights]
    figure = Figure(figsize=(9, 0.16 * sum(shown) + 0.75 * len(shown)))
    panels = np.atleast_1d(figure.subplots(len(queues), 1, height_ratios=shown))
    for axes, (label, queue), height, rows in zip(panels, queues.items(), heights, shown, strict=True):
        for bank, words in queue.items():
            for turn, lane in enumerate(words.values()):
                _word(axes, bank, turn, lane)
        axes.set(xlim=(0, BANKS), ylim=(0, rows), xticks=np.arange(0, BANKS, 4) + 0.5, yticks=[])
        axes.set_xticklabels(map(str, range(0, BANKS, 4)), fontsize=7)
        axes.set_title(f"{label}: {_plural(height, 'wavefront')}", fontsize=9, loc="left", color=_INK)
        axes.spines[["top", "right", "left"]].set_visible(False)
    panels[-1].set_xlabel("bank", fontsize=8)
    figure.tight_layout()
    return figure


def _queues(addresses: Sequence[int]) -> dict[int, dict[int, int]]:
    """bank -> the different words asked of it -> the first lane that asks. Equal words are broadcast at once."""
    found: dict[int, dict[int, int]] = {}
    for lane, address in enumerate(addresses):
        word = address // WORD_BYTES
        found.setdefault(word % BANKS, {}).setdefault(word, lane)
    return found


def wavefronts(addresses: Sequence[int]) -> int:
    """How many turns shared memory needs for one access of 4-byte words by one warp."""
    return max(Counter(word % BANKS for word in {address // WORD_BYTES for address in addresses}).values())


def bars(values: Mapping[str, float], unit: str, best: float | None = None, title: str = "") -> Figure:
    """Horizontal bars with their numbers. best: a line that no bar should pass, such as the compulsory bytes."""
    if not values:
        return _nothing()
    figure = Figure(figsize=(8, 0.38 * len(values) + 0.8))
    axes = figure.subplots()
    drawn = axes.barh(list(values), list(values.values()), color=[_colour(label) for label in values], height=0.7)
    axes.bar_label(drawn, labels=[f"{value:,.4g}" for value in values.values()], padding=4, fontsize=8)
    if best is not None:
        axes.axvline(best, color=_INK, linestyle=":", linewidth=1)
    axes.invert_yaxis()
    axes.set_xlabel(unit, fontsize=8)
    axes.margins(x=0.12)
    _quiet(axes, title)
    return figure


def groups(values: Mapping[str, Mapping[str, float]], unit: str) -> Figure:
    """Bars in groups: group -> label -> value. A label has the same colour in every group."""
    labels = list(dict.fromkeys(label for group in values.values() for label in group))
    if not labels:
        return _nothing()
    figure = Figure(figsize=(9, 3.6))
    axes = figure.subplots()
    width = 0.8 / max(1, len(labels))
    for place, label in enumerate(labels):
        heights = [group.get(label, 0.0) for group in values.values()]
        centres = [group + (place - (len(labels) - 1) / 2) * width for group in range(len(values))]
        shade = _ROLES.get(label) or colormaps["Blues"](0.35 + 0.5 * place / len(labels))
        drawn = axes.bar(centres, heights, 0.92 * width, color=shade, label=label)
        axes.bar_label(drawn, labels=[f"{height:,.0f}" for height in heights], fontsize=6, padding=2)
    axes.set_xticks(range(len(values)), list(values))
    axes.set_ylabel(unit, fontsize=8)
    _quiet(axes, "")
    axes.legend(fontsize=8, frameon=False, loc="upper left", bbox_to_anchor=(1, 1))
    return figure


_ROLES = {"yours": "#d1495b", "reference": "#2e7d5b", "copy": "#777777"}
_MARKERS = "osD^vPX*"
_OTHERS = ("C0", "C1", "C4", "C5", "C6", "C8", "C9", "C7")  # not the green and the red of the roles


def _colour(label: str, other: str = "#8fa3bf") -> str:
    """Yours, the reference and the copy look the same in every picture. other: the colour of what is none of them."""
    return next((colour for role, colour in _ROLES.items() if label.startswith(role)), other)


def lines(
    series: Mapping[str, Mapping[float, float]],
    x: str,
    y: str,
    title: str = "",
    log: bool = True,
    marks: Mapping[str, float] | None = None,
    markers: bool = True,
    ticks: Callable[[float], str] | None = None,
) -> Figure:
    """Curves of y over x, each named at its right end.

    series: label -> x -> y. log: the x axis is to base 2. marks: label -> x of a vertical line, such as the size of a
    cache. markers: dots at the points. ticks: the text of an x value; where there are many, only some are named.
    """
    if not any(series.values()):
        return _nothing()
    figure = Figure(figsize=(8, 3.6))
    axes = figure.subplots()
    places = sorted({place for points in series.values() for place in points})
    for label, points in series.items():
        style = "-o" if markers else "-"
        axes.plot(list(points), list(points.values()), style, markersize=3.5, linewidth=1.5, clip_on=False, label=label)
    values = [value for points in series.values() for value in points.values()]
    _name_at_the_right_end(axes, places[-1], max(values))
    if log:
        axes.set_xscale("log", base=2)
    if ticks:
        named = places[:: 1 + (len(places) - 1) // _MOST_TICKS]
        axes.set_xticks(named, [ticks(place) for place in named], fontsize=7)
        axes.minorticks_off()
    for label, place in (marks or {}).items():
        axes.axvline(place, color=_INK, linestyle=":", linewidth=1)
        axes.text(place, axes.get_ylim()[1], f" {label}", fontsize=7, va="top", color=_INK)
    axes.set(xlabel=x, ylabel=y, ylim=(min(0, *values), None))
    axes.margins(x=0.12)
    _quiet(axes, title)
    return figure


def _name_at_the_right_end(axes: Axes, last: float, highest: float) -> None:
    """The label of each curve beside its last point, from the lowest up, none on top of another.

    last: the greatest x of all curves. highest: their greatest y.
    """
    ends = [(*np.asarray(curve.get_xydata())[-1].tolist(), curve) for curve in axes.get_lines()]
    free = 0.0  # points above the axis from which on no label stands at the right
    for end, height, curve in sorted(ends, key=lambda end: end[1]):
        covered = end < last or height < 0.05 * highest  # by another curve that goes on, or by the axis
        lift = 2.0 if covered else 0.0
        if end == last:
            bottom = _AXES_POINTS * height / (highest or 1) + (lift if covered else -_LABEL_POINTS / 2)
            lift += max(0.0, free - bottom)
            free = max(free, bottom) + _LABEL_POINTS
        axes.annotate(
            str(curve.get_label()),
            (end, height),
            xytext=(5, lift),  # clear of the last dot
            textcoords="offset points",
            color=curve.get_color(),
            fontsize=8,
            va="bottom" if covered else "center",
        )


def timeline(rows: Mapping[str, Sequence[tuple[float, float]]], x: str) -> Figure:
    """What happens when: for each label its spans, each a begin and a duration in the unit that x names."""
    figure = Figure(figsize=(9, 0.45 * len(rows) + 0.7))
    axes = figure.subplots()
    for place, spans in enumerate(rows.values()):
        colours = [_LANES(0.15 + 0.7 * (k % 2)) for k in range(len(spans))]
        axes.broken_barh(spans, (place - 0.35, 0.7), facecolors=colours, edgecolor="white", linewidth=0.5)
    axes.set_yticks(range(len(rows)), list(rows))
    axes.invert_yaxis()
    axes.set_xlabel(x, fontsize=8)
    _quiet(axes, "")
    return figure


def roofline(kernels: Mapping[str, tuple[float, float]], bandwidth: float, peak: float) -> Figure:
    """Kernels under the roof of a machine: what they do in a second over what they do for each byte.

    kernels: label -> operations for each byte asked of memory, operations per second. bandwidth: bytes per second.
    peak: operations per second. A kernel that lives on its caches may stand above the slanted line. The legend gives
    the rates.
    """
    if not kernels:
        return _nothing()
    figure = Figure(figsize=(8, 4.2))
    axes = figure.subplots()
    ridge = peak / bandwidth
    intensities = [intensity for intensity, _ in kernels.values()]
    left, right = min(ridge, *intensities) / 2, 4 * max(ridge, *intensities)
    axes.plot([left, ridge, right], [left * bandwidth / 1e12, peak / 1e12, peak / 1e12], color=_INK)
    for place, (label, (intensity, rate)) in enumerate(kernels.items()):
        axes.plot(
            intensity,
            rate / 1e12,
            _MARKERS[place % len(_MARKERS)],
            color=_colour(label, _OTHERS[place % len(_OTHERS)]),
            markerfacecolor="none",  # kernels of equal speed lie on top of each other
            markeredgewidth=1.5,
            label=f"{label}: {rate / 1e12:.3g}",
        )
    axes.set(xscale="log", yscale="log", xlabel="operations for each byte asked of memory", ylabel="TFLOP/s")
    axes.set_xlim(left, right)
    _quiet(axes, "")
    axes.legend(fontsize=8, frameon=False, loc="upper left", bbox_to_anchor=(1, 1))
    return figure


def _nothing() -> Figure:
    figure = Figure(figsize=(3, 0.4))
    axes = figure.subplots()
    axes.text(0, 0.5, "nothing was measured", fontsize=9, color=_INK, va="center")
    axes.set_axis_off()
    return figure


def _bare(axes: Axes, title: str) -> None:
    axes.set(xticks=[], yticks=[])
    axes.set_title(title, fontsize=9, loc="left", color=_INK)
    for spine in axes.spines.values():
        spine.set_visible(False)


def _quiet(axes: Axes, title: str) -> None:
    axes.set_title(title, fontsize=10, loc="left", color=_INK)
    axes.tick_params(labelsize=8)
    axes.spines[["top", "right"]].set_visible(False)


def _plural(count: int, noun: str) -> str:
    return f"{count} {noun}" + ("s" if count != 1 else "")
