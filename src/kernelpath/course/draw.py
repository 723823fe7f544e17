"""Input tensors that expose a wrong kernel: what the declarations in checks/ draw from."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch


def normal(
    rng: torch.Generator,
    *shape: int,
    dtype: str = "float32",
    large: int | None = None,
    mean: float = 1.0,
) -> torch.Tensor:
    """Normal values of mean 1 and deviation 1 with `large` values a hundred times as big at random places.

    No two places look alike, so a wrong index shows; the mean keeps errors from cancelling; the large values give
    away a kernel that skips part of the work, or overflows. They are drawn in float32 and rounded to `dtype` once.

    shape: of the contiguous tensor, on the device of rng; past 2**32 elements it is on torch's meta device, has no
    values and is not to be calculated with: PyTorch imports its compiler to learn the shape of the result.
    large: one in a thousand, and at least one, where not given. mean: another one.
    """
    if math.prod(shape) > 1 << 32:
        return torch.empty(shape, dtype=getattr(torch, dtype), device="meta")
    values = torch.randn(shape, generator=rng, device=rng.device).add_(mean)
    count = 1 + values.numel() // 1000 if large is None else large
    places = torch.randint(values.numel(), (count,), generator=rng, device=rng.device)
    values.view(-1)[places] *= 100.0
    return values.to(getattr(torch, dtype))


def integers(rng: torch.Generator, *shape: int, least: int, most: int, dtype: str) -> torch.Tensor:
    """Integers from least to most, each as likely; past 2**32 elements without values, as in normal."""
    if math.prod(shape) > 1 << 32:
        return torch.empty(shape, dtype=getattr(torch, dtype), device="meta")
    return torch.randint(least, most + 1, shape, generator=rng, device=rng.device, dtype=getattr(torch, dtype))


def scales(rng: torch.Generator, *shape: int) -> torch.Tensor:
    """Positive float32 values that differ by up to 16 times: a scale that belongs to another row shows."""
    return torch.exp2(4 * torch.rand(shape, generator=rng, device=rng.device) - 8)


_FRACTION = {torch.float64: 52, torch.float32: 23, torch.bfloat16: 7, torch.float16: 10}
"""Bits of the fraction, by dtype."""

_INTEGER = {8: torch.int64, 4: torch.int32, 2: torch.int16}


def any_bits_(rng: torch.Generator, tensor: torch.Tensor, *, denormal: bool = True) -> None:
    """Overwrite half of the elements, in place, with values that a copy must keep and arithmetic easily loses.

    At random places stand, in turn, -0.0, both infinities, denormals if asked, and NaNs with payloads. All of them are
    there from 14 elements on. A tensor that is not of floats stays as it is.
    """
    if tensor.dtype not in _FRACTION:
        return
    integers, fraction = tensor.view(_INTEGER[tensor.element_size()]), _FRACTION[tensor.dtype]
    sign = torch.iinfo(integers.dtype).min
    infinity = -sign - (1 << fraction)
    quiet = infinity + (1 << fraction - 1)
    special = [sign, infinity, sign + infinity]
    special += [1, sign + (1 << fraction) - 1] * denormal + [quiet, sign + quiet]
    places = torch.randperm(integers.numel(), generator=rng, device=rng.device)[: (integers.numel() + 1) // 2]
    values = torch.tensor(special, dtype=integers.dtype, device=rng.device)
    values = values[torch.arange(places.numel(), device=rng.device) % len(special)]
    payloads = torch.randint(1, 1 << fraction - 1, values.shape, generator=rng, device=rng.device)
    values = torch.where((values & quiet) == quiet, values | payloads.to(values.dtype), values)
    changed = integers.clone(memory_format=torch.contiguous_format).view(-1)
    changed[places] = values
    integers.copy_(changed.view(integers.shape))


def once(tensor: torch.Tensor) -> torch.Tensor:
    """The part of a view in which no element stands twice: of an axis of stride 0, the first place alone."""
    return tensor[tuple(slice(1 if stride == 0 else None) for stride in tensor.stride())]


def special_(rng: torch.Generator, x: torch.Tensor, values: Sequence[float]) -> None:
    """Overwrite a third of the elements of a vector, in place, at random places, with these values.

    A place may be drawn twice, and a GPU writes in any order: which value it gets follows from the place alone.
    """
    places = torch.randint(x.numel(), (1 + x.numel() // 3,), generator=rng, device=rng.device)
    x[places] = torch.tensor(values, device=x.device).to(x.dtype)[places % len(values)]


def flushed(tensor: torch.Tensor) -> torch.Tensor:
    """The values with denormals as zeros, as `-ftz=true` and `--use_fast_math` compute."""
    return torch.where(tensor.abs() < torch.finfo(tensor.dtype).tiny, 0.0, tensor)
