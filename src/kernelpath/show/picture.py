"""Draw a launch: the source with its counters, the addresses of one warp, and the banks of one access."""

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

__all__ = ["draw", "worst_access"]

_LINE_INCHES = 0.19
_WAVEFRONT_INCHES = 0.15


def draw(launch: Counted, source: str, title: str = "") -> Figure:
    """Draw a launch; `source` is the text of the file that its lines refer to.

    Each line of the source has the cost of its requests and, where it diverges, its active lanes. Below are the sectors
    that one warp touches in the most wasteful global load and global store, and the words that the worst shared access
    requests of each bank.
    """
    lines = annotated.trim_to_executed(annotated.of_launch(launch, source))
    global_samples = [sample for load in (True, False) if (sample := worst_access(launch.accesses, False, load))]
    shared_sample = worst_access(launch.accesses, True)
    touched = [warp.touched_sectors(sample.offsets, sample.bytes) for sample in global_samples]
    heights = [_LINE_INCHES * len(lines) + 0.8]
    if global_samples:
        heights.append(warp.SECTOR_INCHES * max(map(len, touched)) + 0.7)
    if shared_sample:
        heights.append(
            _WAVEFRONT_INCHES * max(warp.MIN_WAVEFRONTS, round(shared_sample.wavefronts / shared_sample.requests)) + 0.7
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


def _draw_addresses(axes: Axes, sample: AccessSample, touched: warp.Sectors, rows: int) -> None:
    """Draw one warp's request: a row for each sector, with the lanes that request its words."""
    warp.draw_sectors(axes, touched, rows)
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
    warp.draw_banks(axes, warp.queues(sample.offsets, sample.bytes), minimum)
    title = f"{words.line(sample.line)}, {sample.instruction}: {words.per_request(actual, 'wavefront', minimum)}"
    axes.set_title(title, fontsize=9, color=INK)
    note = "; the dashed line is the minimum" if actual > minimum else ""
    axes.set_xlabel(f"bank of shared memory; numbers: the first lane asking for the word{note}", fontsize=8)
