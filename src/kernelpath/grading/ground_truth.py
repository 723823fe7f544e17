"""Compute what the grader knows and the worker does not: random sizes, the same inputs again, and the expected
outputs.
"""

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

# The share of the largest case's bytes up to which a case is run a third time.
SMALL = 0.25


def derive_seed(seed: int, *path: object) -> int:
    """Return a seed for one purpose, which follows from the run's seed."""
    # A hash, so that the seeds of neighboring cases or rounds have nothing in common.
    return int.from_bytes(hashlib.blake2b(repr((seed, path)).encode(), digest_size=6).digest(), "big")


def generate_cases(exercise: Exercise, seed: int) -> list[Case]:
    """Return an additional case: the largest one with every size of `vary` drawn between half of it and all of it."""
    if not exercise.vary:
        return []
    # No submission can know these sizes in advance (C8 in docs/attacks.md).
    rng = random.Random(derive_seed(seed, "sizes"))
    case = dict(exercise.largest)
    for name in exercise.vary:
        # At least 1: half of a size of 1 would be an empty tensor.
        case[name] = rng.randint(max(1, case[name] // 2), case[name])
    return [case]


def placement_runs(exercise: Exercise, inputs: Sequence[Sequence[Any]], seed: int = 0) -> list[tuple[int, InputMode]]:
    """Return the cases that are run a third time, by index, and the alignment of their tensors.

    These are the small cases: what a submission wrongly keeps from a call shows at any size that comes again. In each,
    a tensor or all tensors are misaligned. The largest of them that 16-byte accesses can serve is run with every tensor
    misaligned in turn.

    Args:
        exercise: The exercise.
        inputs: The inputs of each declared case.
        seed: Determines by how many bytes tensors are misaligned.
    """
    sizes = [exercise.compulsory_bytes(**case) for case in exercise.cases]
    small = [index for index, size in enumerate(sizes) if size <= SMALL * max(sizes)]
    small.sort(key=lambda index: -sizes[index])
    varieties = misalignments(exercise, inputs[0]) or [PLAIN]
    runs = [(index, varieties[position % len(varieties)]) for position, index in enumerate(small)]
    vectorizable = next((index for index in small if serves_vectors(inputs[index])), None)
    if vectorizable is not None:
        runs += [(vectorizable, variety) for variety in varieties if (vectorizable, variety) not in runs]
    return [
        (index, replace(variety, offsets=derive_seed(seed, "offsets", position)) if variety.misaligned else variety)
        for position, (index, variety) in enumerate(runs)
    ]


def expected_outputs(exercise: Exercise, inputs: Sequence[Any]) -> list[torch.Tensor]:
    """Return the reference's outputs for these inputs. They are on the CPU where the GPU's memory does not hold
    them.
    """
    try:
        return list_outputs(exercise.reference, inputs)
    except torch.OutOfMemoryError:
        torch.cuda.empty_cache()
        cpu_inputs = [value.cpu() if isinstance(value, torch.Tensor) else value for value in inputs]
        return list_outputs(exercise.reference, cpu_inputs)


def magnitudes_of(exercise: Exercise, inputs: Sequence[Any]) -> Magnitudes | None:
    """Return a function that computes `Problem.magnitudes` for these inputs once; None where the problem has none."""
    if exercise.problem.magnitudes is None:
        return None
    compute = exercise.problem.magnitudes
    return functools.cache(lambda: list_outputs(compute, inputs))


def list_outputs(reference: Callable[..., Any], inputs: Sequence[Any]) -> list[torch.Tensor]:
    """Return the outputs of a reference as a list."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Attempting to run cuBLAS")  # a harmless warning from autograd's thread
        truth = reference(*inputs)
    return list(truth) if isinstance(truth, tuple) else [truth]


def output_dtype(exercise: Exercise, inputs: Sequence[Any]) -> str | None:
    """Return the dtype that the first output must have: the first input's, unless the exercise declares another."""
    if exercise.problem.first_dtype:
        return exercise.problem.first_dtype
    first = next((tensors.dtype_name(value.dtype) for value in inputs if isinstance(value, torch.Tensor)), None)
    return first if first in exercise.tolerance else None


class InvalidTensor(Exception):
    """The parts of a tensor that was sent do not fit together, so something other than the worker's code sent them."""


def decode_tensor(dtype: str, shape: Sequence[int], content: bytes, device: str) -> torch.Tensor:
    """Return the tensor that was sent as dtype, shape and bytes. Raises InvalidTensor."""
    (tensor,) = decode_tensors(dtype, [shape], [content], device)
    return tensor


def decode_tensors(
    dtype: str, shapes: Sequence[Sequence[int]], contents: Sequence[bytes], device: str
) -> list[torch.Tensor]:
    """Return several tensors of one dtype as views of one tensor, with one transfer. Raises InvalidTensor."""
    torch_dtype = getattr(torch, dtype, None)
    for shape, content in zip(shapes, contents, strict=True):
        # torch supports 64 dimensions. The shape comes from a process that is not trusted.
        if not isinstance(torch_dtype, torch.dtype) or len(shape) > 64 or min(shape, default=0) < 0:
            raise InvalidTensor(dtype)
        if math.prod(shape) * torch_dtype.itemsize != len(content):
            raise InvalidTensor(f"{shape} in {len(content)} bytes")
    sizes = [math.prod(shape) for shape in shapes]
    joined = tensors.from_bytes(dtype, [sum(sizes)], b"".join(contents), device)
    return [piece.view(tuple(shape)) for piece, shape in zip(joined.split(sizes), shapes, strict=True)]
