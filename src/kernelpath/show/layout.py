"""Read Triton's blocked layouts from TTGIR, and draw which thread holds which element of a block."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from math import prod
from typing import Any

import numpy as np
from matplotlib import colormaps
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from kernelpath.course.traces.ttgir import Blocked, blocked_layouts
from kernelpath.show.palette import INK

_WIDTH = 7.2  # inches
_ROW = 0.27  # inches
_CENTERED: Mapping[str, Any] = {"ha": "center", "va": "center_baseline", "fontsize": 6.5}
_DARK = 0.45

# The number of runs in a row up to which there is room for labels.
_MAX_LABELS = 40


def of(ttgir: str) -> dict[str, Blocked]:
    """Return the blocked layouts of a module by name."""
    return blocked_layouts(ttgir)


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
