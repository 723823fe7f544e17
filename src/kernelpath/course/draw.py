"""Input tensors that let a wrong kernel be seen: what the declarations in checks/ draw from."""

from __future__ import annotations

import math

import torch


def normal(rng: torch.Generator, *shape: int, dtype: str = "float32", large: int | None = None) -> torch.Tensor:
    """Normal values of mean 1 and deviation 1 with `large` values a hundred times as big at random places.

    No two places look alike, so a wrong index shows; the mean keeps errors from cancelling; the large values give
    away a kernel that skips part of the work, or overflows. They are drawn in float32 and rounded to `dtype` once.

    shape: of the contiguous tensor, on the device of rng; past 2**32 elements it is on torch's meta device and has no
    values. large: one in a thousand, and at least one, where not given.
    """
    if math.prod(shape) > 1 << 32:
        return torch.empty(shape, dtype=getattr(torch, dtype), device="meta")
    values = torch.randn(shape, generator=rng, device=rng.device).add_(1.0)
    count = 1 + values.numel() // 1000 if large is None else large
    places = torch.randint(values.numel(), (count,), generator=rng, device=rng.device)
    values.view(-1)[places] *= 100.0
    return values.to(getattr(torch, dtype))
