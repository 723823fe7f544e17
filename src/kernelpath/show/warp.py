"""Pictures of one request of a warp: the sectors that it touches, and the banks of shared memory that it waits for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from kernelpath import words
from kernelpath.line_counters import SECTOR_BYTES
from kernelpath.show.palette import INK, UNUSED, WASTED

WARP = 32
BANKS = 32
WORD_BYTES = 4

_WIDTH = 5.6  # inches of a figure; at 390 pixels a point is then about a pixel

SECTOR_INCHES = 0.2
"""Height of a row of a picture: a sector, or a wavefront."""

FEWEST_TURNS = 1.2
"""The height of a picture of banks is at least so many wavefronts."""

_PANELS_ACROSS = 2
_PANEL_TITLE_INCHES = 0.7
_TALLEST_INCHES = 4.2  # of a panel of sectors

_LANES = colormaps["viridis"]

Sectors = Mapping[int, Mapping[int, int]]
"""sector -> word inside it -> the first lane that asks for it"""

Queues = Mapping[int, Mapping[int, Sequence[int]]]
"""bank -> the different words asked of it -> the lanes that ask. Equal words are broadcast at once."""


def sectors(accesses: Mapping[str, Sequence[int]], width: int = WORD_BYTES) -> Figure:
    """The 32-byte sectors that one warp-level access touches, a panel for each labeled access, two beside each other.

    accesses: label -> byte address of each lane. width: bytes that a lane asks for. Each row is a sector of 8 words;
    colored words were asked for (the number is the lane), gray words are moved and not used.
    """
    touched = {label: touched_sectors(dict(enumerate(addresses)), width) for label, addresses in accesses.items()}
    across = min(len(touched), _PANELS_ACROSS)
    rows = list(map(len, touched.values()))
    heights = [max(rows[first : first + across]) for first in range(0, len(rows), across)]
    tall = [_PANEL_TITLE_INCHES + height * min(SECTOR_INCHES, _TALLEST_INCHES / height) for height in heights]
    figure = Figure(figsize=(2.6 * across, sum(tall)))
    panels = figure.subplots(len(heights), across, squeeze=False, height_ratios=tall).ravel()
    for axes in panels[len(touched) :]:
        axes.set_axis_off()
    for place, (axes, (label, found)) in enumerate(zip(panels, touched.items(), strict=False)):
        draw_sectors(axes, found, heights[place // across])
        axes.set_yticks([])
        axes.set_title(f"{label}\n{words.count(len(found), 'sector')}", fontsize=9, loc="left", color=INK)
    figure.tight_layout()
    return figure


def touched_sectors(addresses: Mapping[int, int], width: int) -> Sectors:
    """addresses: in bytes, by lane. width: bytes that a lane asks for."""
    found: dict[int, dict[int, int]] = {}
    for lane, address in addresses.items():
        for byte in range(address, address + width, WORD_BYTES):
            sector, inside = divmod(byte, SECTOR_BYTES)
            found.setdefault(sector, {}).setdefault(inside // WORD_BYTES, lane)
    return found


def draw_sectors(axes: Axes, touched: Sectors, rows: int) -> None:
    """A row for each sector, from the top down, named by its first byte. rows: for how many there is room."""
    for row, sector in enumerate(sorted(touched)):
        for word in range(SECTOR_BYTES // WORD_BYTES):
            _draw_word(axes, word, row, touched[sector].get(word))
    axes.set(xlim=(0, SECTOR_BYTES // WORD_BYTES), ylim=(max(rows, 1), 0), xticks=[])
    middles = [row + 0.5 for row in range(len(touched))]
    axes.set_yticks(middles, [words.number(SECTOR_BYTES * sector) for sector in sorted(touched)])
    axes.tick_params(length=0, labelsize=6)
    for spine in axes.spines.values():
        spine.set_visible(False)


def banks(accesses: Mapping[str, Sequence[int]]) -> Figure:
    """The shared-memory banks that one warp-level access meets, a panel for each labeled access.

    accesses: label -> byte address in shared memory of each lane's 4-byte word.
    """
    found = {label: queues(dict(enumerate(addresses)), WORD_BYTES) for label, addresses in accesses.items()}
    turns = [wavefronts(addresses) for addresses in accesses.values()]
    rows = [max(FEWEST_TURNS, height) for height in turns]
    figure = Figure(figsize=(_WIDTH, 0.14 * sum(rows) + 0.75 * len(rows)))
    panels = np.atleast_1d(figure.subplots(len(found), 1, height_ratios=rows))
    for axes, (label, queue), height in zip(panels, found.items(), turns, strict=True):
        draw_banks(axes, queue)
        axes.set_title(f"{label}: {words.count(height, 'wavefront')}", fontsize=9, loc="left", color=INK)
    panels[-1].set_xlabel("bank" + (" (dashed: one wavefront, the minimum)" if max(turns) > 1 else ""), fontsize=8)
    figure.tight_layout()
    return figure


def queues(addresses: Mapping[int, int], width: int) -> Queues:
    """addresses: in bytes of shared memory, by lane. width: bytes that a lane asks for."""
    found: dict[int, dict[int, list[int]]] = {}
    for lane, address in addresses.items():
        for word in range(address // WORD_BYTES, -(-(address + width) // WORD_BYTES)):
            found.setdefault(word % BANKS, {}).setdefault(word, []).append(lane)
    return found


def wavefronts(addresses: Sequence[int]) -> int:
    """How many wavefronts shared memory needs for one access of 4-byte words by one warp."""
    return max(map(len, queues(dict(enumerate(addresses)), WORD_BYTES).values()))


def draw_banks(axes: Axes, found: Queues, least: float = 1) -> None:
    """A column for each bank: the words that wait for it are stacked, and the tallest stack counts the wavefronts.

    In a word stands the first lane that asks for it, with a + where there are others. least: the wavefronts that would
    do; a line stands there where more are needed.
    """
    tallest = max(map(len, found.values()))
    for bank, waiting in found.items():
        for turn, lanes in enumerate(waiting.values()):
            _draw_word(axes, bank, turn, lanes[0], "+" if lanes[1:] else "")
    if tallest > least:
        axes.axhline(least, color=WASTED, linestyle="--", linewidth=1)
    axes.set(xlim=(0, BANKS), ylim=(0, max(FEWEST_TURNS, tallest)), xticks=np.arange(0, BANKS, 4) + 0.5, yticks=[])
    axes.set_xticklabels(map(str, range(0, BANKS, 4)), fontsize=7)
    axes.spines[["top", "right", "left"]].set_visible(False)


def _draw_word(axes: Axes, x: int, y: int, lane: int | None, more: str = "") -> None:
    color = UNUSED if lane is None else _LANES(lane / (WARP - 1))
    axes.add_patch(Rectangle((x + 0.05, y + 0.08), 0.9, 0.84, color=color, linewidth=0))
    if lane is not None:
        ink = "white" if lane < WARP * 0.6 else "black"
        axes.text(x + 0.5, y + 0.5, f"{lane}{more}", ha="center", va="center", fontsize=6, color=ink)
