"""A convolution in bfloat16, channels last: out[b, i, j, f] = sum of w[f, r, s, c] x[b, i + r - p, j + s - p, c].

The filter is square with an odd side, p is half of it rounded down, the stride is 1, and x is 0 outside of the image.
"""

from __future__ import annotations

import torch

from kernelpath.course import draw
from kernelpath.course.problem import Case, Problem, Tolerance

Tensor = torch.Tensor


def inputs(
    rng: torch.Generator, batch: int, height: int, width: int, channels: int, filters: int, side: int
) -> tuple[Tensor, Tensor]:
    """Generate x of mean 1 and w of mean 0, as in matmul: a sum's error is far below its terms."""
    x = draw.normal(rng, batch, height, width, channels, dtype="bfloat16", large=0)
    return x, draw.normal(rng, filters, side, side, channels, dtype="bfloat16", large=0, mean=0.0)


def convolve(x: Tensor, w: Tensor) -> Tensor:
    """Convolve tensors with channels last by torch's operator, which is cuDNN on a GPU."""
    out = torch.nn.functional.conv2d(x.permute(0, 3, 1, 2), w.permute(0, 3, 1, 2), padding=w.shape[1] // 2)
    return out.permute(0, 2, 3, 1).contiguous()


def reference(x: Tensor, w: Tensor) -> Tensor:
    return convolve(x.double(), w.double())


def magnitudes(x: Tensor, w: Tensor) -> Tensor:
    return reference(x.abs(), w.abs())


def extreme(rng: torch.Generator, x: Tensor, w: Tensor) -> None:
    """Set infinities and NaN in one of 50 pixels, which reach only the outputs around them."""
    pixels = x.view(-1, x.shape[-1])
    places = torch.randperm(len(pixels), generator=rng, device=rng.device)[: 1 + len(pixels) // 50]
    some = pixels[places, 0]
    draw.any_bits_(rng, some, denormal=False)
    pixels[places, 0] = some


def with_zero_weights_around(x: Tensor, w: Tensor) -> Tensor:
    """Use a filter whose side is longer by 2, with weights of 0."""
    return reference(x, torch.nn.functional.pad(w.double(), (0, 0, 1, 1, 1, 1)))


def compulsory_bytes(batch: int, height: int, width: int, channels: int, filters: int, side: int) -> int:
    return 2 * (batch * height * width * (channels + filters) + filters * side * side * channels)


def flops(batch: int, height: int, width: int, channels: int, filters: int, side: int) -> int:
    return 2 * batch * height * width * filters * side * side * channels


def case(batch: int, height: int, width: int, channels: int, filters: int, side: int = 3) -> Case:
    return {"batch": batch, "height": height, "width": width, "channels": channels, "filters": filters, "side": side}


PROBLEM = Problem(
    inputs=inputs,
    # One value, images smaller than the filter, channels that no tile divides, rows of 16 bytes and odd ones, a 1 x 1
    # filter, which is a GEMM, and filters up to the largest.
    cases=(
        case(1, 1, 1, 1, 1),
        case(2, 1, 5, 3, 10),
        case(1, 9, 1, 40, 33),
        case(3, 5, 6, 72, 16, side=1),
        case(1, 6, 11, 24, 70, side=5),
        case(1, 8, 9, 16, 12, side=7),
        case(2, 12, 12, 64, 64),
    ),
    vary=("height", "width", "channels", "filters"),
    must_reach={"side": 7},
    limits=(
        case(1, 65_540, 1, 8, 8, side=1),
        case(1, 1, 65_540, 8, 8, side=1),
        case(65_540, 1, 1, 8, 8, side=1),
        case(1, 1, 2, 65_540, 1, side=1),
        case(1, 1, 2, 8, 65_540, side=1),
    ),
    far=(case((1 << 9) + 3, 1 << 11, 1 << 11, 2, 2, side=1),),
    reference=reference,
    # Products are exact in float32. A sum in float32 is off by 2^-24 of the sum of magnitudes for each addition, twice
    # as much if tensor cores truncate. Sums are made of tiles of at least 16 products, whose partial sums are added to
    # an accumulator: at most 4096 additions for 65,540 channels, whose errors have either sign, and 80 for the other
    # cases. The result is rounded once to bfloat16.
    tolerance={"bfloat16": Tolerance(rtol=1.01 * 2**-8, atol=0.0, mtol=2048 * 2**-23)},
    magnitudes=magnitudes,
    extreme=extreme,
    faults={"a larger filter with zeros around": with_zero_weights_around},
    compulsory_bytes=compulsory_bytes,
    flops=flops,
    product_dtype="bfloat16",
)
