"""A picture of a launch: the source with its counters, the addresses of one warp, and the banks of one access."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from matplotlib.figure import Figure

from kernelpath import words
from kernelpath.line_counters import SECTOR_BYTES
from kernelpath.show import source as annotated
from kernelpath.show import warp
from kernelpath.show.palette import INK
from warpcheck.layout import Access

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from warpcheck.counters import AccessSample, Counted

__all__ = ["draw", "worst"]

_LINE_INCHES = 0.19
_WAVEFRONT_INCHES = 0.15


def draw(launch: Counted, source: str, title: str = "") -> Figure:
    """A figure of a launch; `source` is the text of the file that its lines refer to.

    Beside the source stand what each line's requests cost and, where it diverges, its active lanes. Below are the
    sectors that one warp touches in the global load and in the global store that waste most, and the words that the
    worst shared access asks each bank for.
    """
    lines = annotated.executed(annotated.of_launch(launch, source))
    in_global = [sample for load in (True, False) if (sample := worst(launch.accesses, False, load))]
    in_shared = worst(launch.accesses, True)
    touched = [warp.touched_sectors(sample.offsets, sample.bytes) for sample in in_global]
    heights = [_LINE_INCHES * len(lines) + 0.8]
    if in_global:
        heights.append(warp.SECTOR_INCHES * max(map(len, touched)) + 0.7)
    if in_shared:
        heights.append(
            _WAVEFRONT_INCHES * max(warp.FEWEST_TURNS, round(in_shared.wavefronts / in_shared.requests)) + 0.7
        )
    figure = Figure(figsize=(11, sum(heights) + 0.4), layout="constrained")
    figure.suptitle(title or launch.kernel)
    grid = figure.add_gridspec(len(heights), 2, height_ratios=heights)
    annotated.draw(figure.add_subplot(grid[0, :]), lines)
    for column, (sample, found) in enumerate(zip(in_global, touched, strict=True)):
        _draw_addresses(figure.add_subplot(grid[1, column]), sample, found, max(map(len, touched)))
    if in_shared:
        _draw_banks(figure.add_subplot(grid[-1, :]), in_shared)
    return figure


def worst(accesses: Sequence[AccessSample], shared: bool, load: bool | None = None) -> AccessSample | None:
    """The access that moves most sectors, or has most bank conflicts, beyond what its bytes need.

    load: True asks for loads alone, False for stores and atomics alone.
    """
    found = [access for access in accesses if access.shared == shared]
    if load is not None:
        found = [access for access in found if (access.access == Access.LOAD) == load]
    return max(found, key=_waste, default=None)


def _waste(access: AccessSample) -> tuple[float, int]:
    if access.shared:
        return access.wavefronts - access.least_wavefronts, access.requests
    return access.sectors - access.lanes * access.bytes / SECTOR_BYTES, access.requests


def _draw_addresses(axes: Axes, sample: AccessSample, touched: warp.Sectors, rows: int) -> None:
    """One warp's request: a row for each sector, with the lanes that ask for its words."""
    warp.draw_sectors(axes, touched, rows)
    asked, moved = sample.bytes * len(sample.offsets), SECTOR_BYTES * len(touched)
    where = f"{words.line(sample.line)}, {sample.instruction}"
    told = f"{where}: a warp asks {sample.buffer} for {words.count(asked, 'byte')}"
    costs = f"and moves {words.count(len(touched), 'sector')} ({words.count(moved, 'byte')})"
    axes.set_title(f"{told}\n{costs}", fontsize=9, color=INK)
    axes.set_xlabel(
        f"a row: a sector of {sample.buffer}, by its first byte; numbers: lanes; gray: moved but not used", fontsize=8
    )


def _draw_banks(axes: Axes, sample: AccessSample) -> None:
    """The different words that one request wants from each bank."""
    found, least = (count / sample.requests for count in (sample.wavefronts, sample.least_wavefronts))
    warp.draw_banks(axes, warp.queues(sample.offsets, sample.bytes), least)
    told = f"{words.line(sample.line)}, {sample.instruction}: {words.per_request(found, 'wavefront', least)}"
    axes.set_title(told, fontsize=9, color=INK)
    below = "; the dashed line is the minimum" if found > least else ""
    axes.set_xlabel(f"bank of shared memory; numbers: the first lane asking for the word{below}", fontsize=8)
