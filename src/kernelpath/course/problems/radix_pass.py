"""One pass of a radix sort: keys of 32 bits in the order of one digit of 8 bits; keys with equal digits keep theirs."""

from __future__ import annotations

import torch

from kernelpath.course.problem import EXACT, Problem

DIGITS = 256
DISTRIBUTIONS = ("uniform", "few", "sorted")


def digits_of(keys: torch.Tensor, shift: int) -> torch.Tensor:
    """Return the digit of each key, as int64: 8 bits from bit `shift` on, of the key as an unsigned number."""
    return (keys.long() & 0xFFFFFFFF) >> shift & DIGITS - 1


def first_places(keys: torch.Tensor, shift: int) -> torch.Tensor:
    """Return, for each digit, the number of keys with lower digits."""
    counts = torch.bincount(digits_of(keys, shift), minlength=DIGITS)
    return (counts.cumsum(0) - counts).int()


def inputs(rng: torch.Generator, n: int, shift: int, distribution: str) -> tuple[torch.Tensor, torch.Tensor, int]:
    """Generate keys and the place of the first key of each digit.

    Args:
        distribution: "uniform": any bits. "few": three digits, of which one is rare. "sorted": in unsigned order.
    """
    keys = torch.randint(-(1 << 31), 1 << 31, (n,), generator=rng, device=rng.device).int()
    if distribution == "few":
        draws = torch.rand(n, generator=rng, device=rng.device)
        digit = torch.where(draws < 0.5, 3, torch.where(draws < 0.99, 200, 255)).int()
        keys = keys & ~(DIGITS - 1 << shift if shift < 24 else -(1 << 24)) | digit << shift
    elif distribution == "sorted":
        keys = (keys.long() & 0xFFFFFFFF).sort().values.int()
    return keys, first_places(keys, shift), shift


def reference(keys: torch.Tensor, first: torch.Tensor, shift: int) -> torch.Tensor:
    digits, order = digits_of(keys, shift).sort(stable=True)
    counts = torch.bincount(digits, minlength=DIGITS)
    rank = torch.arange(keys.numel(), device=keys.device) - (counts.cumsum(0) - counts)[digits]
    # With the right first places, this is keys[order].
    places = (first.long()[digits] + rank).clamp(0, keys.numel() - 1)
    return torch.zeros_like(keys).scatter_(0, places, keys[order])


def extreme(rng: torch.Generator, keys: torch.Tensor, first: torch.Tensor, shift: int) -> None:
    """Set the least and the greatest keys, signed and unsigned, in half of the places, and adapt the first places."""
    special = torch.tensor([-(1 << 31), (1 << 31) - 1, 0, -1], dtype=torch.int32, device=rng.device)
    places = torch.randperm(keys.numel(), generator=rng, device=rng.device)[: (keys.numel() + 1) // 2]
    keys[places] = special[places % 4]
    first.copy_(first_places(keys, shift))


def unordered(rng: torch.Generator, keys: torch.Tensor, first: torch.Tensor, shift: int) -> None:
    """Change nothing: the result does not depend on any order."""


def _signed(keys: torch.Tensor, first: torch.Tensor, shift: int) -> torch.Tensor:
    return keys[(keys.long() >> shift).sort(stable=True).indices]


PROBLEM = Problem(
    inputs=inputs,
    cases=(
        {"n": 1, "shift": 0, "distribution": "uniform"},
        {"n": 31, "shift": 24, "distribution": "uniform"},
        {"n": 1000, "shift": 8, "distribution": "few"},
        {"n": 4100, "shift": 16, "distribution": "uniform"},
        {"n": 10_008, "shift": 24, "distribution": "few"},
        {"n": 25_000, "shift": 24, "distribution": "sorted"},
        {"n": 100_003, "shift": 0, "distribution": "uniform"},
    ),
    vary=("n",),
    # A digit of more than 65,536 keys, whose number needs more than 16 bits.
    limits=({"n": 140_003, "shift": 0, "distribution": "few"},),
    reference=reference,
    tolerance={"int32": EXACT},
    extreme=extreme,
    unordered=unordered,
    faults={"order of the whole key, signed": _signed},
    compulsory_bytes=lambda n, shift, distribution: 8 * n + 4 * DIGITS,
    flops=lambda n, shift, distribution: n,
)
