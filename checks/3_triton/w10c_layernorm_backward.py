"""LayerNorm backward: row and column gradients in one pass.

Week 10. dx from two sums along each row; dweight and dbias are sums down each column, in two stages.
"""

from collections.abc import Sequence
from typing import Any

import torch

from kernelpath.course import sweeps
from kernelpath.course.problems import layernorm_backward
from kernelpath.course.spec import Exercise, Traffic


def gradients_like_their_tensors(inputs: Sequence[Any], outputs: Sequence[torch.Tensor]) -> str | None:
    """An optimizer adds dweight to weight: it has its dtype."""
    for name, gradient in zip(("dweight", "dbias"), outputs[1:], strict=True):
        if gradient.dtype != inputs[1].dtype:
            told, due = (str(tensor.dtype).removeprefix("torch.") for tensor in (gradient, inputs[1]))
            return f"{name} has dtype {told}, and its vector {due}"
    return None


EXERCISE = Exercise(
    entry="layernorm_backward",
    problem=layernorm_backward.PROBLEM,
    bench={"rows": 16_384, "columns": 8192, "dtype": "bfloat16"},  # three matrices of 256 MiB
    sweep=tuple(case for case in sweeps.rows() if case["columns"] <= 32_768),
    baseline=layernorm_backward.operator,
    min_speedup=1.6,  # on an H200 the reference 2.4, Liger's way 1.8
    # Sums that every row adds to memory (Triton's fifth tutorial) make it 2.7.
    # Triton lays out the scratch of a reduction down the columns; that of 3.6 has 5 wavefronts per request.
    traffic=Traffic(sectors=1.3, bytes=2.8, edges=None),
    check=gradients_like_their_tensors,
)
