"""Layouts: shape and stride as functions.

Week 17. Six ways to place a matrix in memory, each as a CuTe layout; one case per layout and size.
"""

from collections.abc import Sequence
from typing import Any

import torch

from kernelpath.course.problems import layouts
from kernelpath.course.spec import Exercise


def complaint(inputs: Sequence[Any], outputs: Sequence[torch.Tensor]) -> str | None:
    """The function, the first coordinate that it places wrongly, and how many."""
    layout, matrix = inputs
    offsets, expected = outputs[0], layouts.reference(layout, matrix)
    wrong = (offsets != expected).nonzero().tolist()
    if not wrong:
        return None
    i, j = wrong[0]
    rows, columns = matrix.shape
    return (
        f"{layout}({rows}, {columns}) places ({i}, {j}) at offset {offsets[i, j]}, expected {expected[i, j]}; "
        f"{len(wrong):,} of {rows * columns:,} coordinates are wrong"
    )


EXERCISE = Exercise(entry="offsets", problem=layouts.PROBLEM, kind="python", check=complaint)
