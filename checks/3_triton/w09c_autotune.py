"""Autotune: a configuration for each size, found once.

Week 9. Triton's own autotuner, with the learner's configurations, key and pruning, on a simulated GPU that answers with
the times that an H200 recorded for every configuration of a space. Graded on the results, on what is tuned twice, on
the time that tuning takes, and on the time of the launches against an exhaustive search.
"""

from collections.abc import Sequence
from typing import Any

import torch

from kernelpath.course.labs.recorded import BUDGET_SECONDS, RecordedGpu
from kernelpath.course.problems import autotune
from kernelpath.course.spec import Exercise


def complaint(inputs: Sequence[Any], outputs: Sequence[torch.Tensor]) -> str | None:
    """What the ledger says, in words."""
    gpu: RecordedGpu = inputs[0]
    wrong, again, over, slower = outputs[0].tolist()
    spent = gpu.spent
    if wrong:
        return f"{wrong} of {len(gpu.requests)} results are wrong; {spent.wrong}"
    if again:
        sizes = "1 size was" if again == 1 else f"{again} sizes were"
        return f"{sizes} tuned twice, the first {spent.again}: something in the key differs from call to call"
    if over:
        told = f"{spent.compiled} compilations and {spent.measured} measurements took {spent.seconds:,.0f} s"
        return (
            f"{told} of the {BUDGET_SECONDS:.0f} s that tuning may take: fewer configurations, or sizes that share one"
        )
    if slower:
        worst = max(range(len(gpu.requests)), key=lambda index: spent.slower[index])
        times = f"{spent.slower[worst]:.2f} times as long as the best configuration"
        return (
            f"launches take {slower} % longer than with the best configuration for each size (5 % may be); "
            f"{gpu.requests[worst]} took {times}, with {gpu.said(spent.chosen[worst])}"
        )
    return None


EXERCISE = Exercise(entry="serve", problem=autotune.PROBLEM, kind="lab", check=complaint)
