"""Overlap: the gradients of a model's layers, averaged over ranks while the backward pass goes on.

Outputs are rank 0's averaged gradients from the first layer to the last, then rank 1's, and so on.
"""

from __future__ import annotations

import torch

from kernelpath.course.labs.fabric import Layers
from kernelpath.course.problem import Case, Problem, Tolerance

# The seconds of an average layer's backward pass.
SECONDS = 20e-6

HIDDEN = 0.8

# The room for padded buckets.
_ROOM = 1.05


def inputs(rng: torch.Generator, world: int, layers: int, elements: int) -> tuple[torch.Tensor, Layers]:
    """Return every rank's gradients, one after another, and layers of `elements` plus or minus up to a half."""
    share = 0.5 + torch.rand(layers, generator=rng, device=rng.device)
    sizes = [int(size) for size in (share * elements).long().clamp(min=1)]
    gradients = torch.randn(world, sum(sizes), generator=rng, device=rng.device)
    return gradients, Layers(tuple(sizes), tuple(SECONDS * size / elements for size in sizes))


def reference(gradients: torch.Tensor, layers: Layers) -> tuple[torch.Tensor, ...]:
    averaged: tuple[torch.Tensor, ...] = gradients.double().mean(0).split(list(layers.sizes))
    return averaged * len(gradients)


def most_bytes(world: int, layers: int, elements: int) -> int:
    """Count every gradient once. A layer has at most half more elements than the average."""
    return int(_ROOM * 4 * 1.5 * layers * elements)


def least_bytes(world: int, layers: int, elements: int) -> int:
    """Count every gradient once. A layer has at least half the elements of the average."""
    return 4 * layers * (elements // 2)


def case(world: int, layers: int, elements: int) -> Case:
    return {"world": world, "layers": layers, "elements": elements}


PROBLEM = Problem(
    inputs=inputs,
    cases=(
        case(1, 3, 1000),
        case(2, 1, 1000),
        case(2, 7, 1000),
        case(3, 13, 1000),
        case(3, 23, 8192),  # of two cases with many buckets, the last bucket may be full by chance in one
        case(4, 32, 8192),
    ),
    reference=reference,
    # A sum of four, in any order, and a division: four roundings of 2^-24 for each term.
    tolerance={"float32": Tolerance(rtol=0.0, atol=0.0, mtol=5 * 2**-24)},
    magnitudes=lambda gradients, layers: reference(gradients.abs(), layers),
    compulsory_bytes=lambda world, layers, elements: 4 * world * layers * elements,
)
