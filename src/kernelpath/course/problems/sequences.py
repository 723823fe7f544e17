"""Sequences of several lengths in one tensor, and how a case says them: "3x64+100" is 64, 64, 64 and 100 tokens."""

from __future__ import annotations

import torch


def parsed(lengths: str) -> list[int]:
    """The length of each sequence."""
    found: list[int] = []
    for part in lengths.split("+"):
        count, _, length = part.rpartition("x")
        found += [int(length)] * int(count or 1)
    return found


def shuffled(rng: torch.Generator, lengths: str) -> torch.Tensor:
    """The lengths in a random order, int32 on the device of rng: what a host computes from them differs by the seed."""
    values = torch.tensor(parsed(lengths), dtype=torch.int32, device=rng.device)
    return values[torch.randperm(len(values), generator=rng, device=rng.device)]
