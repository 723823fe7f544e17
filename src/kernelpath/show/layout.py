"""Read Triton's blocked layouts from TTGIR, and compute and draw which thread holds which element of a block."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from math import prod
from typing import Any

import numpy as np
from matplotlib import colormaps
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from numpy.typing import NDArray

from kernelpath.show.palette import INK

_WIDTH = 7.2  # inches
_ROW = 0.27  # inches
_CENTERED: Mapping[str, Any] = {"ha": "center", "va": "center_baseline", "fontsize": 6.5}
_DARK = 0.45
_MAX_LABELS = 40
"""The number of runs in a row up to which there is room for labels."""


@dataclass(frozen=True)
class Blocked:
    """A blocked layout: elements per thread, threads per warp, and warps, by dimension; order has the fastest first."""

    per_thread: tuple[int, ...]
    threads: tuple[int, ...]
    warps: tuple[int, ...]
    order: tuple[int, ...]

    @property
    def extent(self) -> tuple[int, ...]:
        """Return the shape that all threads hold at once. A larger block repeats it, a smaller one is replicated."""
        return tuple(map(prod, zip(self.per_thread, self.threads, self.warps, strict=True)))

    def lanes(self, shape: tuple[int, ...]) -> NDArray[np.int64]:
        """Return the lane that holds each element, the first if there are several."""
        return self._numbered(shape, self.per_thread, self.threads)

    def warps_of(self, shape: tuple[int, ...]) -> NDArray[np.int64]:
        """Return the warp that holds each element, the first if there are several."""
        steps = tuple(map(prod, zip(self.per_thread, self.threads, strict=True)))
        return self._numbered(shape, steps, self.warps)

    def owners(self, shape: tuple[int, ...]) -> NDArray[np.int64]:
        """Return the thread that holds each element, numbered over the program."""
        return 32 * self.warps_of(shape) + self.lanes(shape)

    def held(self, shape: tuple[int, ...]) -> int:
        """Return the registers per thread for a block, including elements that other threads hold as well."""
        repeats = [max(1, -(-size // extent)) for size, extent in zip(shape, self.extent, strict=True)]
        return prod(repeats) * prod(map(min, self.per_thread, shape))

    def _numbered(self, shape: tuple[int, ...], step: tuple[int, ...], count: tuple[int, ...]) -> NDArray[np.int64]:
        """Number each element, in `order`, by its index among `count` positions that are `step` apart."""
        number = np.zeros(shape, np.int64)
        stride = 1
        for dim in self.order:
            index = np.arange(shape[dim]) // step[dim] % count[dim]
            number += stride * index.reshape([-1 if axis == dim else 1 for axis in range(len(shape))])
            stride *= count[dim]
        return number


_BLOCKED = re.compile(
    r"#(blocked\d*) = #ttg\.blocked<\{sizePerThread = \[([\d, ]+)\], threadsPerWarp = \[([\d, ]+)\],"
    r" warpsPerCTA = \[([\d, ]+)\], order = \[([\d, ]+)\]"
)


def of(ttgir: str) -> dict[str, Blocked]:
    """Return the blocked layouts of a module by name."""
    return {
        name: Blocked(*(tuple(map(int, part.split(","))) for part in parts)) for name, *parts in _BLOCKED.findall(ttgir)
    }


def draw(layout: Blocked, shape: tuple[int, int], title: str = "") -> Figure:
    """Draw a block (rows, columns): each run of elements of a thread, with its lane, in its warp's color."""
    owners = layout.owners(shape)
    lanes = layout.lanes(shape)
    warps = layout.warps_of(shape)
    rows, columns = shape
    figure = Figure(figsize=(_WIDTH, _ROW * rows + 0.9))
    axes = figure.subplots()
    shades = colormaps["viridis"](np.linspace(0.25, 0.95, max(2, prod(layout.warps))))
    for row in range(rows):
        starts = [0, *(np.flatnonzero(np.diff(owners[row])) + 1), columns]
        for left, right in pairwise(starts):
            color = shades[warps[row, left]]
            axes.add_patch(Rectangle((left, row), right - left, 1, facecolor=color, edgecolor="white", linewidth=0.7))
            if len(starts) <= _MAX_LABELS:
                ink = "white" if color[:3].mean() < _DARK else INK
                axes.text((left + right) / 2, row + 0.5, lanes[row, left], color=ink, **_CENTERED)
    axes.set_xlim(0, columns)
    axes.set_ylim(rows, 0)
    axes.set_yticks(np.arange(rows) + 0.5, [f"row {row}" for row in range(rows)], fontsize=7)
    axes.set_xticks(np.arange(0, columns + 1, max(1, columns // 8)))
    axes.tick_params(labelsize=7, length=0)
    axes.set_xlabel("column", fontsize=8)
    for side in axes.spines.values():
        side.set_visible(False)
    warp_colors = {warp: shades[warp] for warp in np.unique(warps).tolist()}
    handles = [Rectangle((0, 0), 1, 1, facecolor=color) for color in warp_colors.values()]
    axes.legend(
        handles, [f"warp {warp}" for warp in warp_colors], fontsize=7, frameon=False, ncols=min(8, len(warp_colors)),
        loc="upper right", bbox_to_anchor=(1, -0.6 / rows - 0.02), handlelength=1,
    )  # fmt: skip
    axes.set_title(title, fontsize=9, loc="left")
    figure.tight_layout()
    return figure
