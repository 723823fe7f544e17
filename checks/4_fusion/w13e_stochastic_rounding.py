"""Stochastic rounding: AdamW on bfloat16 parameters without float32 master weights.

Week 13. An update below half a unit in the last place is lost when it is rounded to the nearest, and kept on average
when it is rounded at random. The random bits come from a counter: seed, step and element.
"""

from collections.abc import Sequence
from typing import Any

import torch

from kernelpath.course.problems import stochastic_rounding
from kernelpath.course.spec import Exercise, Traffic


def rounding(inputs: Sequence[Any], outputs: Sequence[torch.Tensor]) -> str | None:
    """The statement requires unbiased rounding, independent of other elements, seeds and steps."""
    return stochastic_rounding.judged_rounding(inputs, outputs)


EXERCISE = Exercise(
    entry="two_replicas",
    problem=stochastic_rounding.PROBLEM,
    aligned=True,
    bench=stochastic_rounding.case(1 << 26),  # 2.9 GB
    sweep=tuple(stochastic_rounding.case(n) for n in (1 << 20, 1 << 24, 50_000_007)),
    baseline=stochastic_rounding.nearest,
    min_speedup=1.6,  # the reference has 3.1 on an H200: the baseline converts p and g in passes of their own
    requires=(8, 0),  # bfloat16
    deterministic=True,
    traffic=Traffic(sectors=1.3, bytes=1.1, edges=None),
    workspace=0.01,  # random numbers in memory would be 0.09 at 16 bits each
    check=rounding,
)
