"""Matrix copy: a contiguous matrix with the elements of x, which may be some columns of a wider matrix.

What the TMA unit can describe: the address of x, its rows and the distance between them are multiples of 16 bytes.
"""

from __future__ import annotations

import torch

from kernelpath.course import draw
from kernelpath.course.problem import BEYOND_A_BLOCK, BYTES, EXACT, Problem

# Bytes.
ALIGNMENT = 16


def inputs(rng: torch.Generator, rows: int, columns: int, beside: int, dtype: str) -> tuple[torch.Tensor]:
    """Return x as part of a matrix with `beside` more columns, half of them on either side as alignment allows."""
    vector = ALIGNMENT // BYTES[dtype]
    first = beside // 2 // vector * vector
    return (draw.normal(rng, rows, columns + beside, dtype=dtype)[:, first : first + columns],)


def reference(x: torch.Tensor) -> torch.Tensor:
    return x.clone(memory_format=torch.contiguous_format)


PROBLEM = Problem(
    inputs=inputs,
    # Boxes are 8 to 128 rows high and 128 to 1024 bytes wide. The last but one has more of them than a ring has stages.
    cases=(
        {"rows": 1, "columns": 4, "beside": 0, "dtype": "float32"},
        {"rows": 33, "columns": 132, "beside": 12, "dtype": "float32"},
        {"rows": 65, "columns": 1000, "beside": 24, "dtype": "bfloat16"},
        {"rows": 71, "columns": 2100, "beside": 0, "dtype": "float32"},
        {"rows": 160, "columns": 2176, "beside": 0, "dtype": "float32"},
    ),
    vary=("rows",),
    limits=(
        {"rows": 65_537, "columns": 4, "beside": 0, "dtype": "float32"},
        {"rows": 1, "columns": 65_540, "beside": 0, "dtype": "float32"},
    ),
    must_reach={"columns": BEYOND_A_BLOCK},
    reference=reference,
    tolerance={"float32": EXACT, "bfloat16": EXACT},  # nothing is computed
    compulsory_bytes=lambda rows, columns, beside, dtype: 2 * BYTES[dtype] * rows * columns,
)
