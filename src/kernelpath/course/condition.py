"""Compute the condition of a computation: how far intermediate rounding moves each element of its result."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

Reference = Callable[..., torch.Tensor | tuple[torch.Tensor, ...]]

# The evaluations of the reference. The root mean square of 16 deviations is within a factor of 2 of its mean.
SAMPLES = 16

# Far above the unit roundoff of float64, in which the reference is evaluated, yet small enough to be linear.
_LEAST_NOISE = 2.0**-20


def unit_roundoff(dtype: torch.dtype) -> float:
    """Return the largest relative error of rounding to nearest: 2^-24 for float32, 2^-8 for bfloat16."""
    return torch.finfo(dtype).eps / 2


def sensitivity(reference: Reference) -> Callable[..., tuple[torch.Tensor, ...]]:
    """Return `magnitudes` for a reference whose chain of roundings has no closed bound.

    Each element of each float input is multiplied by 1 + noise, where the noise is drawn independently and uniformly
    from [-u, u], and u is the unit roundoff of the first float input (2^-20 at least). The magnitude of an output
    element is the root mean square of its deviations over SAMPLES such evaluations, divided by u: the error that a
    relative error of 1 in each input would cause if the computation were linear. This is Monte Carlo arithmetic
    (Parker, 1997), applied to the inputs alone. That is enough where intermediate values are rounded as well: for
    transformer_block the deviations differ from those of a rounding at each of its 25 stored tensors by a factor of 1.2
    to 1.6 in the median.

    The draws depend on nothing but the shapes of the inputs, so a result can be repeated.
    """

    def magnitudes(*inputs: Any) -> tuple[torch.Tensor, ...]:
        dtype = next(value.dtype for value in inputs if isinstance(value, torch.Tensor) and value.is_floating_point())
        noise = max(unit_roundoff(dtype), _LEAST_NOISE)
        expected = _as_tuple(reference(*inputs))
        squares = [torch.zeros_like(truth) for truth in expected]
        for seed in range(SAMPLES):
            outputs = _as_tuple(reference(*_perturbed(inputs, noise, seed)))
            for square, output, truth in zip(squares, outputs, expected, strict=True):
                # Where both are infinite, their difference is NaN. The grader compares such elements exactly.
                square += (output - truth).square().nan_to_num_(nan=0.0, posinf=0.0)
        return tuple((square / SAMPLES).sqrt() / noise for square in squares)

    return magnitudes


def _perturbed(inputs: tuple[Any, ...], noise: float, seed: int) -> list[Any]:
    generators: dict[torch.device, torch.Generator] = {}
    perturbed: list[Any] = []
    for value in inputs:
        if not isinstance(value, torch.Tensor) or not value.is_floating_point():
            perturbed.append(value)
            continue
        # All inputs of a device share one generator: with one for each, two inputs of a shape would get the same noise.
        rng = generators.setdefault(value.device, torch.Generator(value.device).manual_seed(seed))
        factors = torch.rand(value.shape, generator=rng, device=value.device, dtype=torch.float64)
        perturbed.append(value.double() * (1 + noise * (2 * factors - 1)))
    return perturbed


def _as_tuple(outputs: torch.Tensor | tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
    return outputs if isinstance(outputs, tuple) else (outputs,)
