"""Hello, grid: out[:, i] = (block, warp, lane, i) for the i-th of blocks * threads threads, in int32."""

from __future__ import annotations

import torch

from kernelpath.course.problem import EXACT, Problem

WARP = 32


def inputs(rng: torch.Generator, blocks: int, threads: int) -> tuple[int, int, torch.device]:
    return blocks, threads, rng.device


def reference(blocks: int, threads: int, device: torch.device) -> torch.Tensor:
    index = torch.arange(blocks * threads, dtype=torch.int32, device=device)
    thread = index % threads
    return torch.stack([index // threads, thread // WARP, thread % WARP, index])


PROBLEM = Problem(
    inputs=inputs,
    cases=(
        {"blocks": 1, "threads": 1},
        {"blocks": 3, "threads": 31},
        {"blocks": 3, "threads": 32},
        {"blocks": 3, "threads": 33},
        {"blocks": 7, "threads": 80},
        {"blocks": 5, "threads": 1024},
        {"blocks": 257, "threads": 96},
    ),
    limits=({"blocks": 65_537, "threads": 1},),
    vary=("blocks", "threads"),
    must_reach={"threads": 1_024},
    reference=reference,
    tolerance={"int32": EXACT},
    compulsory_bytes=lambda blocks, threads: 16 * blocks * threads,
)
