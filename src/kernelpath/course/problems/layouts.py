"""Layouts: the offset of every element of a matrix, in six ways to place it in memory, as int64."""

from __future__ import annotations

import torch

from kernelpath.course.problem import EXACT, Problem

LAYOUTS = ("row_major", "column_major", "padded", "broadcast", "tiled", "thread_values")


def inputs(rng: torch.Generator, layout: str, tile_rows: int, tile_columns: int) -> tuple[str, torch.Tensor]:
    """Return the layout's name, and a matrix of 4 * tile_rows rows and 8 * tile_columns columns."""
    return layout, torch.zeros(4 * tile_rows, 8 * tile_columns, dtype=torch.int8, device=rng.device)


def reference(layout: str, matrix: torch.Tensor) -> torch.Tensor:
    rows, columns = matrix.shape
    i = torch.arange(rows, device=matrix.device)[:, None]
    j = torch.arange(columns, device=matrix.device)[None, :]
    tile = (i // 4) * (columns // 8) + j // 8
    offsets = {
        "row_major": i * columns + j,
        "column_major": i + j * rows,
        "padded": i * (columns + 1) + j,
        "broadcast": 0 * i + j,
        "tiled": tile * 32 + (i % 4) * 8 + j % 8,
        "thread_values": (j // 4 * rows + i) * 4 + j % 4,
    }
    return offsets[layout]


PROBLEM = Problem(
    inputs=inputs,
    cases=tuple(
        {"layout": layout, "tile_rows": tile_rows, "tile_columns": tile_columns}
        for layout in LAYOUTS
        for tile_rows, tile_columns in ((3, 2), (2, 5))
    ),
    vary=("tile_rows", "tile_columns"),
    reference=reference,
    tolerance={"int64": EXACT},
    compulsory_bytes=lambda layout, tile_rows, tile_columns: 8 * 32 * tile_rows * tile_columns,
)
