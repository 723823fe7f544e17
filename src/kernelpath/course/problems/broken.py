"""Several operators as one problem: the first argument names the kernel, which computes an operator of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from kernelpath.course.problem import Case, Problem, Tolerance


def broken_kernels(
    operators: Mapping[str, Problem], cases: Sequence[Case], tolerance: Mapping[str, Tolerance]
) -> Problem:
    """Return the problem of an exercise of the kind "repair".

    Args:
        operators: What each kernel computes.
        cases: The cases. Their argument `kernel` is a key of `operators`, the others are those of its problem.
        tolerance: The tolerance of all kernels, by the dtype of the output.
    """

    def inputs(rng: torch.Generator, kernel: str, **case: Any) -> tuple[Any, ...]:
        return (kernel, *operators[kernel].inputs(rng, **case))

    def reference(kernel: str, *arguments: Any) -> Any:
        return operators[kernel].reference(*arguments)

    def compulsory_bytes(kernel: str, **case: Any) -> int:
        return operators[kernel].compulsory_bytes(**case)

    return Problem(
        inputs=inputs,
        cases=cases,
        reference=reference,
        tolerance=tolerance,
        compulsory_bytes=compulsory_bytes,
        extreme=_plain,
        unordered=_plain,
    )


def _plain(rng: torch.Generator, kernel: str, *arguments: Any) -> None:
    """Leave the values as they are: the faults are in the order of accesses and in bounds, not in arithmetic."""
