"""Roofline: bytes, operations and times of twelve operators, before anyone has written them.

Week 5. Operators of sizes that are drawn, on four GPUs and on machines that nobody knows; and operators that were timed
on an H200, whose times stand beside the predictions.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from kernelpath import words
from kernelpath.course import registry
from kernelpath.course.labs import operators
from kernelpath.course.problems import roofline
from kernelpath.course.problems.roofline_mistakes import symptom
from kernelpath.course.spec import Exercise
from kernelpath.grading import compare
from kernelpath.show import results

COLUMNS = (
    (0, 0, "compulsory bytes"),
    (0, 1, "operations"),
    (1, None, "operations per byte"),
    (3, 0, "seconds under the roof"),
    (2, None, "bound"),
    (3, 1, "seconds with the launch"),
)
"""What is told first, and where it stands: the output, and its column."""


def complaint(inputs: Sequence[Any], outputs: Sequence[torch.Tensor]) -> str | None:
    """The first operator that is wrong: its bytes first, then its operations, its time, what binds it."""
    wanted, machine, _ = inputs
    expected = roofline.reference(*inputs)
    for place, column, what in COLUMNS:
        found, right = (one[place] if column is None else one[place][:, column] for one in (outputs, expected))
        tolerance = roofline.PROBLEM.tolerance["float64" if right.is_floating_point() else "int64"]
        wrong = compare.mismatches(found, right, tolerance).nonzero().flatten().tolist()
        if wrong:
            row = wrong[0]
            which = (
                f"{len(wrong)} of {len(wanted)} operators are wrong. {operators.told(wanted[row])}, {machine['name']}"
            )
            return f"{which}: {said(what, wanted[row], machine, found[row].item(), right[row].item())}"
    return None


def said(what: str, operator: operators.Operator, machine: operators.MachineModel, found: float, right: float) -> str:
    """What was found and what was expected, and what that is a sign of."""
    if what == "bound":
        return f"bound by {roofline.BOUNDS[int(found)]}, expected {roofline.BOUNDS[int(right)]}"
    if "seconds" not in what:
        return f"{words.number(found)} {what}, expected {words.number(right)}{symptom(what, operator, machine, found)}"
    timed = times().get(operators.told(operator)) if machine == operators.MACHINES["H200"] else None
    beside = f", timed {words.seconds(timed)}" if timed else ""
    where, sign = what.removeprefix("seconds "), symptom(what, operator, machine, found)
    return f"{words.seconds(found)} {where}, expected {words.seconds(right)}{beside}{sign}"


def times() -> Mapping[str, float]:
    """Seconds of torch's own operators on an H200, as the week's notebook recorded them."""
    recorded = results.recordings(registry.root() / results.FOLDER / results.RECORDINGS).get("week05/operators")
    return recorded.value["seconds"] if recorded else {}


EXERCISE = Exercise(entry="roofline", problem=roofline.PROBLEM, kind="python", check=complaint)
