"""The largest share of its tolerance that right float32 arithmetic uses, by exercise and order of additions.

python benchmarks/orders.py [--seeds N] [--first SEED] [--only NAME ...]

No kernel runs. Each reference, which computes in float64, is evaluated in float32 instead: sums are trees over blocks
of terms, added one after another, and in the approximate variants exp is exp2 of a scaled argument and a quotient a
product with a reciprocal. All cases are compared by the grader's own functions, with plain and with extreme inputs,
before anything is rounded to 16 bits on the way. A share above 1 is a right result that is rejected, and exit status 1.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map

from kernelpath.course import registry
from kernelpath.course.inputs import EXTREME, PLAIN, generate_inputs, moves, tensors_of
from kernelpath.course.problem import EXACT, Case
from kernelpath.course.spec import Exercise
from kernelpath.grading import compare
from kernelpath.grading.ground_truth import (
    derive_seed,
    expected_outputs,
    generate_cases,
    list_outputs,
    magnitudes_of,
    output_dtype,
)
from kernelpath.work.tensors import dtype_name

Tensor = torch.Tensor

aten = torch.ops.aten


class Variant(NamedTuple):
    """The terms of a block, whose sum is a tree, and whether exponentials and quotients are approximate."""

    block: int
    approximate: bool


VARIANTS: Mapping[str, Variant] = {
    "one by one": Variant(1, False),
    "blocks of 32": Variant(32, True),
    "blocks of 1024": Variant(1024, False),
    "a tree": Variant(1 << 30, True),
}

# The exercises that are about the order of additions: terms one by one are wrong.
ORDERED = {"reduction": ("one by one",)}

# The outputs that are float32, whatever the dtype of the first output is.
FLOAT32_OUTPUTS = {"mean", "rstd", "lse", "loss", "state", "amax", "m", "v", "kept"}


def sum_in_blocks(terms: Tensor, block: int) -> Tensor:
    """Return the sums along the last axis in float32: a tree over each block of terms, one block after another."""
    if terms.shape[-1] == 0:
        return terms.sum(-1)
    width = 1 << (min(block, terms.shape[-1]) - 1).bit_length()
    partial = torch.nn.functional.pad(terms, (0, -terms.shape[-1] % width)).unflatten(-1, (-1, width))
    while partial.shape[-1] > 1:
        left, right = partial.chunk(2, dim=-1)
        partial = left + right
    # torch.cumsum adds in float64.
    with np.errstate(all="ignore"):
        running = np.add.accumulate(partial[..., 0].numpy(), axis=-1, dtype=np.float32)
    return torch.from_numpy(running[..., -1].copy())


class Float32Arithmetic(TorchDispatchMode):
    """Evaluate operators on float64 tensors in float32, with sums in blocks."""

    def __init__(self, variant: Variant) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.variant = variant
        self.replaced: Mapping[Any, Callable[..., Tensor]] = {
            aten.sum.default: self._sum,
            aten.sum.dim_IntList: self._sum,
            aten.mean.default: self._mean,
            aten.mean.dim: self._mean,
            aten.mm.default: self._multiply,
            aten.bmm.default: self._multiply,
            aten.mv.default: lambda a, x: self._multiply(a, x[:, None])[:, 0],
            aten._softmax.default: self._softmax,
            aten.logsumexp.default: self._logsumexp,
            aten.exp.default: self._exp,
            aten.div.Tensor: self._divide,
            aten.rsqrt.default: lambda x: 1 / x.sqrt(),
        }

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        args, kwargs = tree_map(_narrowed, (args, kwargs or {}))
        is_float = all(value.dtype == torch.float32 for value in args if isinstance(value, Tensor))
        return (self.replaced.get(func, func) if is_float else func)(*args, **kwargs)

    def _sum(self, x: Tensor, dim: Sequence[int] | None = None, keepdim: bool = False, **_: Any) -> Tensor:
        axes = sorted(axis % x.dim() for axis in dim) if dim else list(range(x.dim()))
        others = [axis for axis in range(x.dim()) if axis not in axes]
        total = sum_in_blocks(x.permute(*others, *axes).flatten(len(others)), self.variant.block)
        for axis in axes if keepdim else ():
            total = total.unsqueeze(axis)
        return total

    def _mean(self, x: Tensor, dim: Sequence[int] | None = None, keepdim: bool = False, **_: Any) -> Tensor:
        total = self._sum(x, dim, keepdim)
        return total / (x.numel() / max(1, total.numel()))

    def _multiply(self, a: Tensor, b: Tensor) -> Tensor:
        """Multiply matrices: fused multiply-adds within a block of k, and one block after another."""
        k = a.shape[-1]
        step = min(self.variant.block, k) or 1
        total = torch.zeros(*a.shape[:-1], b.shape[-1])
        for start in range(0, k, step):
            part = torch.zeros_like(total)
            for index in range(start, min(start + step, k)):
                part = (part.double() + a[..., index, None].double() * b[..., None, index, :].double()).float()
            total = total + part
        return total

    def _exponentials(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return exponentials along the last axis, their sum, and the maximum that was subtracted."""
        top = x.amax(-1, keepdim=True)
        top = torch.where(top == -math.inf, 0.0, top)
        exponentials = self._exp(x - top)
        return exponentials, sum_in_blocks(exponentials, self.variant.block)[..., None], top

    def _softmax(self, x: Tensor, dim: int, half_to_float: bool = False) -> Tensor:
        exponentials, total, _ = self._exponentials(x.movedim(dim, -1))
        return self._divide(exponentials, total).movedim(-1, dim)

    def _logsumexp(self, x: Tensor, dim: Sequence[int], keepdim: bool = False) -> Tensor:
        _, total, top = self._exponentials(x.movedim(dim[0], -1))
        lse = (top + total.log()).movedim(-1, dim[0])
        return lse if keepdim else lse.squeeze(dim[0])

    def _exp(self, x: Tensor) -> Tensor:
        return torch.exp2(x * torch.tensor(math.log2(math.e))) if self.variant.approximate else x.exp()

    def _divide(self, a: Tensor, b: Tensor) -> Tensor:
        return a * (1 / b) if self.variant.approximate else a / b


