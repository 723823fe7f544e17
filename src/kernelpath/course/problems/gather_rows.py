"""Rows gathered from a table: out[r, :] = table[index[r], :] for a contiguous float32 table and int64 indices."""

from __future__ import annotations

import torch

from kernelpath.course import draw
from kernelpath.course.problem import EXACT, Problem


def inputs(rng: torch.Generator, table: int, rows: int, columns: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return a table of `table` rows, and `rows` distinct indices in random order, so that no cache helps."""
    index = torch.randperm(table, generator=rng, device=rng.device)[:rows].contiguous()
    return draw.normal(rng, table, columns), index


def extreme(rng: torch.Generator, table: torch.Tensor, index: torch.Tensor) -> None:
    """Set any bits in the table; repeat the first, the last and some other rows."""
    draw.any_bits_(rng, table)
    index %= 1 + len(table) // 4
    index[::2] = len(table) - 1
    index[::3] = 0


def first_of_each(table: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    """Leave out rows whose index has occurred before."""
    has_occurred = (index[:, None] == index).tril(-1).any(1, keepdim=True)
    return torch.where(has_occurred, 0.0, table[index])


def reference(table: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    return table[index]


PROBLEM = Problem(
    inputs=inputs,
    cases=(
        {"table": 1, "rows": 1, "columns": 1},
        {"table": 5, "rows": 3, "columns": 31},
        {"table": 5, "rows": 5, "columns": 32},
        {"table": 40, "rows": 37, "columns": 33},
        {"table": 300, "rows": 257, "columns": 8},
        {"table": 70, "rows": 61, "columns": 1009},
        {"table": 300, "rows": 256, "columns": 512},
    ),
    vary=("rows", "columns"),
    far=({"table": (1 << 19) + 3, "rows": (1 << 19) + 3, "columns": 1 << 13},),
    reference=reference,
    tolerance={"float32": EXACT},  # nothing is computed
    extreme=extreme,
    faults={"an index is served once": first_of_each},
    limits=({"table": 65_537, "rows": 65_537, "columns": 1}, {"table": 2, "rows": 1, "columns": 200_003}),
    compulsory_bytes=lambda table, rows, columns: 8 * rows * columns + 8 * rows,
)
