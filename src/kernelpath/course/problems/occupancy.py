"""Occupancy: the blocks that a multiprocessor holds at once, for kernels of all kinds, as int64."""

from __future__ import annotations

import torch

from kernelpath.course.labs import multiprocessor
from kernelpath.course.labs.multiprocessor import ARCHITECTURES, RECORDED, Sm
from kernelpath.course.problem import EXACT, Problem


def inputs(rng: torch.Generator, architecture: str, kernels: int) -> tuple[torch.Tensor, Sm]:
    """Return rows of threads per block, registers per thread, shared bytes per block; and a multiprocessor."""
    return multiprocessor.draw(rng, architecture, kernels)


def reference(kernels: torch.Tensor, sm: Sm) -> torch.Tensor:
    answer = multiprocessor.oracle(sm["name"])
    return torch.tensor([answer(*row) for row in kernels.tolist()], device=kernels.device)


PROBLEM = Problem(
    inputs=inputs,
    cases=(
        *({"architecture": architecture, "kernels": 199} for architecture in ARCHITECTURES),
        {"architecture": "driver", "kernels": len(RECORDED)},
    ),
    reference=reference,
    tolerance={"int64": EXACT},
    compulsory_bytes=lambda architecture, kernels: 32 * kernels,
)
