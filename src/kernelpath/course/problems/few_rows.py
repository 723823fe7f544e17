"""Product of at most 16 rows with a large matrix, as a decoder has it at each step: out = x @ w.T in bfloat16."""

from __future__ import annotations

from dataclasses import replace

import torch

from kernelpath.course.problems import matmul_k_major


def unordered(rng: torch.Generator, x: torch.Tensor, w: torch.Tensor) -> None:
    """Set three huge products and their negatives in each sum, which then depends on the order of its additions."""
    k = x.shape[1]
    columns = torch.randperm(k, generator=rng, device=rng.device)[:6]
    x[:, columns] = 1.0
    w[:, columns] = 2.0**40 * torch.tensor([1.0, -1.0], device=rng.device).repeat(3).to(w.dtype)


PROBLEM = replace(
    matmul_k_major.PROBLEM,
    # n = 40 columns are one or a few tiles, for which k has to be split. Fewer rows are among the limits.
    cases=(
        {"m": 16, "n": 1, "k": 8},
        {"m": 16, "n": 65, "k": 328},
        {"m": 16, "n": 264, "k": 528},
        {"m": 16, "n": 24, "k": 8200},
        {"m": 16, "n": 40, "k": 16_384},
    ),
    vary=("m", "n"),
    unordered=unordered,
    limits=(
        {"m": 1, "n": 1, "k": 8},
        {"m": 1, "n": 65_537, "k": 8},
        {"m": 3, "n": 65, "k": 328},
        {"m": 5, "n": 24, "k": 8200},
        {"m": 16, "n": 1, "k": 2_056},
    ),
    must_reach={"m": 16, "n": 1_024, "k": 2_048},
    gpu_limits=(),
    far=({"m": 16, "n": (1 << 19) + 3, "k": 8_192},),
)
