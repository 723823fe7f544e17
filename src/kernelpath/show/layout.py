"""Which thread holds which element of a block: Triton's blocked layouts, read from TTGIR, computed and drawn."""

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

_WIDTH, _ROW = 7.2, 0.27  # inches
_CENTERED: Mapping[str, Any] = {"ha": "center", "va": "center_baseline", "fontsize": 6.5}
_DARK = 0.45
_MOST_LABELS = 40
"""Runs of a row that have room for a number."""


@dataclass(frozen=True)
class Blocked:
    """Elements of a thread side by side, threads of a warp, warps of a program, by dimension; order: fastest first."""

    per_thread: tuple[int, ...]
    threads: tuple[int, ...]
    warps: tuple[int, ...]
    order: tuple[int, ...]

    @property
    def extent(self) -> tuple[int, ...]:
        """Of what all threads hold at a time; a larger block repeats it, a smaller one is held several times."""
        return tuple(map(prod, zip(self.per_thread, self.threads, self.warps, strict=True)))

    def lanes(self, shape: tuple[int, ...]) -> NDArray[np.int64]:
        """The lane that holds each element; of several, the first."""
        return self._numbered(shape, self.per_thread, self.threads)

    def warps_of(self, shape: tuple[int, ...]) -> NDArray[np.int64]:
        """The warp that holds each element; of several, the first."""
        steps = tuple(map(prod, zip(self.per_thread, self.threads, strict=True)))
        return self._numbered(shape, steps, self.warps)

    def owners(self, shape: tuple[int, ...]) -> NDArray[np.int64]:
        """The thread that holds each element, counted over the program."""
        return 32 * self.warps_of(shape) + self.lanes(shape)

    def held(self, shape: tuple[int, ...]) -> int:
        """Registers that a thread needs for a block: its elements, some of which other threads may hold as well."""
        repeats = [max(1, -(-size // extent)) for size, extent in zip(shape, self.extent, strict=True)]
        return prod(repeats) * prod(map(min, self.per_thread, shape))

    def _numbered(self, shape: tuple[int, ...], step: tuple[int, ...], count: tuple[int, ...]) -> NDArray[np.int64]:
        """For each element the number, in `order`, of its place among `count` that are `step` elements apart."""
        number, times = np.zeros(shape, np.int64), 1
        for dim in self.order:
            along = np.arange(shape[dim]) // step[dim] % count[dim]
            number += times * along.reshape([-1 if other == dim else 1 for other in range(len(shape))])
            times *= count[dim]
        return number


_BLOCKED = re.compile(
    r"#(blocked\d*) = #ttg\.blocked<\{sizePerThread = \[([\d, ]+)\], threadsPerWarp = \[([\d, ]+)\],"
    r" warpsPerCTA = \[([\d, ]+)\], order = \[([\d, ]+)\]"
)


def of(ttgir: str) -> dict[str, Blocked]:
    """The blocked layouts of a module, by name."""
    return {
        name: Blocked(*(tuple(map(int, part.split(","))) for part in parts)) for name, *parts in _BLOCKED.findall(ttgir)
    }


def draw(layout: Blocked, shape: tuple[int, int], title: str = "") -> Figure:
    """A block (rows, columns): each run of elements that a thread holds, with its lane, in its warp's color."""
    owners, lanes, warps = layout.owners(shape), layout.lanes(shape), layout.warps_of(shape)
    rows, columns = shape
    figure = Figure(figsize=(_WIDTH, _ROW * rows + 0.9))
    axes = figure.subplots()
    shades = colormaps["viridis"](np.linspace(0.25, 0.95, max(2, prod(layout.warps))))
    for row in range(rows):
        starts = [0, *(np.flatnonzero(np.diff(owners[row])) + 1), columns]
        for left, right in pairwise(starts):
            color = shades[warps[row, left]]
            axes.add_patch(Rectangle((left, row), right - left, 1, facecolor=color, edgecolor="white", linewidth=0.7))
            if len(starts) <= _MOST_LABELS:
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
    named = {warp: shades[warp] for warp in np.unique(warps).tolist()}
    handles = [Rectangle((0, 0), 1, 1, facecolor=color) for color in named.values()]
    axes.legend(
        handles, [f"warp {warp}" for warp in named], fontsize=7, frameon=False, ncols=min(8, len(named)),
        loc="upper right", bbox_to_anchor=(1, -0.6 / rows - 0.02), handlelength=1,
    )  # fmt: skip
    axes.set_title(title, fontsize=9, loc="left")
    figure.tight_layout()
    return figure
