"""Quantize: largest magnitude, scale and conversion to 8 bits in one pass, for the GEMMs of this week.

Week 11. A bfloat16 matrix becomes int8 or float8 e4m3, with a float32 scale for each row, for groups of 1 x 128 values,
or for blocks of 128 x 128.
"""

from collections.abc import Sequence
from typing import Any

import torch

from kernelpath.course.problems import quantize
from kernelpath.course.spec import Exercise, Traffic


def dtypes(inputs: Sequence[Any], outputs: Sequence[torch.Tensor]) -> str | None:
    """The format is an argument, so the dtype of q differs from case to case."""
    return quantize.judged_dtype(inputs, outputs)


EXERCISE = Exercise(
    entry="quantize",
    problem=quantize.PROBLEM,
    bench=quantize.case(16_384, 8192, quantize.E4M3, "group"),  # 0.4 GB
    sweep=tuple(
        quantize.case(16_384, 8192, to, scales)
        for to, scales in (
            (quantize.INT8, "row"),
            (quantize.E4M3, "row"),
            (quantize.E4M3, "block"),
            (quantize.INT8, "group"),
        )
    ),
    baseline=quantize.operators,
    min_speedup=6.0,  # the reference has 14 on an H200: the operators read and write x in float32 many times
    requires=(8, 9),  # the first with float8
    arch="sm_90a",
    # x read once and q written once: a second pass over x would be 1.67 times the compulsory bytes
    traffic=Traffic(sectors=1.3, bytes=1.3, edges=None),
    check=dtypes,
)
