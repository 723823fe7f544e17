"""The arguments of a case as they are drawn: plain, with extreme values, or with tensors that begin anywhere.

Every exercise gets the last two from what its problem declares; the grader decides when. Grader and worker draw here.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from kernelpath.course import draw
from kernelpath.course.problem import EXACT, Case
from kernelpath.course.spec import Exercise

ALIGNMENT = 16
"""Bytes of the widest access that a kernel makes."""

_GAP = 0xFF
"""In every byte before, between and after the elements of a tensor that begins anywhere: NaN, or -1."""


@dataclass(frozen=True)
class Variety:
    """How inputs differ from plain ones.

    extreme: with the values that the problem declares as extreme. unordered: with those that it declares as that, which
    are compared with nothing but the outputs of another call. misaligned: bit p says that tensor p does not begin
    at a multiple of 16 bytes; tensors are counted without the other arguments. offsets: seed of where they begin.
    redistributed: with other lengths of the same number and total, where the problem has lengths on the device.
    """

    extreme: bool = False
    unordered: bool = False
    misaligned: int = 0
    offsets: int = 0
    redistributed: bool = False

    @property
    def told(self) -> dict[str, str]:
        """As a further argument of the case."""
        if self.misaligned:
            places = [str(place) for place in range(self.misaligned.bit_length()) if self.misaligned >> place & 1]
            return {"misaligned": "+".join(places)}
        if self.unordered:
            return {"values": "cancelling"}
        return {"values": "extreme"} if self.extreme else {}


PLAIN, EXTREME, UNORDERED = Variety(), Variety(extreme=True), Variety(unordered=True)


def moves(exercise: Exercise) -> bool:
    """Whether the outputs are the inputs' elements, bit for bit, in another place."""
    return all(tolerance == EXACT for tolerance in exercise.tolerance.values())


def misalignments(exercise: Exercise, inputs: Sequence[Any]) -> list[Variety]:
    """Each tensor misaligned alone, then all of them; one after another is taken for the cases of an exercise."""
    count = 0 if exercise.aligned else len(tensors_of(inputs))
    masks = [1 << place for place in range(count)]
    return [Variety(misaligned=mask) for mask in [*masks, *([sum(masks)] if count > 1 else [])]]


def serves_vectors(inputs: Sequence[Any]) -> bool:
    """Whether accesses of 16 bytes could serve every row of every tensor of floats, if it began at a multiple of 16."""
    rows = [
        size * tensor.element_size()
        for tensor in tensors_of(inputs)
        if tensor.is_floating_point()
        for size in (tensor.shape[-1], *tensor.stride()[:-1])
    ]
    return bool(rows) and not any(size % ALIGNMENT for size in rows)


def tensors_of(inputs: Sequence[Any]) -> list[torch.Tensor]:
    return [value for value in inputs if isinstance(value, torch.Tensor)]


def draw_inputs(
    exercise: Exercise, case: Case, seed: int, device: torch.device | str, variety: Variety = PLAIN
) -> tuple[Any, ...]:
    """The case's arguments on a device. The same seed and device give the same bits in every process."""
    rng = torch.Generator(device).manual_seed(seed)
    redistributed = exercise.problem.redistributed if variety.redistributed else None
    inputs = (redistributed or exercise.inputs)(rng, **case)
    if variety.extreme:
        if exercise.problem.extreme is not None:
            exercise.problem.extreme(rng, *inputs)
        elif moves(exercise):
            for tensor in tensors_of(inputs):
                draw.any_bits_(rng, tensor)
    if variety.unordered and exercise.problem.unordered is not None:
        exercise.problem.unordered(rng, *inputs)
    if not variety.misaligned:
        return inputs
    places = {id(tensor): place for place, tensor in enumerate(tensors_of(inputs))}
    offsets = random.Random(variety.offsets)  # not rng's: calls with other values have their tensors at the same places
    return tuple(
        _placed(offsets, value, variety.misaligned >> places[id(value)] & 1) if id(value) in places else value
        for value in inputs
    )


def _placed(offsets: random.Random, tensor: torch.Tensor, misaligned: int) -> torch.Tensor:
    """The tensor, strides kept, in a storage of its own that begins and ends with gaps."""
    size = tensor.element_size()
    within = max(ALIGNMENT // size, 1)
    offset = within
    if misaligned and within > 1:
        offset += offsets.randrange(1, within)
    last = sum((extent - 1) * stride for extent, stride in zip(tensor.shape, tensor.stride(), strict=True))
    elements = offset + (last + 1 if math.prod(tensor.shape) else 0) + within
    storage = torch.full((elements * size,), _GAP, dtype=torch.uint8, device=tensor.device)
    placed = storage.view(tensor.dtype).as_strided(tensor.shape, tensor.stride(), offset)
    draw.once(placed).copy_(draw.once(tensor))
    return placed
