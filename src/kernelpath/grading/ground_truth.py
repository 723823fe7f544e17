"""What the grader knows and the worker does not: the drawn sizes, the same inputs again, and the expected outputs."""

from __future__ import annotations

import functools
import hashlib
import math
import random
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch

from kernelpath.course.inputs import PLAIN, InputMode, misalignments, serves_vectors
from kernelpath.course.inputs import generate_inputs as generate_inputs
from kernelpath.course.problem import Case
from kernelpath.course.spec import Exercise
from kernelpath.work import tensors

Magnitudes = Callable[[], list[torch.Tensor]]

SMALL = 0.25
"""The share of the largest case's bytes up to which a case is run a third time."""


def derive(seed: int, *path: object) -> int:
    """A seed for one purpose, fixed by the run's seed."""
    return int.from_bytes(hashlib.blake2b(repr((seed, path)).encode(), digest_size=6).digest(), "big")


def drawn_cases(exercise: Exercise, seed: int) -> list[Case]:
    """One further case: the largest declared one with every size of `vary` drawn between a half and the whole of it."""
    if not exercise.vary:
        return []
    rng = random.Random(derive(seed, "sizes"))
    case = dict(exercise.largest)
    for name in exercise.vary:
        case[name] = rng.randint(max(1, case[name] // 2), case[name])
    return [case]


def placements(exercise: Exercise, drawn: Sequence[Sequence[Any]], seed: int = 0) -> list[tuple[int, InputMode]]:
    """Which cases are run a third time, and which of their tensors are misaligned there: each alone, and all of them.

    They are the small ones: what is kept from a call and must not be shows at any size that comes again. The largest of
    them that 16-byte accesses can serve is run with every tensor misaligned in turn.
    drawn: the inputs of each case, of those that are declared first. seed: of how many bytes they are misaligned by.
    """
    sizes = [exercise.compulsory_bytes(**case) for case in exercise.cases]
    small = [index for index, size in enumerate(sizes) if size <= SMALL * max(sizes)]
    small.sort(key=lambda index: -sizes[index])
    varieties = misalignments(exercise, drawn[0]) or [PLAIN]
    runs = [(index, varieties[position % len(varieties)]) for position, index in enumerate(small)]
    served = next((index for index in small if serves_vectors(drawn[index])), None)
    runs += [(served, one) for one in varieties if served is not None and (served, one) not in runs]
    return [
        (index, replace(variety, offsets=derive(seed, "offsets", position)) if variety.misaligned else variety)
        for position, (index, variety) in enumerate(runs)
    ]


def expected_outputs(exercise: Exercise, inputs: Sequence[Any]) -> list[torch.Tensor]:
    """The reference's outputs for these inputs; on the CPU where the GPU's memory does not hold them."""
    try:
        return outputs_of(exercise.reference, inputs)
    except torch.OutOfMemoryError:
        torch.cuda.empty_cache()
        held = [value.cpu() if isinstance(value, torch.Tensor) else value for value in inputs]
        return outputs_of(exercise.reference, held)


def magnitudes_of(exercise: Exercise, inputs: Sequence[Any]) -> Magnitudes | None:
    """Return a function that computes `Problem.magnitudes` for these inputs once; None where the problem has none."""
    if exercise.problem.magnitudes is None:
        return None
    compute = exercise.problem.magnitudes
    return functools.cache(lambda: outputs_of(compute, inputs))


def outputs_of(reference: Callable[..., Any], inputs: Sequence[Any]) -> list[torch.Tensor]:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Attempting to run cuBLAS")  # in autograd's thread, where PyTorch then can
        truth = reference(*inputs)
    return list(truth) if isinstance(truth, tuple) else [truth]


def output_dtype(exercise: Exercise, inputs: Sequence[Any]) -> str | None:
    """The dtype that the first output must have: that of the first input, where the exercise does not say otherwise."""
    if exercise.problem.first_dtype:
        return exercise.problem.first_dtype
    first = next((tensors.dtype_name(value.dtype) for value in inputs if isinstance(value, torch.Tensor)), None)
    return first if first in exercise.tolerance else None


class NoTensor(Exception):
    """What was sent as a tensor cannot be one: something other than the worker's own code sent it."""


def tensor_of(dtype: str, shape: Sequence[int], content: bytes, device: str) -> torch.Tensor:
    """The tensor that was sent as dtype, shape and bytes. Raises NoTensor if they do not fit together."""
    (tensor,) = tensors_of_one_dtype(dtype, [shape], [content], device)
    return tensor


def tensors_of_one_dtype(
    dtype: str, shapes: Sequence[Sequence[int]], contents: Sequence[bytes], device: str
) -> list[torch.Tensor]:
    """As `tensor_of` for each, with one transfer. They are views of one tensor."""
    kind = getattr(torch, dtype, None)
    for shape, content in zip(shapes, contents, strict=True):
        if not isinstance(kind, torch.dtype) or len(shape) > 64 or min(shape, default=0) < 0:
            raise NoTensor(dtype)
        if math.prod(shape) * kind.itemsize != len(content):
            raise NoTensor(f"{shape} in {len(content)} bytes")
    sizes = [math.prod(shape) for shape in shapes]
    whole = tensors.from_bytes(dtype, [sum(sizes)], b"".join(contents), device)
    return [piece.view(tuple(shape)) for piece, shape in zip(whole.split(sizes), shapes, strict=True)]
