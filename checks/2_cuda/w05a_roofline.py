"""Roofline: predict the times of twelve operators.

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

# Columns: counts before what follows from them, the time under the roof before what binds it.
TOLD_FIRST = (0, 1, 2, 4, 3, 5)


def complaint(inputs: Sequence[Any], outputs: Sequence[torch.Tensor]) -> str | None:
    """The first operator that is wrong: its bytes first, then its operations, its time, what binds it."""
    wanted, machine, _ = inputs
    expected = roofline.reference(*inputs)
    wrong = compare.mismatches(outputs[0], expected, roofline.PROBLEM.tolerance["float64"])
    for column in TOLD_FIRST:
        rows = wrong[:, column].nonzero().flatten().tolist()
        if rows:
            row, what = rows[0], roofline.COLUMNS[column]
            which = f"{operators.told(wanted[row])} on {machine['name']}"
            told = said(what, wanted[row], machine, outputs[0][row, column].item(), expected[row, column].item())
            return f"{len(rows)} of {len(wanted)} operators are wrong. {which}: {told}"
    return None


def said(what: str, operator: operators.Operator, machine: operators.MachineModel, found: float, right: float) -> str:
    """What was found and what was expected, and what that is a sign of."""
    if what == "bound":
        named = {float(number): bound for number, bound in enumerate(roofline.BOUNDS)}
        taken = map(words.seconds, roofline.seconds_apart(operator, machine))
        apart = ", ".join(f"{one} {time}" for one, time in zip(roofline.BOUNDS, taken, strict=True))
        return f"bound by {named.get(found, found)}, expected {named[right]} ({apart})"
    sign = symptom(what, operator, machine, found)
    if "seconds" not in what:
        return f"{words.number(found, 6)} {what}, expected {words.number(right, 6)}{sign}"
    timed = times().get(operators.told(operator)) if machine == operators.MACHINES["H200"] else None
    beside = f", timed {words.seconds(timed)}" if timed else ""
    return f"{words.seconds(found)} {what.removeprefix('seconds ')}, expected {words.seconds(right)}{beside}{sign}"


def times() -> Mapping[str, float]:
    """Seconds of torch's own operators on an H200, as the week's notebook recorded them."""
    recorded = results.recordings(registry.course() / results.FOLDER / results.RECORDINGS).get("week05/operators")
    return recorded.value["seconds"] if recorded else {}


EXERCISE = Exercise(entry="roofline", problem=roofline.PROBLEM, kind="python", check=complaint)
