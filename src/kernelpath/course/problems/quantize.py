"""Quantization of a bfloat16 matrix to int8 or float8 e4m3, with a scale for each row, group of 128, or block.

Scales are stored as the GEMMs of week 11 read them: int8_matmul takes one for each row, fp8_matmul groups of 1 x 128
values of a, whose scales are (groups, rows), and blocks of 128 x 128 values of b.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from kernelpath.course import draw
from kernelpath.course.problem import Case, Problem, Tolerance

Tensor = torch.Tensor

GROUP = 128

# The largest magnitude that each format represents; int8 leaves out -128.
LARGEST: Mapping[str, float] = {"int8": 127.0, "float8_e4m3fn": 448.0}

# The statement's lower bound of the largest magnitude that is not 0. Divided by 448 it is a normal float32.
LEAST = 1e-35

# The relative error of x / scale in float32 with an approximate division, beyond half a spacing.
_SLACK = 2.0**-20


def inputs(rng: torch.Generator, rows: int, columns: int, to: str, scales: str) -> tuple[Tensor, str, str]:
    """Generate values whose rows and groups differ in size by up to 16 times, so that another one's scale shows."""
    x = draw.normal(rng, rows, columns, dtype="bfloat16", mean=0.25)
    if not x.is_meta:
        groups = (columns + GROUP - 1) // GROUP
        factors = draw.scales(rng, rows, groups).repeat_interleave(GROUP, 1)[:, :columns]
        x.copy_(x * factors)
    return x, to, scales


