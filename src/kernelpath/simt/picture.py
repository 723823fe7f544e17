"""A picture of a launch: the source with its counters, the addresses of one warp, and the banks of one access."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from kernelpath.simt.counters import BANKS, AccessSample, LineCounters
from kernelpath.simt.layout import LANES

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from kernelpath.simt.machine import Launch

__all__ = ["draw", "worst"]

SECTOR = 32


def draw(launch: Launch, source: str, title: str = "") -> Figure:
    """A figure of a launch; ``source`` is the text of the file that its lines refer to.

    Beside the source stand, for each line that touches memory, sectors and bank conflicts a request. Below are one
    warp's addresses in the global access that wastes most, and the words that the worst shared access asks each bank
    for.
    """
    from matplotlib.figure import Figure

    shown = _lines_to_show(launch.lines, source.splitlines())
    samples = [sample for sample in (worst(launch.accesses, False), worst(launch.accesses, True)) if sample]
    height = 0.19 * len(shown) + 2.6 * len(samples) + 1
    figure = Figure(figsize=(11, height), layout="constrained")
    parts = figure.subplots(1 + len(samples), 1, height_ratios=[0.19 * len(shown) + 0.6, *[2.6] * len(samples)])
    panels: Sequence[Axes] = [parts] if not samples else list(parts)
    figure.suptitle(title or launch.kernel)
    _draw_source(panels[0], launch.lines, shown)
    for panel, sample in zip(panels[1:], samples, strict=True):
        (_draw_addresses if sample.buffer else _draw_banks)(panel, sample)
    return figure


def worst(accesses: Sequence[AccessSample], shared: bool) -> AccessSample | None:
    """The access that moves most sectors, or has most bank conflicts, beyond what its bytes need."""
    found = [access for access in accesses if (not access.buffer) == shared]
    return max(found, key=_waste, default=None)


def _waste(access: AccessSample) -> tuple[float, int]:
    if not access.buffer:
        return access.wavefronts - access.least_wavefronts, access.requests
    return access.sectors - access.lanes * access.bytes / SECTOR, access.requests


def _lines_to_show(lines: dict[int, LineCounters], text: list[str]) -> list[tuple[int, str]]:
    """The lines from the first that did anything to the last."""
    numbers = [line for line in lines if 0 < line <= len(text)]
    if not numbers:
        return []
    return [(number, text[number - 1]) for number in range(min(numbers), max(numbers) + 1)]


def _draw_source(axes: Axes, lines: dict[int, LineCounters], shown: list[tuple[int, str]]) -> None:
    axes.set_axis_off()
    axes.set_xlim(0, 1)
    axes.set_ylim(len(shown) + 0.5, -1.5)
    for place, heading in ((0.78, "sectors/request"), (0.9, "conflicts/request"), (1.0, "lanes")):
        axes.text(place, -1, heading, ha="right", va="center", fontsize=8, color="0.4")
    for row, (number, text) in enumerate(shown):
        counters = lines.get(number, LineCounters())
        axes.text(0, row, f"{number:4}  {text[:95]}", family="monospace", fontsize=8, va="center")
        requests = counters.global_load_requests + counters.global_store_requests
        shared = counters.shared_load_requests + counters.shared_store_requests
        moved = SECTOR * (counters.global_load_sectors + counters.global_store_sectors)
        wasteful = moved > counters.global_load_bytes + counters.global_store_bytes
        cells = (
            (0.78, requests, counters.sectors_per_request, wasteful),
            (0.9, shared, counters.bank_conflicts_per_request, counters.bank_conflicts > 0),
            (1.0, counters.divergent_branches, counters.lanes_per_instruction, True),
        )
        for place, present, value, bad in cells:
            if present:
                color = "tab:red" if bad else "0.2"
                axes.text(place, row, f"{value:.1f}", ha="right", va="center", fontsize=8, color=color)


def _draw_addresses(axes: Axes, sample: AccessSample) -> None:
    """Each lane's bytes, and the sectors that they lie in."""
    first = min(sample.offsets.values()) // SECTOR * SECTOR
    sectors = sorted({(offset - first) // SECTOR for offset in sample.offsets.values()})
    for sector in sectors:
        axes.axvspan(sector * SECTOR, (sector + 1) * SECTOR, color="tab:orange", alpha=0.25, linewidth=0)
    places = [offset - first for offset in sample.offsets.values()]
    axes.barh(list(sample.offsets), [sample.bytes] * len(places), left=places, color="tab:blue", height=0.9)
    asked, moved = sample.bytes * len(places), SECTOR * len(sectors)
    axes.set_title(
        f"line {sample.line}, {sample.instruction}: one warp asks {sample.buffer} for {asked} bytes in "
        f"{len(sectors)} sectors ({moved} bytes)",
        fontsize=9,
    )
    axes.set_xlabel(f"byte in {sample.buffer}, from {first} on; orange: the sectors that move", fontsize=8)
    axes.set_ylabel("lane", fontsize=8)
    axes.set_ylim(LANES - 0.5, -0.5)


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
    axes.set_title(
        f"line {sample.line}, {sample.instruction}: {sample.wavefronts / sample.requests:.1f} wavefronts a request, "
        f"{least:.1f} would do",
        fontsize=9,
    )
    axes.set_xlabel("bank of shared memory; in the bars the first lane that wants the word", fontsize=8)
    axes.set_ylabel("words", fontsize=8)
    axes.set_xlim(-0.7, BANKS - 0.3)
