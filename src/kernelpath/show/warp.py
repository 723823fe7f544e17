"""Draw requests of a warp, alone or below the source of their launch: the sectors that a request touches, and the banks
of shared memory that serve it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from kernelpath import words
from kernelpath.line_counters import SECTOR_BYTES
from kernelpath.show import source as annotated
from kernelpath.show.palette import INK, UNUSED, WASTED
from warpcheck.layout import Access

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from warpcheck.counters import AccessSample, Counted


WARP = 32
BANKS = 32
WORD_BYTES = 4

_WIDTH = 5.6  # inches of a figure; at 390 pixels a point is then about a pixel

# The height of a row, which is a sector or a wavefront.
SECTOR_INCHES = 0.2

# The minimum height of a picture of banks, in wavefronts.
MIN_WAVEFRONTS = 1.2

_PANELS_PER_ROW = 2
_PANEL_TITLE_INCHES = 0.7
_MAX_PANEL_INCHES = 4.2  # the maximum height of a panel of sectors

_LANE_COLORS = colormaps["viridis"]

# Maps sector -> word inside the sector -> first lane that requests the word.
Sectors = Mapping[int, Mapping[int, int]]

# Maps bank -> distinct word requested of the bank -> requesting lanes. Lanes with equal words share a broadcast.
Queues = Mapping[int, Mapping[int, Sequence[int]]]


def sectors(accesses: Mapping[str, Sequence[int]], width: int = WORD_BYTES) -> Figure:
    """Draw the 32-byte sectors that one warp-level access touches, a panel for each labeled access.

    Each row is a sector of 8 words. Colored words were requested (the number is the lane), gray words are moved and not
    used.

    Args:
        accesses: The byte address of each lane, by label.
        width: The bytes that a lane requests.
    """
    touched = {label: touched_sectors(dict(enumerate(addresses)), width) for label, addresses in accesses.items()}
    panels_per_row = min(len(touched), _PANELS_PER_ROW)
    rows = list(map(len, touched.values()))
    heights = [max(rows[first : first + panels_per_row]) for first in range(0, len(rows), panels_per_row)]
    row_inches = [_PANEL_TITLE_INCHES + height * min(SECTOR_INCHES, _MAX_PANEL_INCHES / height) for height in heights]
    figure = Figure(figsize=(2.6 * panels_per_row, sum(row_inches)))
    panels = figure.subplots(len(heights), panels_per_row, squeeze=False, height_ratios=row_inches).ravel()
    for axes in panels[len(touched) :]:
        axes.set_axis_off()
    for index, (axes, (label, panel_sectors)) in enumerate(zip(panels, touched.items(), strict=False)):
        draw_sectors(axes, panel_sectors, heights[index // panels_per_row])
        axes.set_yticks([])
        axes.set_title(f"{label}\n{words.count(len(panel_sectors), 'sector')}", fontsize=9, loc="left", color=INK)
    figure.tight_layout()
    return figure


def touched_sectors(addresses: Mapping[int, int], width: int) -> Sectors:
    """Return the sectors that lanes touch, given the byte address of each lane and the width of an access."""
    touched: dict[int, dict[int, int]] = {}
    for lane, address in addresses.items():
        for byte in range(address, address + width, WORD_BYTES):
            sector, inside = divmod(byte, SECTOR_BYTES)
            touched.setdefault(sector, {}).setdefault(inside // WORD_BYTES, lane)
    return touched


def draw_sectors(axes: Axes, touched: Sectors, rows: int) -> None:
    """Draw a row for each sector from the top down, labeled by its first byte.

    Args:
        rows: The number of rows for which there is room.
    """
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
    """Draw the shared-memory banks that one warp-level access uses, a panel for each labeled access.

    Args:
        accesses: The shared-memory byte address of each lane's 4-byte word, by label.
    """
    queues_by_label = {label: queues(dict(enumerate(addresses)), WORD_BYTES) for label, addresses in accesses.items()}
    wavefront_counts = [wavefronts(addresses) for addresses in accesses.values()]
    rows = [max(MIN_WAVEFRONTS, height) for height in wavefront_counts]
    figure = Figure(figsize=(_WIDTH, 0.14 * sum(rows) + 0.75 * len(rows)))
    panels = np.atleast_1d(figure.subplots(len(queues_by_label), 1, height_ratios=rows))
    for axes, (label, queue), height in zip(panels, queues_by_label.items(), wavefront_counts, strict=True):
        draw_banks(axes, queue)
        axes.set_title(f"{label}: {words.count(height, 'wavefront')}", fontsize=9, loc="left", color=INK)
    panels[-1].set_xlabel(
        "bank" + (" (dashed: one wavefront, the minimum)" if max(wavefront_counts) > 1 else ""), fontsize=8
    )
    figure.tight_layout()
    return figure


def queues(addresses: Mapping[int, int], width: int) -> Queues:
    """Return the words that wait for each bank, given each lane's byte address in shared memory and access width."""
    words_by_bank: dict[int, dict[int, list[int]]] = {}
    for lane, address in addresses.items():
        for word in range(address // WORD_BYTES, -(-(address + width) // WORD_BYTES)):
            words_by_bank.setdefault(word % BANKS, {}).setdefault(word, []).append(lane)
    return words_by_bank


def wavefronts(addresses: Sequence[int]) -> int:
    """Return the number of wavefronts of one access of 4-byte words by a warp."""
    return max(map(len, queues(dict(enumerate(addresses)), WORD_BYTES).values()))


def draw_banks(axes: Axes, queues_by_bank: Queues, minimum: float = 1) -> None:
    """Draw a column for each bank with the words that wait for it. The tallest column gives the wavefronts.

    A word shows the first lane that requests it, with a + if there are more.

    Args:
        minimum: The number of wavefronts without conflicts. A dashed line marks it where more are needed.
    """
    tallest = max(map(len, queues_by_bank.values()))
    for bank, waiting in queues_by_bank.items():
        for wavefront, lanes in enumerate(waiting.values()):
            _draw_word(axes, bank, wavefront, lanes[0], "+" if lanes[1:] else "")
    if tallest > minimum:
        axes.axhline(minimum, color=WASTED, linestyle="--", linewidth=1)
    axes.set(xlim=(0, BANKS), ylim=(0, max(MIN_WAVEFRONTS, tallest)), xticks=np.arange(0, BANKS, 4) + 0.5, yticks=[])
    axes.set_xticklabels(map(str, range(0, BANKS, 4)), fontsize=7)
    axes.spines[["top", "right", "left"]].set_visible(False)


def _draw_word(axes: Axes, x: int, y: int, lane: int | None, suffix: str = "") -> None:
    color = UNUSED if lane is None else _LANE_COLORS(lane / (WARP - 1))
    axes.add_patch(Rectangle((x + 0.05, y + 0.08), 0.9, 0.84, color=color, linewidth=0))
    if lane is not None:
        ink = "white" if lane < WARP * 0.6 else "black"
        axes.text(x + 0.5, y + 0.5, f"{lane}{suffix}", ha="center", va="center", fontsize=6, color=ink)


_LINE_INCHES = 0.19
_WAVEFRONT_INCHES = 0.15


def draw_launch(launch: Counted, source: str, title: str = "") -> Figure:
    """Draw a launch; `source` is the text of the file that its lines refer to.

    Each line of the source has the cost of its requests and, where it diverges, its active lanes. Below are the sectors
    that one warp touches in the most wasteful global load and global store, and the words that the worst shared access
    requests of each bank.
    """
    lines = annotated.trim_to_executed(annotated.of_launch(launch, source))
    global_samples = [sample for load in (True, False) if (sample := worst_access(launch.accesses, False, load))]
    shared_sample = worst_access(launch.accesses, True)
    touched = [touched_sectors(sample.offsets, sample.bytes) for sample in global_samples]
    heights = [_LINE_INCHES * len(lines) + 0.8]
    if global_samples:
        heights.append(SECTOR_INCHES * max(map(len, touched)) + 0.7)
    if shared_sample:
        heights.append(
            _WAVEFRONT_INCHES * max(MIN_WAVEFRONTS, round(shared_sample.wavefronts / shared_sample.requests)) + 0.7
        )
    figure = Figure(figsize=(11, sum(heights) + 0.4), layout="constrained")
    figure.suptitle(title or launch.kernel)
    grid = figure.add_gridspec(len(heights), 2, height_ratios=heights)
    annotated.draw(figure.add_subplot(grid[0, :]), lines)
    for column, (sample, sample_sectors) in enumerate(zip(global_samples, touched, strict=True)):
        _draw_addresses(figure.add_subplot(grid[1, column]), sample, sample_sectors, max(map(len, touched)))
    if shared_sample:
        _draw_banks(figure.add_subplot(grid[-1, :]), shared_sample)
    return figure


def worst_access(accesses: Sequence[AccessSample], shared: bool, load: bool | None = None) -> AccessSample | None:
    """Return the access with the most sectors, or the most bank conflicts, beyond what its bytes need.

    Args:
        load: True for loads only, False for stores and atomics only, None for all.
    """
    candidates = [access for access in accesses if access.shared == shared]
    if load is not None:
        candidates = [access for access in candidates if (access.access == Access.LOAD) == load]
    return max(candidates, key=_wasted, default=None)


def _wasted(access: AccessSample) -> tuple[float, int]:
    # The number of requests decides between accesses that waste equally much, such as nothing.
    if access.shared:
        return access.wavefronts - access.least_wavefronts, access.requests
    return access.sectors - access.lanes * access.bytes / SECTOR_BYTES, access.requests


def _draw_addresses(axes: Axes, sample: AccessSample, touched: Sectors, rows: int) -> None:
    """Draw one warp's request: a row for each sector, with the lanes that request its words."""
    draw_sectors(axes, touched, rows)
    requested_bytes = sample.bytes * len(sample.offsets)
    moved_bytes = SECTOR_BYTES * len(touched)
    place = f"{words.line(sample.line)}, {sample.instruction}"
    request = f"{place}: a warp asks {sample.buffer} for {words.count(requested_bytes, 'byte')}"
    costs = f"and moves {words.count(len(touched), 'sector')} ({words.count(moved_bytes, 'byte')})"
    axes.set_title(f"{request}\n{costs}", fontsize=9, color=INK)
    axes.set_xlabel(
        f"a row: a sector of {sample.buffer}, by its first byte; numbers: lanes; gray: moved but not used", fontsize=8
    )


def _draw_banks(axes: Axes, sample: AccessSample) -> None:
    """Draw the distinct words that one request needs from each bank."""
    actual = sample.wavefronts / sample.requests
    minimum = sample.least_wavefronts / sample.requests
    draw_banks(axes, queues(sample.offsets, sample.bytes), minimum)
    title = f"{words.line(sample.line)}, {sample.instruction}: {words.per_request(actual, 'wavefront', minimum)}"
    axes.set_title(title, fontsize=9, color=INK)
    note = "; the dashed line is the minimum" if actual > minimum else ""
    axes.set_xlabel(f"bank of shared memory; numbers: the first lane asking for the word{note}", fontsize=8)
