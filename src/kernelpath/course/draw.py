"""Generate input tensors that expose a wrong kernel, for the declarations in checks/."""

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
    """Return normal values of mean 1 and deviation 1, of which `large` at random places are 100 times as big.

    No two elements are alike, so a wrong index shows. The mean keeps errors from cancelling. The large values reveal a
    kernel that skips part of the work, or overflows. The values are generated in float32 and rounded to `dtype` once.

    Args:
        shape: The shape of the contiguous tensor, on the device of rng. Past 2**32 elements the tensor is on torch's
            meta device and has no values. Do not compute with it: PyTorch would import its compiler to infer result
            shapes.
        large: One in a thousand, and at least one, by default.
        mean: The mean of the values.
    """
    if math.prod(shape) > 1 << 32:
        return torch.empty(shape, dtype=getattr(torch, dtype), device="meta")
    values = torch.randn(shape, generator=rng, device=rng.device).add_(mean)
    count = 1 + values.numel() // 1000 if large is None else large
    indices = torch.randint(values.numel(), (count,), generator=rng, device=rng.device)
    values.view(-1)[indices] *= 100.0
    return values.to(getattr(torch, dtype))


def integers(rng: torch.Generator, *shape: int, least: int, most: int, dtype: str) -> torch.Tensor:
    """Return uniform integers from least to most; past 2**32 elements without values, as in normal."""
    if math.prod(shape) > 1 << 32:
        return torch.empty(shape, dtype=getattr(torch, dtype), device="meta")
    return torch.randint(least, most + 1, shape, generator=rng, device=rng.device, dtype=getattr(torch, dtype))


def scales(rng: torch.Generator, *shape: int) -> torch.Tensor:
    """Return positive float32 values that differ by up to 16 times, so that a scale of another row shows."""
    return torch.exp2(4 * torch.rand(shape, generator=rng, device=rng.device) - 8)


# The bits of the fraction, by dtype.
_FRACTION = {torch.float64: 52, torch.float32: 23, torch.bfloat16: 7, torch.float16: 10}

_INTEGER = {8: torch.int64, 4: torch.int32, 2: torch.int16}


def any_bits_(rng: torch.Generator, tensor: torch.Tensor, *, denormal: bool = True) -> None:
    """Overwrite half of the elements, in place, with values that a copy must keep and arithmetic easily loses.

    These are, in turn at random places, -0.0, both infinities, denormals if requested, and NaNs with payloads. From 14
    elements on, all of them occur. A tensor that has no floats is not changed.
    """
    if tensor.dtype not in _FRACTION:
        return
    integers = tensor.view(_INTEGER[tensor.element_size()])
    fraction = _FRACTION[tensor.dtype]
    sign = torch.iinfo(integers.dtype).min
    # In IEEE 754 an exponent of ones is an infinity, or a NaN where the fraction is not 0. The highest bit of the
    # fraction makes a NaN quiet, and the other bits are its payload.
    infinity = -sign - (1 << fraction)
    quiet = infinity + (1 << fraction - 1)
    special = [sign, infinity, sign + infinity]
    # The smallest denormal, and the largest one with a negative sign.
    special += [1, sign + (1 << fraction) - 1] * denormal + [quiet, sign + quiet]
    indices = torch.randperm(integers.numel(), generator=rng, device=rng.device)[: (integers.numel() + 1) // 2]
    values = torch.tensor(special, dtype=integers.dtype, device=rng.device)
    values = values[torch.arange(indices.numel(), device=rng.device) % len(special)]
    payloads = torch.randint(1, 1 << fraction - 1, values.shape, generator=rng, device=rng.device)
    values = torch.where((values & quiet) == quiet, values | payloads.to(values.dtype), values)
    # A tensor with gaps has no flat view, so a contiguous copy is changed and copied back.
    changed = integers.clone(memory_format=torch.contiguous_format).view(-1)
    changed[indices] = values
    integers.copy_(changed.view(integers.shape))


def nans(rng: torch.Generator, count: int) -> torch.Tensor:
    """Return float32 NaNs of both signs, with any payloads, half of them with that of torch.nan."""
    fraction = 1 << _FRACTION[torch.float32]
    bits = torch.randint(1, fraction, (count,), generator=rng, device=rng.device)
    draws = torch.randint(4, (count,), generator=rng, device=rng.device)
    bits = torch.where(draws < 2, fraction // 2, bits) + 0x7F800000
    # As int32, the sign is the highest bit.
    return torch.where(draws % 2 == 0, bits, bits - (1 << 31)).int().view(torch.float32)


def without_repeats(tensor: torch.Tensor) -> torch.Tensor:
    """Return the part of a view in which no element occurs twice: the first index of each axis of stride 0."""
    return tensor[tuple(slice(1 if stride == 0 else None) for stride in tensor.stride())]


def special_(rng: torch.Generator, x: torch.Tensor, values: Sequence[float]) -> None:
    """Overwrite a third of a vector's elements, in place, at random places, with these values.

    A place may be sampled twice, and a GPU writes in any order. Therefore the value depends on the place alone.
    """
    indices = torch.randint(x.numel(), (1 + x.numel() // 3,), generator=rng, device=rng.device)
    x[indices] = torch.tensor(values, device=x.device).to(x.dtype)[indices % len(values)]


def flush_denormals(tensor: torch.Tensor) -> torch.Tensor:
    """Return the values with denormals as zeros, as `-ftz=true` and `--use_fast_math` compute."""
    return torch.where(tensor.abs() < torch.finfo(tensor.dtype).tiny, 0.0, tensor)