def largest_magnitudes(x: Tensor, scales: str, magnitude: Callable[[Tensor], Tensor] = torch.abs) -> Tensor:
    """Return the largest magnitude of each row (rows), group (groups, rows), or block (blocks, blocks) of x."""
    values = magnitude(x.double())
    if scales == "row":
        return values.amax(1)
    rows, columns = x.shape
    height = GROUP if scales == "block" else 1
    padded = torch.nn.functional.pad(values, (0, -columns % GROUP, 0, -rows % height))
    largest = padded.view(padded.shape[0] // height, height, padded.shape[1] // GROUP, GROUP).amax((1, 3))
    return largest if scales == "block" else largest.T


def expanded(scale: Tensor, shape: Sequence[int], scales: str) -> Tensor:
    """Return the scale of each element of a matrix of this shape."""
    rows, columns = shape
    if scales == "row":
        return scale[:, None].expand(rows, columns)
    if scales == "group":
        return scale.T.repeat_interleave(GROUP, 1)[:, :columns]
    return scale.repeat_interleave(GROUP, 0)[:rows].repeat_interleave(GROUP, 1)[:, :columns]


def with_scale(scale_of: Callable[[Tensor, float], Tensor]) -> Callable[[Tensor, str, str], tuple[Tensor, Tensor]]:
    """Return the reference, or a fault, given the scale as a function of the largest magnitude and the format's."""

    def quantized(x: Tensor, to: str, scales: str) -> tuple[Tensor, Tensor]:
        scale = scale_of(largest_magnitudes(x, scales), LARGEST[to])
        return x.double() / expanded(scale, x.shape, scales), scale

    return quantized


def safe_scale(largest: Tensor, limit: float) -> Tensor:
    """Return the scale, which is 1 where all values are 0."""
    return torch.where(largest == 0, 1.0, largest / limit)


def without_magnitude(x: Tensor, to: str, scales: str) -> tuple[Tensor, Tensor]:
    """Compute the scale from the largest value, where the largest magnitude may be negative."""
    scale = safe_scale(largest_magnitudes(x, scales, magnitude=lambda values: values), LARGEST[to])
    return x.double() / expanded(scale, x.shape, scales), scale


def spacing(exact: Tensor, dtype: torch.dtype) -> Tensor:
    """Return the distance of the format's values around each value."""
    if dtype == torch.int8:
        return torch.ones_like(exact)
    # frexp's exponent is one more than the power of two; e4m3 has 3 bits of fraction, and subnormals below 2^-6.
    return torch.ldexp(torch.ones_like(exact), torch.frexp(exact)[1].clamp(min=-5) - 4)


def settled(expected: Sequence[Tensor], outputs: Sequence[Tensor]) -> list[Tensor]:
    """Accept the nearest value of the format, and both where x / scale is half way between two in float32."""
    exact = expected[0]
    chosen = outputs[0].double()
    room = spacing(exact, outputs[0].dtype) / 2 + _SLACK * exact.abs()
    return [torch.where((chosen - exact).abs() <= room, chosen, exact), *expected[1:]]


def judged_dtype(inputs: Sequence[Any], outputs: Sequence[Tensor]) -> str | None:
    """Describe an output of another dtype than the case requires; None for right ones."""
    for name, output, dtype in zip(("q", "scale"), outputs, (inputs[1], "float32"), strict=False):
        if output.dtype != getattr(torch, dtype):
            return f"{name} has dtype {str(output.dtype).removeprefix('torch.')}, expected {dtype}"
    return None


def extreme(rng: torch.Generator, x: Tensor, to: str, scales: str) -> None:
    """Set rows of zeros, tiny rows and blocks, and rows with a negative outlier that rounds all other values to 0.

    A lower bound of the scale, as some libraries have it, changes the scale of tiny rows.
    """
    rows, columns = x.shape
    index = torch.arange(rows, device=x.device)
    # No tiny value shares its scale with an outlier: their quotient would be 1e-60, which no float32 represents.
    tiny = index >= GROUP if scales == "block" else index % 4 == 3
    x[tiny] *= 2.0**-100
    x[(x != 0) & (x.abs() < LEAST)] = LEAST  # a single value close to 0 in the original row
    x[1::4] = 0
    with_outlier = ((index % 4 == 2) & ~tiny).nonzero()
    outliers = torch.randint(columns, (rows,), generator=rng, device=x.device)
    x[with_outlier, outliers[with_outlier]] = -1e30
    if rows < 3:
        x[:, 0] = -1e30


def operators(x: Tensor, to: str, scales: str) -> tuple[Tensor, Tensor]:
    """Call PyTorch's operators: a pass for the largest magnitudes, further ones for the quotients and their dtype."""
    dtype = getattr(torch, to)
    rows, columns = x.shape
    height = {"row": 1, "group": 1, "block": GROUP}[scales]
    width = columns if scales == "row" else GROUP
    tiles = torch.nn.functional.pad(x, (0, -columns % width, 0, -rows % height)).float()
    tiles = tiles.view(tiles.shape[0] // height, height, tiles.shape[1] // width, width)
    largest = tiles.abs().amax((1, 3), keepdim=True)
    scale = torch.where(largest == 0, 1.0, largest / LARGEST[to])
    quotients = (tiles / scale).flatten(2, 3).flatten(0, 1)[:rows, :columns]
    q = (quotients.round() if dtype == torch.int8 else quotients).to(dtype)
    table = scale[:, 0, :, 0]
    return q.contiguous(), {"row": table.flatten(), "group": table.T.contiguous(), "block": table}[scales]


def compulsory_bytes(rows: int, columns: int, to: str, scales: str) -> int:
    groups = (columns + GROUP - 1) // GROUP
    count = {"row": rows, "group": rows * groups, "block": (rows + GROUP - 1) // GROUP * groups}[scales]
    return 3 * rows * columns + 4 * count


def case(rows: int, columns: int, to: str, scales: str) -> Case:
    return {"rows": rows, "columns": columns, "to": to, "scales": scales}


INT8, E4M3 = "int8", "float8_e4m3fn"

PROBLEM = Problem(
    inputs=inputs,
    # One value, partial groups and blocks in either direction, rows of 16 bytes and odd ones, each format with each
    # kind of scale.
    cases=(
        case(1, 1, INT8, "row"),
        case(5, 200, E4M3, "group"),
        case(130, 129, E4M3, "block"),
        case(33, 1000, INT8, "row"),
        case(7, 384, INT8, "group"),
        case(129, 136, INT8, "block"),
        case(3, 16_384, E4M3, "row"),
        case(256, 512, E4M3, "group"),
    ),
    vary=("rows", "columns"),
    must_reach={"columns": 16_384},
    limits=(case(65_540, 8, E4M3, "group"), case(65_540, 8, INT8, "row")),
    far=(
        case((1 << 22) + 3, 1024, E4M3, "group"),
        case((1 << 22) + 3, 1024, INT8, "row"),
    ),
    reference=with_scale(safe_scale),
    settled=settled,
    outputs=("q", "scale"),
    tolerance={
        # The largest magnitude is exact, its quotient is rounded once or by an approximate division of 2 ulp.
        "float32": Tolerance(rtol=2.0**-21, atol=0.0),
        # The nearest value has become the truth; any other is off by at least half a spacing, 2^-5.
        "float8_e4m3fn": Tolerance(rtol=2.0**-12, atol=0.0),
        "int8": Tolerance(rtol=0.0, atol=0.0),
    },
    extreme=extreme,
    faults={
        "zeros divided by zero": with_scale(lambda largest, limit: largest / limit),
        "the largest value instead of the largest magnitude": without_magnitude,
    },
    compulsory_bytes=compulsory_bytes,
    flops=lambda rows, columns, to, scales: 3 * rows * columns,
)
