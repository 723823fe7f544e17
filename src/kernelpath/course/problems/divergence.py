"""Oscillators with time steps of their own: out[i] = where oscillator i is, steps[i] time steps after its release.

x'' = -x - x^3 (Duffing's equation), released at rest, by steps of H with the classical Runge-Kutta method. Its period
depends on how far it swings, so that there is no short cut, and H is so large that longer steps give another result.
"""

from __future__ import annotations

import math

import torch

from kernelpath.course.problem import BYTES, Problem, Tolerance

H = 0.25
MOST_STEPS = 64

# Operations of a step in Nyström's form.
#
# There are 3 for each of four accelerations, 8 for the positions of three of them, and 9 for two weighted sums that
# share a term. With velocities in between, as stubs write the method, there are 38.
OPERATIONS = 29

DISTRIBUTIONS = ("mixed", "rare", "uniform", "sorted", "equal")

# The mean of `steps` in each distribution, which determines the operations of a case.
MEAN_STEPS = {"mixed": 14.85, "rare": 4.94, "uniform": 32.5, "sorted": 14.85, "equal": 16.0}


def inputs(rng: torch.Generator, n: int, distribution: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Return x between 0.5 and 2 with either sign, and steps from 1 to 64, as uint8.

    The steps are mixed: uniform in the logarithm; rare: 1, but 64 for one in 16; uniform: all equally likely; sorted:
    as mixed, sorted; equal: 16.
    """
    x = torch.rand(n, generator=rng, device=rng.device) * 1.5 + 0.5
    x *= torch.randint(2, (n,), generator=rng, device=rng.device) * 2 - 1
    u = torch.rand(n, generator=rng, device=rng.device)
    if distribution == "rare":
        steps = torch.where(u < 1 / 16, MOST_STEPS, 1)
    elif distribution == "uniform":
        steps = u * MOST_STEPS + 1
    elif distribution == "equal":
        steps = torch.full_like(u, 16)
    else:
        steps = (u * math.log(MOST_STEPS + 1)).exp_()
    steps = steps.clamp_(1, MOST_STEPS).to(torch.uint8)
    return x, steps.sort().values if distribution == "sorted" else steps


def reference(x: torch.Tensor, steps: torch.Tensor, h: float = H) -> torch.Tensor:
    x = x.double()
    v = torch.zeros_like(x)
    for step in range(int(steps.max())):
        after, speed = stepped(x, v, h)
        x = x.where(step >= steps, after)
        v = v.where(step >= steps, speed)
    return x


def stepped(x: torch.Tensor, v: torch.Tensor, h: float) -> tuple[torch.Tensor, torch.Tensor]:
    """Return position and speed after one step of h."""
    v1 = v
    a1 = acceleration(x)
    v2 = v + h / 2 * a1
    a2 = acceleration(x + h / 2 * v1)
    v3 = v + h / 2 * a2
    a3 = acceleration(x + h / 2 * v2)
    v4 = v + h * a3
    a4 = acceleration(x + h * v3)
    return x + h / 6 * (v1 + 2 * v2 + 2 * v3 + v4), v + h / 6 * (a1 + 2 * a2 + 2 * a3 + a4)


def acceleration(x: torch.Tensor) -> torch.Tensor:
    return -x * (1 + x * x)


def extreme(rng: torch.Generator, x: torch.Tensor, steps: torch.Tensor) -> None:
    """Set a third of the oscillators: no steps or the most, released at zero, at NaN or at infinity."""
    places = torch.randperm(x.numel(), generator=rng, device=rng.device)[: 1 + x.numel() // 3]
    turn = torch.arange(places.numel(), device=x.device)
    steps[places] = torch.tensor([0, MOST_STEPS, 1, 0, 2], dtype=torch.uint8, device=x.device)[turn % 5]
    x[places[::4]] = torch.tensor([0.0, math.nan, math.inf, -math.inf], device=x.device)[turn[::4] % 16 // 4]


def at_least_one_step(x: torch.Tensor, steps: torch.Tensor) -> torch.Tensor:
    """Take the first step before looking at steps."""
    return reference(x, steps.clamp(min=1))


def not_a_number_at_rest(x: torch.Tensor, steps: torch.Tensor) -> torch.Tensor:
    return reference(x.nan_to_num(nan=0.0), steps)


PROBLEM = Problem(
    inputs=inputs,
    cases=(
        {"n": 1, "distribution": "mixed"},
        {"n": 31, "distribution": "uniform"},
        {"n": 257, "distribution": "rare"},
        {"n": 4096, "distribution": "equal"},
        {"n": 10_007, "distribution": "sorted"},
        {"n": 12_289, "distribution": "uniform"},
        {"n": 24_593, "distribution": "rare"},
        {"n": 32_771, "distribution": "mixed"},
    ),
    vary=("n",),
    reference=reference,
    # float32 comes to within 1.5e-5 of the root mean square; inputs in TF32 differ by up to 9e-3. A single oscillator
    # that passes 0 is its own root mean square, but its error is one of the distance from which it was released: 8e-6.
    tolerance={"float32": Tolerance(rtol=0.0, atol=2e-4, mtol=1e-4)},
    magnitudes=lambda x, steps: x.double().abs(),
    extreme=extreme,
    faults={"a step where there is none": at_least_one_step, "NaN taken for zero": not_a_number_at_rest},
    limits=({"n": 70_001, "distribution": "rare"},),
    compulsory_bytes=lambda n, distribution: (2 * BYTES["float32"] + BYTES["uint8"]) * n,
    flops=lambda n, distribution: round(OPERATIONS * MEAN_STEPS[distribution] * n),
    product_dtype="float32",  # no matrix product, but multiply-adds at the rate of one
)
