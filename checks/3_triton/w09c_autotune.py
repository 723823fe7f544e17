"""Autotune: find a configuration once for each size.

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
from kernelpath.verdict import Finding, Verdict


def complaint(inputs: Sequence[Any], outputs: Sequence[torch.Tensor]) -> Finding | None:
    """What the ledger says, in words: results that are wrong, or right ones that took too long."""
    gpu: RecordedGpu = inputs[0]
    wrong, again, over, slower = outputs[0].tolist()
    spent = gpu.spent
    if wrong:
        return Finding(Verdict.WRONG_VALUES, f"{wrong} of {len(gpu.requests)} results are wrong; {spent.wrong}")
    told = ""
    if again:
        sizes = "1 size was" if again == 1 else f"{again} sizes were"
        told = (
            f"{sizes} tuned twice, the first {spent.first_remeasured}: something in the key differs from call to call"
        )
    elif over:
        took = f"{spent.compiled} compilations and {spent.measured} measurements took {spent.seconds:,.0f} s"
        most = f"{BUDGET_SECONDS:.0f} s are allowed"
        told = f"tuning is too slow: {took}, {most}: try fewer configurations, or let more sizes share one"
    elif slower:
        worst = max(range(len(gpu.requests)), key=lambda index: spent.slower[index])
        times = f"{spent.slower[worst]:.2f} times as long as the best configuration"
        told = (
            f"launches take {slower}% longer than with the best configuration for each size, 5% are allowed; "
            f"{gpu.requests[worst]} took {times}, with {gpu.describe(spent.chosen[worst])}"
        )
    return Finding(Verdict.TOO_SLOW, told) if told else None


EXERCISE = Exercise(entry="serve", problem=autotune.PROBLEM, kind="lab", check=complaint)
