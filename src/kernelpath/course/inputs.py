"""Generate the arguments of a case: plain, with extreme values, or with misaligned tensors.

Every exercise gets the last two from its problem's declarations; the grader decides when. Grader and worker generate
inputs here.
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

# The bytes of the widest access that a kernel makes.
ALIGNMENT = 16

# The value of every byte before, between and after the elements of a misaligned tensor: NaN, or -1.
_GAP_BYTE = 0xFF


@dataclass(frozen=True)
class InputMode:
    """The way in which inputs differ from plain ones.

    Attributes:
        extreme: Use the values that the problem declares as extreme.
        unordered: Use the values that the problem declares as unordered, whose outputs are compared only with another
            call's.
        misaligned: A bit mask of the tensors that do not begin at a multiple of 16 bytes. Tensors are counted without
            the other arguments.
        offsets: The seed of the misaligned tensors' offsets.
        redistributed: Use other lengths of the same number and total, if the problem has lengths on the device.
    """

    extreme: bool = False
    unordered: bool = False
    misaligned: int = 0
    offsets: int = 0
    redistributed: bool = False

    @property
    def label(self) -> dict[str, str]:
        """Return the mode as a further argument of the case."""
        if self.misaligned:
            indices = [str(index) for index in range(self.misaligned.bit_length()) if self.misaligned >> index & 1]
            return {"misaligned": "+".join(indices)}
        if self.unordered:
            return {"values": "cancelling"}
        return {"values": "extreme"} if self.extreme else {}


PLAIN = InputMode()
EXTREME = InputMode(extreme=True)
UNORDERED = InputMode(unordered=True)


def moves(exercise: Exercise) -> bool:
    """Return whether the outputs are the inputs' elements, bit for bit, in other places."""
    return all(tolerance == EXACT for tolerance in exercise.tolerance.values())


def misalignments(exercise: Exercise, inputs: Sequence[Any]) -> list[InputMode]:
    """Return modes that misalign each tensor alone, then all of them. The cases of an exercise take turns."""
    count = 0 if exercise.aligned else len(tensors_of(inputs))
    masks = [1 << index for index in range(count)]
    return [InputMode(misaligned=mask) for mask in [*masks, *([sum(masks)] if count > 1 else [])]]


def serves_vectors(inputs: Sequence[Any]) -> bool:
    """Return whether 16-byte accesses could serve every row of every tensor of floats, if it were aligned."""
    rows = [
        size * tensor.element_size()
        for tensor in tensors_of(inputs)
        if tensor.is_floating_point()
        for size in (tensor.shape[-1], *tensor.stride()[:-1])
    ]
    return bool(rows) and not any(size % ALIGNMENT for size in rows)


def tensors_of(inputs: Sequence[Any]) -> list[torch.Tensor]:
    return [value for value in inputs if isinstance(value, torch.Tensor)]


def generate_inputs(
    exercise: Exercise, case: Case, seed: int, device: torch.device | str, mode: InputMode = PLAIN
) -> tuple[Any, ...]:
    """Return the case's arguments on a device. The same seed and device give the same bits in every process."""
    # A generator of its own: the submission may use and reseed torch's default one.
    rng = torch.Generator(device).manual_seed(seed)
    redistributed = exercise.problem.redistributed if mode.redistributed else None
    inputs = (redistributed or exercise.inputs)(rng, **case)
    if mode.extreme:
        if exercise.problem.extreme is not None:
            exercise.problem.extreme(rng, *inputs)
        elif moves(exercise):
            for tensor in tensors_of(inputs):
                draw.any_bits_(rng, tensor)
    if mode.unordered and exercise.problem.unordered is not None:
        exercise.problem.unordered(rng, *inputs)
    if not mode.misaligned:
        return inputs
    index_by_id = {id(tensor): index for index, tensor in enumerate(tensors_of(inputs))}
    offsets = random.Random(mode.offsets)  # not from rng: calls with other values have the same offsets
    return tuple(
        _copy_with_gaps(offsets, value, mode.misaligned >> index_by_id[id(value)] & 1)
        if id(value) in index_by_id
        else value
        for value in inputs
    )


def _copy_with_gaps(offsets: random.Random, tensor: torch.Tensor, misaligned: int) -> torch.Tensor:
    """Copy the tensor, strides kept, to a storage of its own that begins and ends with gaps."""
    size = tensor.element_size()
    elements_per_vector = max(ALIGNMENT // size, 1)
    # A gap of a whole vector in front, so that an access that is rounded down to its alignment reads the gap and not
    # the elements.
    offset = elements_per_vector
    if misaligned and elements_per_vector > 1:
        offset += offsets.randrange(1, elements_per_vector)
    last = sum((extent - 1) * stride for extent, stride in zip(tensor.shape, tensor.stride(), strict=True))
    elements = offset + (last + 1 if math.prod(tensor.shape) else 0) + elements_per_vector
    storage = torch.full((elements * size,), _GAP_BYTE, dtype=torch.uint8, device=tensor.device)
    copied = storage.view(tensor.dtype).as_strided(tensor.shape, tensor.stride(), offset)
    # torch does not write to a tensor whose elements share memory, as along an axis of stride 0.
    draw.without_repeats(copied).copy_(draw.without_repeats(tensor))
    return copied
