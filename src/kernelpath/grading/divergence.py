"""How many lanes of a warp have to be active, and the line where most are idle."""

from __future__ import annotations

from collections.abc import Sequence

from kernelpath import words
from kernelpath.course.problem import Case, arguments
from kernelpath.course.spec import Exercise
from kernelpath.lines import LANES, LineInstructions
from kernelpath.verdict import Complaint, Verdict

LARGE = 0.5
"""The share of the largest case's bytes from which on a case is limited.

In a smaller one the last lanes at work, which no other work is left to join, may be most of it.
"""


def complaint(exercise: Exercise, case: Case, lines: Sequence[LineInstructions]) -> Complaint | None:
    """Whether too few lanes are active in the average instruction of a case."""
    if exercise.active_lanes is None:
        return None
    if exercise.compulsory_bytes(**case) < LARGE * exercise.compulsory_bytes(**exercise.largest):
        return None
    return divergence_complaint(lines, exercise.active_lanes, case)


def divergence_complaint(lines: Sequence[LineInstructions], limit: float, case: Case) -> Complaint | None:
    """One average over all instructions of all launches, as a warp pays for each of them alike."""
    instructions = sum(line.instructions for line in lines)
    active = sum(line.active_lanes for line in lines)
    if active >= limit * instructions:
        return None
    worst = max(lines, key=lambda line: line.idle)
    parted = max(lines, key=lambda line: line.divergent_branches)
    cause = (
        f"at {arguments(case)}: {active / instructions:.3g} of {LANES} lanes are active in the average instruction,"
        f" {limit:.3g} are required; most are idle in {words.line(worst.line)} ({worst.active:.3g} active)"
    )
    if parted.divergent_branches:
        cause += f", and they part in {words.line(parted.line)}"
    return Complaint(Verdict.DIVERGENT, cause, worst.file, worst.line)