def _narrowed(value: Any) -> Any:
    if isinstance(value, Tensor) and value.dtype == torch.float64:
        return value.float()
    return torch.float32 if value is torch.float64 else value


def rounded(exercise: Exercise, inputs: Sequence[Any], outputs: Sequence[Tensor]) -> list[Tensor]:
    """Return the outputs in the dtypes of the statement."""
    first = output_dtype(exercise, inputs) or next(iter(exercise.tolerance))
    names = exercise.outputs
    outputs_per_name = max(1, len(outputs) // len(names))
    dtypes = ["float32" if names[i // outputs_per_name] in FLOAT32_OUTPUTS else first for i in range(len(outputs))]
    return [
        output.to(getattr(torch, dtype)) if output.is_floating_point() else output
        for output, dtype in zip(outputs, dtypes, strict=True)
    ]


def largest_share(exercise: Exercise, inputs: Sequence[Any], outputs: Sequence[Tensor]) -> float:
    """Return the largest share of its tolerance that an element uses; infinity for another NaN or infinity."""
    magnitudes = magnitudes_of(exercise, inputs)
    largest = 0.0
    for index, (output, truth) in enumerate(zip(outputs, expected_outputs(exercise, inputs), strict=True)):
        tolerance = exercise.tolerance[dtype_name(output.dtype)]
        if not truth.is_floating_point() or tolerance == EXACT:
            continue
        magnitude = None
        if magnitudes is not None and bool(compare.mismatches(output, truth, tolerance).any()):
            magnitude = magnitudes()[index]
        error = (output.to(truth.dtype) - truth).abs()
        used = error / compare.allowed_errors(truth, tolerance, magnitude=magnitude)
        used = torch.where(torch.isfinite(truth) & (error > 0), used, 0.0)
        largest = max(largest, float(used.nan_to_num(nan=math.inf).max()) if used.numel() else 0.0)
    return largest


def cases_with_modes(exercise: Exercise, seed: int) -> Iterator[tuple[Case, tuple[Any, ...]]]:
    cases = [*exercise.cases, *generate_cases(exercise, seed), *exercise.limits]
    for index, case in enumerate(cases):
        for position, mode in enumerate((PLAIN, EXTREME)):
            yield case, generate_inputs(exercise, case, derive_seed(seed, position * len(cases) + index), "cpu", mode)


def survey(exercise: Exercise, seeds: Sequence[int]) -> dict[str, float]:
    """Return the largest share of the tolerance for each variant."""
    shares = dict.fromkeys(VARIANTS, 0.0)
    for seed in seeds:
        for _, inputs in cases_with_modes(exercise, seed):
            for name, variant in VARIANTS.items():
                with Float32Arithmetic(variant):
                    outputs = list_outputs(exercise.reference, inputs)
                share = largest_share(exercise, inputs, rounded(exercise, inputs, outputs))
                shares[name] = max(shares[name], share)
    return shares


def is_surveyed(exercise: Exercise) -> bool:
    """Return whether an exercise has float sums of its own. Sums of int8 are exact, and not those of float32."""
    if not exercise.is_kernel or moves(exercise) or exercise.problem.settled is not None:
        return False
    inputs = generate_inputs(exercise, exercise.cases[0], 0, "cpu")
    return all(value.dtype != torch.int8 for value in tensors_of(inputs))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--first", type=int, default=1)
    parser.add_argument("--only", nargs="+", default=[], help="names of exercises")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    print(f"{'exercise':28}" + "".join(f"{name:>16}" for name in VARIANTS))
    rejected = 0
    for item in registry.exercises():
        if arguments.only and item.name not in arguments.only:
            continue
        exercise = registry.load(item)
        if not is_surveyed(exercise):
            continue
        shares = survey(exercise, range(arguments.first, arguments.first + arguments.seeds))
        rejected += sum(share > 1 for name, share in shares.items() if name not in ORDERED.get(item.name, ()))
        print(f"{item.name:28}" + "".join(f"{share:16.3f}" for share in shares.values()), flush=True)
    sys.exit(rejected > 0)


if __name__ == "__main__":
    main()
