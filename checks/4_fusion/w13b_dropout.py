"""Dropout: regenerate the mask from a counter instead of storing it.

Week 13. out = x / (1 - p) or 0, and dx from dout with the same mask, drawn from a seed and an offset.
"""

from collections.abc import Sequence
from itertools import product
from typing import Any

import torch

from kernelpath.course.problems import dropout
from kernelpath.course.spec import Exercise, Traffic


def masks(inputs: Sequence[Any], outputs: Sequence[torch.Tensor]) -> str | None:
    """The statement asks for the same mask in both passes, and for random ones."""
    return dropout.judged_masks(inputs[2], outputs)


EXERCISE = Exercise(
    entry="two_layers",
    problem=dropout.PROBLEM,
    aligned=True,
    bench={"n": 1 << 27, "p": 0.1, "dtype": "float32", "differ": "offset"},  # eight tensors of 512 MiB
    sweep=tuple(
        {"n": n, "p": 0.1, "dtype": dtype, "differ": "offset"}
        for dtype, n in product(("float32", "bfloat16"), (1 << 20, 1 << 24, 100_000_007, 1 << 27))
    ),
    baseline=dropout.operators,
    min_speedup=0.65,  # on an H200 the reference 1.28; a run of Philox for each number 0.75, and no mask in memory
    traffic=Traffic(sectors=1.3, bytes=1.1, edges=None),
    workspace=0.01,  # a mask of bytes would be 0.03 in float32
    check=masks,
)
