"""Sequences of several lengths in one tensor, and how a case says them: "3x64+100" is 64, 64, 64 and 100 tokens."""

from __future__ import annotations

import torch


def parsed(lengths: str) -> list[int]:
    """Return the length of each sequence."""
    parsed_lengths: list[int] = []
    for part in lengths.split("+"):
        count, _, length = part.rpartition("x")
        parsed_lengths += [int(length)] * int(count or 1)
    return parsed_lengths


def redistributed(lengths: str) -> list[int]:
    """Return other lengths of the same number and total: the longest sequences give an eighth to the shortest ones.

    No sequence loses all of its tokens, and none becomes more than an eighth longer than the longest. A single sequence
    stays as it is, as do sequences of one token.
    """
    values = sorted(parsed(lengths))
    longest = values[-1]
    moved = min(max(longest // 8, 1), max(longest - 1, 0))
    for short in range(len(values) // 2):
        if values[-1 - short] < longest or values[short] + moved > longest * 9 // 8:
            break
        values[short] += moved
        values[-1 - short] -= moved
    return values


def shuffled(rng: torch.Generator, lengths: str, others: bool = False) -> torch.Tensor:
    """Return the lengths in a random order, int32 on the device of rng, which differs by the seed.

    With `others`, return the lengths of `redistributed`.
    """
    chosen = redistributed(lengths) if others else parsed(lengths)
    values = torch.tensor(chosen, dtype=torch.int32, device=rng.device)
    return values[torch.randperm(len(values), generator=rng, device=rng.device)]
