"""LayerNorm: row statistics in registers, saved for the backward pass.

Week 10. y = (x - mean) * rstd * weight + bias along each row of a bfloat16 or float32 matrix, computed in float32.
"""

from collections.abc import Sequence
from typing import Any

import torch

from kernelpath.course import sweeps
from kernelpath.course.problems import layernorm
from kernelpath.course.spec import Exercise, Traffic


def statistics_in_float32(inputs: Sequence[Any], outputs: Sequence[torch.Tensor]) -> str | None:
    """What the backward pass multiplies with is not rounded to the dtype of x."""
    for name, kept in zip(("mean", "rstd"), outputs[1:], strict=True):
        if kept.dtype != torch.float32:
            return f"{name} has dtype {str(kept.dtype).removeprefix('torch.')}, and is kept in float32"
    return None


EXERCISE = Exercise(
    entry="layernorm",
    problem=layernorm.PROBLEM,
    bench={"rows": 16_384, "columns": 8192, "dtype": "bfloat16"},  # 512 MiB in and out, 9 times the L2 of an H200
    sweep=tuple(case for case in sweeps.rows() if case["columns"] <= 65_536),
    baseline=layernorm.unfused,
    min_speedup=10.0,  # on an H200 the reference kernel reaches 19.6, and PyTorch's operator 0.59 of that
    # A row per program asks L1 for weight and bias as often as memory for x and y: 2.0. Reading x again makes it 2.5.
    traffic=Traffic(sectors=1.3, bank_conflicts=1.0, bytes=2.2, edges=None),
    check=statistics_in_float32,
)
