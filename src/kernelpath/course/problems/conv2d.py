"""Convolution of a float32 image with a 5 x 5 filter: out[i, j] = sum of w[a, b] x[i + a - 2, j + b - 2].

As in torch, the filter is not flipped, and x is 0 outside of the image. The weights are numbers of the host.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import torch

from kernelpath.course import draw
from kernelpath.course.problem import Case, Problem, Tolerance

RADIUS = 2
SIDE = 2 * RADIUS + 1


def inputs(rng: torch.Generator, height: int, width: int) -> tuple[torch.Tensor, list[float]]:
    """Return the image and 25 weights without symmetry, so that a flipped or transposed filter shows.

    The weights depend on the case alone. A host may pass them to a kernel, and what it passes must not depend on x.
    """
    weights = torch.randn(SIDE * SIDE, generator=torch.Generator().manual_seed(1009 * height + width))
    return draw.normal(rng, height, width), weights.tolist()


def correlate(x: torch.Tensor, weights: Sequence[float], radius: int) -> torch.Tensor:
    """Return the sums of products in float64 with a filter of any radius."""
    side = 2 * radius + 1
    height, width = x.shape
    padded = torch.nn.functional.pad(x.double(), (radius,) * 4)
    out = torch.zeros(height, width, dtype=torch.float64, device=x.device)
    for index, weight in enumerate(weights):
        row = index // side
        column = index % side
        out += weight * padded[row : row + height, column : column + width]
    return out


def reference(x: torch.Tensor, weights: Sequence[float]) -> torch.Tensor:
    return correlate(x, weights, RADIUS)


def magnitudes(x: torch.Tensor, weights: Sequence[float]) -> torch.Tensor:
    return reference(x.abs(), [abs(weight) for weight in weights])


def extreme(rng: torch.Generator, x: torch.Tensor, weights: Sequence[float]) -> None:
    """Set infinities and NaN, one in 300, which reach only the 25 elements around them."""
    values = x.view(-1)
    places = torch.randperm(x.numel(), generator=rng, device=rng.device)[: 1 + x.numel() // 300]
    some = values[places]
    draw.any_bits_(rng, some, denormal=False)
    values[places] = some


def with_zero_weights_around(x: torch.Tensor, weights: Sequence[float]) -> torch.Tensor:
    """Use a filter of 7 x 7 whose outer weights are 0."""
    wide = torch.nn.functional.pad(torch.tensor(weights, dtype=torch.float64).view(SIDE, SIDE), (1, 1, 1, 1))
    return correlate(x, wide.flatten().tolist(), RADIUS + 1)


def cudnn(x: torch.Tensor, weights: Sequence[float]) -> torch.Tensor:
    """Call the library's convolution, with the filter on the device since the first call."""
    kernel = _filter_tensor(tuple(weights), x.device)
    return torch.nn.functional.conv2d(x[None, None], kernel, padding=RADIUS)[0, 0]


@lru_cache(maxsize=8)
def _filter_tensor(weights: tuple[float, ...], device: torch.device) -> torch.Tensor:
    return torch.tensor(weights, device=device).view(1, 1, SIDE, SIDE)


def case(height: int, width: int) -> Case:
    return {"height": height, "width": width}


PROBLEM = Problem(
    inputs=inputs,
    # One pixel, images smaller than the filter, one more and one less than tiles of 16, 32 and 64, rows of 16 bytes.
    cases=(
        case(1, 1),
        case(3, 2),
        case(31, 33),
        case(17, 65),
        case(70, 40),
        case(5, 257),
        case(128, 128),
    ),
    vary=("height", "width"),
    limits=(case(65_540, 1), case(1, 65_540)),
    far=(case((1 << 16) + 3, 1 << 16),),
    reference=reference,
    # A sum of 25 products in float32, in any order: each product is rounded once and takes part in at most 24
    # additions, so the error is at most 25 * 2^-24 of the sum of magnitudes. With x in TF32 99% of the elements fail.
    tolerance={"float32": Tolerance(rtol=0.0, atol=0.0, mtol=26 * 2**-24)},
    magnitudes=magnitudes,
    extreme=extreme,
    faults={"a filter of 7 x 7 with zeros around": with_zero_weights_around},
    compulsory_bytes=lambda height, width: 8 * height * width,
    flops=lambda height, width: 2 * SIDE * SIDE * height * width,
)
