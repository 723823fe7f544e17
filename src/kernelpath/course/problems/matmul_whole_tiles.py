"""Matrix product of bfloat16 matrices that are stored along k and that whole tiles cover: out = a @ b.T."""

from __future__ import annotations

from dataclasses import replace

import torch

from kernelpath.course.problems import matmul_half, matmul_k_major


def extreme(rng: torch.Generator, a: torch.Tensor, b: torch.Tensor) -> None:
    """Set the values of matmul_half, by whether k is an odd or even multiple of 64."""
    (matmul_half.infinite if a.shape[1] % 128 else matmul_half.cancelling)(rng, a, b.T)


PROBLEM = replace(
    matmul_k_major.PROBLEM,
    # m and n are multiples of 128, and k of 64. Rings have 2 to 4 stages, and 320 fills five k-tiles.
    cases=(
        {"m": 128, "n": 128, "k": 64},
        {"m": 128, "n": 384, "k": 128},
        {"m": 256, "n": 128, "k": 320},
        {"m": 256, "n": 256, "k": 256},
    ),
    vary=(),
    extreme=extreme,
    faults={"sums rounded halfway": matmul_k_major.summed_in_halves},  # no tile reaches past the end of k
    limits=({"m": 1_152, "n": 128, "k": 64}, {"m": 128, "n": 1_152, "k": 64}, {"m": 128, "n": 128, "k": 2_112}),
    gpu_limits=({"m": 65_664, "n": 128, "k": 64},),
)
