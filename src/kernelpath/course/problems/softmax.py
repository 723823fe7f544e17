"""Softmax: out[i, :] = exp(x[i, :] - max) / sum for a contiguous float32 or bfloat16 matrix, computed in float32."""

from __future__ import annotations

import torch

from kernelpath.course import draw
from kernelpath.course.problem import ANY_FINITE, BYTES, Problem, Tolerance


def inputs(rng: torch.Generator, rows: int, columns: int, dtype: str) -> tuple[torch.Tensor]:
    """Generate x: every second row is near 100, where exp overflows; one row in eight is decided by a single value."""
    x = draw.normal(rng, rows, columns, dtype=dtype, large=rows // 8)
    x[::2] += 100
    return (x,)


def reference(x: torch.Tensor) -> torch.Tensor:
    return torch.softmax(x.double(), dim=1)


def magnitudes(x: torch.Tensor) -> torch.Tensor:
    """Return the columns times out: a float32 sum of n terms is off by up to n * 2^-24 of itself, depending on its
    order (Higham, Accuracy and Stability of Numerical Algorithms, 4.2).

    A sum of terms one after another gets close to this where the first one is the largest and all others are less than
    half a unit in its last place.
    """
    return x.shape[1] * reference(x)


def unfused(x: torch.Tensor) -> torch.Tensor:
    """Compute softmax by its formula, an operator for each step: eight passes over memory where two suffice."""
    e = torch.exp(x - x.amax(dim=1, keepdim=True))
    return e / e.sum(dim=1, keepdim=True)


def extreme(rng: torch.Generator, x: torch.Tensor) -> None:
    """Set the rows, in turn: far below 0, the lowest values, the lowest and the highest value, a plain one."""
    finite = torch.finfo(x.dtype)  # a GPU before sm_80 gets float16 for bfloat16
    lowest = max(ANY_FINITE[0], finite.min)
    highest = min(ANY_FINITE[1], finite.max)
    kinds = (torch.arange(len(x), device=x.device) + int(torch.randint(4, (), generator=rng, device=rng.device))) % 4
    x[kinds == 0] -= 1000
    x[kinds == 1] = lowest
    x[kinds == 2, 0] = lowest
    x[kinds == 2, x.shape[1] // 2] = highest


def maximum_from_zero(x: torch.Tensor) -> torch.Tensor:
    """Start the maximum at 0."""
    e = torch.exp(x.double() - x.double().amax(dim=1, keepdim=True).clamp(min=0)).float()
    return (e / e.sum(dim=1, keepdim=True)).double()


def maximum_from_a_low_value(x: torch.Tensor) -> torch.Tensor:
    """Start the maximum at -1e30: below it, no exponential of a row is left."""
    e = torch.exp(x.double() - x.double().amax(dim=1, keepdim=True).clamp(min=-1e30)).float()
    return (e / e.sum(dim=1, keepdim=True)).double()


PROBLEM = Problem(
    inputs=inputs,
    cases=(
        {"rows": 1, "columns": 1, "dtype": "float32"},
        {"rows": 33, "columns": 31, "dtype": "float32"},
        {"rows": 5, "columns": 255, "dtype": "bfloat16"},
        {"rows": 5, "columns": 256, "dtype": "bfloat16"},
        {"rows": 5, "columns": 257, "dtype": "bfloat16"},
        {"rows": 17, "columns": 1009, "dtype": "float32"},
        {"rows": 2, "columns": 32_771, "dtype": "bfloat16"},
        {"rows": 128, "columns": 2048, "dtype": "float32"},
    ),
    vary=("rows", "columns"),
    far=({"rows": (1 << 21) + 3, "columns": 2048, "dtype": "float32"},),
    reference=reference,
    tolerance={
        # float32 inside is off by 5e-6 at most (where exp is exp2 of a rounded product), and the sum by mtol; TF32
        # inside by 5e-4 in the median, and nine in ten elements fail. Rounding the result to bfloat16 alone costs
        # 2^-8 = 3.9e-3; bfloat16 inside costs up to 3e-2, and a third of the elements fail.
        "float32": Tolerance(rtol=2e-5, atol=1e-6, mtol=2**-24),
        "bfloat16": Tolerance(rtol=4e-3, atol=1e-6, mtol=2**-24),
    },
    magnitudes=magnitudes,
    extreme=extreme,
    faults={"a maximum that begins at 0": maximum_from_zero, "one that begins at -1e30": maximum_from_a_low_value},
    limits=({"rows": 1, "columns": 262_144, "dtype": "bfloat16"}, {"rows": 2_053, "columns": 1, "dtype": "float32"}),
    must_reach={"rows": 2_048},  # more blocks than 132 SMs hold at 15 each; 65,537 rows are left to a GPU
    domain=ANY_FINITE,
    gpu_limits=({"rows": 65_537, "columns": 1, "dtype": "float32"},),  # 65,537 blocks that reduce
    compulsory_bytes=lambda rows, columns, dtype: 2 * BYTES[dtype] * rows * columns,
    flops=lambda rows, columns, dtype: 5 * rows * columns,
)
