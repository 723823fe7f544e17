"""A picture of a launch: the source with its counters, the addresses of one warp, and the banks of one access."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from kernelpath.simt.counters import BANKS, AccessCounters, AccessSample, LineCounters, by_access
from kernelpath.simt.layout import LANES, Access

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from kernelpath.device.messages import Drawn

__all__ = ["draw", "worst"]

SECTOR = 32
ROW = 0.19  # inches of a line of source, and of a sector
WIDTH = 90  # characters of a line of source
COLUMNS = {"sectors\na load": 0.72, "sectors\na store": 0.81, "wavefronts": 0.9, "active lanes\n(32 is full)": 1.0}


def draw(launch: Drawn, source: str, title: str = "") -> Figure:
    """A figure of a launch; ``source`` is the text of the file that its lines refer to.

    Beside the source stand what each line's requests cost and, where it diverges, its active lanes. Below are the
    sectors that one warp touches in the global load and in the global store that waste most, and the words that the
    worst shared access asks each bank for.
    """
    from matplotlib.figure import Figure

    shown = _lines_to_show(launch.lines, source.splitlines())
    global_samples = [sample for load in (True, False) if (sample := worst(launch.accesses, False, load))]
    shared_sample = worst(launch.accesses, True)
    heights = [ROW * len(shown) + 0.6]
    if global_samples:
        heights.append(ROW * max(len(_sectors(sample)) for sample in global_samples) + 0.5)
    if shared_sample:
        heights.append(2.6)
    figure = Figure(figsize=(11, sum(heights) + 0.4), layout="constrained")
    figure.suptitle(title or launch.kernel)
    grid = figure.add_gridspec(len(heights), 2, height_ratios=heights)
    _draw_source(figure.add_subplot(grid[0, :]), launch, shown)
    for column, sample in enumerate(global_samples):
        _draw_addresses(figure.add_subplot(grid[1, column]), sample, max(map(len, map(_sectors, global_samples))))
    if shared_sample:
        _draw_banks(figure.add_subplot(grid[-1, :]), shared_sample)
    return figure


def worst(accesses: Sequence[AccessSample], shared: bool, load: bool | None = None) -> AccessSample | None:
    """The access that moves most sectors, or has most bank conflicts, beyond what its bytes need.

    ``load`` asks for loads alone, or for stores and atomics alone.
    """
    found = [access for access in accesses if access.shared == shared]
    if load is not None:
        found = [access for access in found if (access.access == Access.LOAD) == load]
    return max(found, key=_waste, default=None)


def _sectors(sample: AccessSample) -> dict[int, dict[int, int]]:
    from kernelpath.show.plots import words_by_sector

    return words_by_sector(sample.offsets, sample.bytes)


def _waste(access: AccessSample) -> tuple[float, int]:
    if access.shared:
        return access.wavefronts - access.least_wavefronts, access.requests
    return access.sectors - access.lanes * access.bytes / SECTOR, access.requests


def _lines_to_show(lines: dict[int, LineCounters], text: list[str]) -> list[tuple[int, str]]:
    """The lines from the first that did anything to the last."""
    numbers = [line for line in lines if 0 < line <= len(text)]
    if not numbers:
        return []
    return [(number, text[number - 1]) for number in range(min(numbers), max(numbers) + 1)]


def _draw_source(axes: Axes, launch: Drawn, shown: list[tuple[int, str]]) -> None:
    axes.set_axis_off()
    axes.set_xlim(0, 1)
    axes.set_ylim(len(shown) + 0.5, -1.5)
    for heading, place in COLUMNS.items():
        axes.text(place, -0.7, heading, ha="right", va="bottom", fontsize=8, color="0.4")
    accesses = by_access(launch.accesses)
    for row, (number, text) in enumerate(shown):
        text = text if len(text) <= WIDTH else text[: WIDTH - 1] + "…"
        axes.text(0, row, f"{number:4}  {text}", family="monospace", fontsize=8, va="center")
        of_line = [access for access in accesses if access.line == number]
        cells = _cells(of_line, launch.lines.get(number, LineCounters()))
        for place, (value, bad) in zip(COLUMNS.values(), cells, strict=True):
            if value:
                color = "tab:red" if bad else "0.2"
                axes.text(place, row, f"{value:.3g}", ha="right", va="center", fontsize=8, color=color)


def _cells(accesses: Sequence[AccessCounters], counters: LineCounters) -> Iterator[tuple[float, bool]]:
    """For each column the worst that stands in a line, zero for nothing, and whether less would do."""
    in_global = [access for access in accesses if not access.shared]
    for load in (True, False):
        found = [access for access in in_global if (access.access == Access.LOAD) == load]
        costs = ((one.sectors / one.requests, one.sectors > one.least_sectors) for one in found)
        yield max(costs, default=(0.0, False))
    found = [access for access in accesses if access.shared]
    costs = ((one.wavefronts / one.requests, one.wavefronts > one.least_wavefronts) for one in found)
    yield max(costs, default=(0.0, False))
    lanes = counters.lanes_per_instruction if counters.divergent_branches else 0.0
    yield lanes, round(lanes, 1) < LANES


def _draw_addresses(axes: Axes, sample: AccessSample, rows: int) -> None:
    """One warp's request: a row for each sector, with the lanes that ask for its words."""
    from kernelpath.show.plots import draw_sectors

    by_sector = _sectors(sample)
    draw_sectors(axes, by_sector)
    asked, moved = sample.bytes * len(sample.offsets), SECTOR * len(by_sector)
    axes.set_title(
        f"line {sample.line}, {sample.instruction}: a warp asks {sample.buffer} for {asked} bytes\n"
        f"and moves {len(by_sector)} sectors ({moved} bytes)",
        fontsize=9,
    )
    axes.set(xlim=(0, 8), ylim=(rows, 0), xticks=[])
    axes.set_yticks(
        [row + 0.5 for row in range(len(by_sector))], [f"{SECTOR * sector:,}" for sector in sorted(by_sector)]
    )
    axes.tick_params(length=0, labelsize=6)
    axes.set_xlabel(
        f"a row: a sector of {sample.buffer}, by its first byte; numbers: lanes; grey: moved for nothing", fontsize=8
    )
    for spine in axes.spines.values():
        spine.set_visible(False)


