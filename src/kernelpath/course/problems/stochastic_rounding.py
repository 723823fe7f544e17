"""A step of AdamW on two replicas of bfloat16 parameters, which are rounded at random, in place.

The replicas hold the same values and differ in their seeds or steps. A parameter may become either of the two bfloat16
values around the exact one. Which of them is left to the kernel, and judged by statistics that unbiased, independent
rounding satisfies.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import torch

from kernelpath.course import draw
from kernelpath.course.problem import Case, Problem, Tolerance

Tensor = torch.Tensor

BETA1, BETA2, EPS, WEIGHT_DECAY = 0.9, 0.999, 1e-8, 0.1

# The eps of the cases whose replicas differ in their seeds. One of 1e-8 may be anywhere in the formula unnoticed.
LARGE_EPS = 0.1

# The difference between the second replica's seed and step and the first's.
NEXT: Mapping[str, tuple[int, int]] = {
    "step": (0, 1),
    "seed": (1, 0),
    "high half of the seed": (1 << 32, 0),
    "high byte of the step": (0, 1 << 16),
    "seed and step": (-1, 1),  # whose sum is the same
}

_SIGNIFICANT_BITS = 8

# The exponent of the smallest normal number, as frexp counts: bfloat16 and float32 share it.
_MIN_EXPONENT = -125

# The relative error of the exact value's computation in float32, a dozen roundings of 2^-24.
FLOAT32_ERROR = 2.0**-20

# A bound of the update at lr = 0.01: v >= 1/4 and |m| <= 4 leave a ratio of at most 8, after both corrections.
LARGEST_UPDATE = 0.125

# The least magnitude for which the error of an update is far below the spacing of bfloat16.
_RELIABLE = 2.0**-4

# The relative error of rounding to the nearest bfloat16 value, with room for float32's.
NEAREST = 1.01 * 2.0**-8

# The permitted deviation of a mean in standard deviations, which 2e-9 of all means exceed.
DEVIATIONS = 6

# The permitted deviation of a correlation, at any of some ten thousand distances.
CORRELATED = 10

# The permitted bias in units of the last place.
#
# The constant factor 1 - lr * weight_decay is rounded by 2^-25, of a spacing of at least 2^-8 of p; the correction
# for bias, by 1e-5 of an update of a few spacings at most.
ARITHMETIC_BIAS = 2.0**-15

# The bounds of the distances from the lower neighbor between which means are compared.
STRATA = (0.0, 1 / 64, 1 / 4, 3 / 4, 63 / 64, 1.0)

# The least variance of a stratum, in rounded elements, for which a normal deviation is meaningful.
_FEWEST_DRAWS = 16.0

# The undecided elements, of both replicas, from which on correlations are meaningful.
_FEWEST = 4096

# The least distance from both neighbors of an element that takes part in a correlation.
#
# Two rare roundings at one distance, which chance explains, would be many deviations.
_UNDECIDED = 1 / 8


def inputs(rng: torch.Generator, n: int, step: int, lr: float, differ: str) -> tuple[Any, ...]:
    """Return p and g in bfloat16 and m and v in float32, all of shape (2, n) with equal rows, and the scalars.

    v is between 1/4 and 5/4, so an update is at most a few times lr and the error of p is relative to p itself.
    """
    p, g = (_replicate(draw.normal(rng, n, dtype="bfloat16", mean=mean)) for mean in (1.0, 0.5))
    m = _replicate(draw.normal(rng, n, mean=0.5, large=0))
    v = _replicate(draw.normal(rng, n, mean=0.0, large=0))
    if not v.is_meta:
        v.copy_(0.25 + v.abs().clamp_(max=1.0))
        g.clamp_(-4, 4)
    seed = (0x5EED << 32) + 2 * n + 1
    further_seed, further_step = NEXT[differ]
    eps = LARGE_EPS if differ == "seed" else EPS
    return p, g, m, v, [seed, seed + further_seed], [step, step + further_step], lr, BETA1, BETA2, eps, WEIGHT_DECAY


def _replicate(row: Tensor) -> Tensor:
    if row.is_meta or row.numel() > 1 << 31:
        return torch.empty(2, *row.shape, dtype=row.dtype, device="meta")
    return row.repeat(2, 1)


def reference(
    p: Tensor,
    g: Tensor,
    m: Tensor,
    v: Tensor,
    seeds: Sequence[int],
    steps: Sequence[int],
    lr: float,
    beta1: float,
    beta2: float,
    eps: float,
    weight_decay: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the exact parameters, which no rounding has touched, and the moments."""
    made = torch.tensor(steps, dtype=torch.float64, device=p.device)[:, None]
    moment = beta1 * m.double() + (1 - beta1) * g.double()
    square = beta2 * v.double() + (1 - beta2) * g.double().square()
    root = (square / (1 - beta2**made)).sqrt()
    update = lr / (1 - beta1**made) * moment / (root + eps)
    return p.double() * (1 - lr * weight_decay) - update, moment, square


def overwritten(p: Tensor, g: Tensor, m: Tensor, v: Tensor, *scalars: Any) -> tuple[Tensor, Tensor, Tensor]:
    return p, m, v


def spacing(exact: Tensor) -> Tensor:
    """Return the distance between the bfloat16 neighbors of each finite value."""
    exponent = torch.frexp(exact)[1].clamp(min=_MIN_EXPONENT)
    return torch.ldexp(torch.ones_like(exact), exponent - _SIGNIFICANT_BITS)


def floor_to_bfloat16(exact: Tensor) -> Tensor:
    """Return the greatest bfloat16 value that is not above each value, in float64."""
    unit = spacing(exact)
    return torch.floor(exact / unit) * unit


def neighbors(exact: Tensor) -> tuple[Tensor, Tensor]:
    """Return the bfloat16 values below and above each value, with room for the float32 error of the value itself."""
    slack = FLOAT32_ERROR * (exact.abs() + LARGEST_UPDATE)
    return floor_to_bfloat16(exact - slack), -floor_to_bfloat16(-exact - slack)


def settled(expected: Sequence[Tensor], outputs: Sequence[Tensor]) -> list[Tensor]:
    """Accept for p either neighbor of the exact value."""
    exact = expected[0]
    chosen = outputs[0].double()
    lower, upper = neighbors(exact)
    return [torch.where((lower <= chosen) & (chosen <= upper), chosen, exact), *expected[1:]]


def judged_rounding(inputs: Sequence[Any], outputs: Sequence[Tensor]) -> str | None:
    """Describe a property of the rounded parameters that unbiased, independent rounding does not have; or None."""
    exact = reference(*inputs)[0]
    finite = exact.isfinite()
    exact = torch.where(finite, exact, 0.0)
    rounded = torch.where(finite, outputs[0].double().to(exact.device), 0.0)
    lower, upper = neighbors(exact)
    outside = (rounded < lower) | (rounded > upper)
    if bool(outside.any()):
        return _describe_outside(exact, rounded, outside)
    unit = spacing(exact)
    residuals = (rounded - exact) / unit
    fractions = exact / unit
    # A fraction of 0 takes part in no statistic.
    fractions = torch.where(exact.abs() >= _RELIABLE, fractions - fractions.floor(), 0.0)
    for name, row, part in zip(("first", "second"), residuals, fractions, strict=True):
        if text := _bias(row, part):
            return f"the {name} replica's rounding is biased: {text}"
    undecided = (fractions > _UNDECIDED) & (fractions < 1 - _UNDECIDED)
    return _correlated(torch.where(undecided, residuals, 0.0)) if int(undecided.sum()) >= _FEWEST else None


def _describe_outside(exact: Tensor, rounded: Tensor, outside: Tensor) -> str | None:
    """Describe a value beyond both neighbors that the tolerance, which has to accept the nearest one, accepts."""
    tolerated = outside & ((rounded - exact).abs() <= NEAREST * exact.abs())
    if not bool(tolerated.any()):
        return None
    row, column = tolerated.nonzero()[0].tolist()
    lower, upper = neighbors(exact[row, column])
    value = float(rounded[row, column])
    return (
        f"p[{row}, {column}] = {value:.9g} is neither of the neighbors of the exact value, {lower:.9g} and {upper:.9g}"
    )


def _bias(residuals: Tensor, fractions: Tensor) -> str | None:
    """Describe the stratum of distances in which the mean of the residuals differs from 0, or return None."""
    variances = fractions * (1 - fractions)
    for low, high in pairwise(STRATA):
        inside = (fractions > low) & (fractions <= high)
        count = int(inside.sum())
        variance = float(variances[inside].sum())
        if variance < _FEWEST_DRAWS:
            continue
        total = float(residuals[inside].sum())
        if abs(total) > DEVIATIONS * variance**0.5 + ARITHMETIC_BIAS * count:
            went_up = int((residuals[inside] > 0).sum())
            return (
                f"of {count:,} elements whose exact value is {low:.3g} to {high:.3g} of the way to the upper neighbor, "
                f"{went_up:,} were rounded up, expected {float(fractions[inside].sum()):,.0f} "
                f"± {variance**0.5:.0f} ({total / variance**0.5:+.1f} deviations)"
            )
    return None


def _correlated(residuals: Tensor) -> str | None:
    """Describe the distance at which two elements, or the two replicas, are rounded alike, or return None."""
    first, second = residuals
    for template, left, right in (
        ("elements {} apart are rounded alike", first, first),
        (
            "the two replicas, whose seeds or steps differ, are rounded alike at a distance of {} elements",
            first,
            second,
        ),
    ):
        deviations = correlations(left, right)
        if left is right:
            deviations[0] = 0
        worst = int(deviations.abs().argmax())
        if float(deviations[worst].abs()) > CORRELATED:
            distance = min(worst, len(deviations) - worst)
            return f"{template.format(distance)}: their correlation is {float(deviations[worst]):.0f} deviations off"
    return None