def _draw_banks(axes: Axes, sample: AccessSample) -> None:
    """The different words that one request wants from each bank, stacked: the tallest stack is its wavefronts."""
    stacks: dict[int, list[int]] = {bank: [] for bank in range(BANKS)}
    lanes: dict[int, list[int]] = {}
    for lane, offset in sample.offsets.items():
        for word in range(offset // 4, (offset + sample.bytes + 3) // 4):
            lanes.setdefault(word, []).append(lane)
            if word not in stacks[word % BANKS]:
                stacks[word % BANKS].append(word)
    tallest = max(map(len, stacks.values()))
    least = sample.least_wavefronts / sample.requests
    for bank, words in stacks.items():
        for level, word in enumerate(words):
            axes.bar(
                bank, 1, bottom=level, width=0.9, color="tab:blue" if level < least else "tab:red", edgecolor="white"
            )
            if tallest <= 8:
                name = str(lanes[word][0]) + ("+" if len(lanes[word]) > 1 else "")
                axes.text(bank, level + 0.5, name, ha="center", va="center", fontsize=6, color="white")
    taken = f"{sample.wavefronts / sample.requests:.3g}"
    told = f"{taken} {'wavefront' if taken == '1' else 'wavefronts'} a request, {least:.3g} would do"
    axes.set_title(f"line {sample.line}, {sample.instruction}: {told}", fontsize=9)
    axes.locator_params(axis="y", integer=True)
    axes.set_xlabel("bank of shared memory; in the bars the first lane that wants the word", fontsize=8)
    axes.set_ylabel("words", fontsize=8)
    axes.tick_params(labelsize=7)
    axes.set_xlim(-0.7, BANKS - 0.3)