def correlations(left: Tensor, right: Tensor) -> Tensor:
    """Return the correlation at every distance up to 3/4 n in standard deviations, as dropout.correlations orders it.

    The values have mean 0. Their standard deviation is measured.
    """
    n = len(left)
    spectra = [torch.fft.rfft(row, 2 * n) for row in (left, right)]
    sums = torch.fft.irfft(spectra[0].conj() * spectra[1], 2 * n)
    place = torch.arange(2 * n, device=left.device)
    overlap = n - torch.minimum(place, 2 * n - place)
    scale = left.square().mean().sqrt() * right.square().mean().sqrt()
    return torch.where(overlap >= n // 4, sums / (scale * overlap.clamp(min=1).sqrt()), 0.0)


def extreme(rng: torch.Generator, p: Tensor, g: Tensor, m: Tensor, v: Tensor, *scalars: Any) -> None:
    """Set gradients that overflowed, infinite parameters, large ones, zeros, and ones that are on bfloat16's grid."""
    for row in range(2):
        g[row, 0::11] = float("nan")
        g[row, 3::11] = float("inf")
        p[row, 5::11] = float("inf")
        p[row, 6::11] = float("-inf")
        p[row, 8::11] *= 1e30
        for tensor in (p, g, m):
            tensor[row, 9::11] = 0


def all_bits_added(p: Tensor, *rest: Any) -> tuple[Tensor, ...]:
    """Add random bits to infinities and NaN, too: an infinity becomes NaN, and the NaN 0x7FFFFFFF becomes -0."""
    exact, moment, square = reference(p, *rest)
    exact = torch.where(exact.isnan(), -0.0, exact)
    return torch.where(exact.isinf(), float("nan"), exact), moment, square


def unordered(rng: torch.Generator, p: Tensor, g: Tensor, m: Tensor, v: Tensor, *scalars: Any) -> None:
    """Set updates of half the spacing, so that every element may be rounded either way."""
    p.fill_(1.0)
    m.fill_(0.2)


def nearest(
    p: Tensor,
    g: Tensor,
    m: Tensor,
    v: Tensor,
    seeds: Sequence[int],
    steps: Sequence[int],
    lr: float,
    beta1: float,
    beta2: float,
    eps: float,
    weight_decay: float,
) -> None:
    """Run PyTorch's fused AdamW on each replica, in float32, and round its parameters to the nearest bfloat16.

    PyTorch's kernel takes parameters and moments of one type only, so p and g are converted.
    """
    flags: dict[str, Any] = {"lr": lr, "beta1": beta1, "beta2": beta2, "weight_decay": weight_decay, "eps": eps}
    counts = torch.tensor(steps, dtype=torch.float32, device=p.device).unbind()
    for count, parameters, gradients, moment, square in zip(counts, p, g, m, v, strict=True):
        exact = parameters.float()
        torch._fused_adamw_(
            [exact], [gradients.float()], [moment], [square], [], [count], amsgrad=False, maximize=False, **flags
        )
        parameters.copy_(exact)


def case(n: int, step: int = 10, lr: float = 1e-2, differ: str = "step") -> Case:
    return {"n": n, "step": step, "lr": lr, "differ": differ}


PROBLEM = Problem(
    inputs=inputs,
    # With lr = 4e-6, updates are a thousandth of the spacing, which eight random bits do not resolve. With 131,072
    # elements some 80 are expected to move, 9 standard deviations.
    cases=(
        case(32_768),
        case(131_072, step=1000, lr=4e-6),
        case(16_384, step=2, differ="seed"),
        case(16_384, differ="high half of the seed"),
        case(16_384, differ="high byte of the step"),
        case(16_384, step=7, differ="seed and step"),
        case(4100, step=1),
        case(1025),
        case(3),
    ),
    vary=("n",),
    limits=(case(65_552, step=70_000),),
    far=(case((1 << 32) + 64),),
    reference=reference,
    in_place=overwritten,
    settled=settled,
    outputs=("p", "m", "v"),
    tolerance={
        # A neighbor of the exact value has become the truth. Rounding to the nearest has to be within the tolerance;
        # `judged_rounding` rejects everything beyond the neighbors that is within it, too.
        "bfloat16": Tolerance(rtol=NEAREST, atol=0.0),
        # 1 - beta2 computed in float32 from 0.999 is off by 1.3e-5 of its share of v; all else is a few roundings of
        # 6e-8. m may be a difference, in units of its root mean square. Moments in bfloat16 are off by 2e-3.
        "float32": Tolerance(rtol=3e-5, atol=1e-5),
    },
    extreme=extreme,
    unordered=unordered,
    faults={"random bits added to infinities and NaN": all_bits_added},
    # p is read and written in bfloat16, g is read; m and v are read and written in float32.
    compulsory_bytes=lambda n, step, lr, differ: 2 * (3 * 2 + 4 * 4) * n,
    flops=lambda n, step, lr, differ: 2 * 15 * n,
)
