"""How many lanes of a warp have to be active, and the line where most are idle."""

from __future__ import annotations

import math
from collections.abc import Sequence

from kernelpath import words
from kernelpath.course.problem import Case, arguments
from kernelpath.course.spec import Exercise
from kernelpath.line_counters import LANES, LineInstructions
from kernelpath.verdict import Finding, Verdict

LARGE = 0.5
"""The share of the largest case's bytes from which on a case is limited.

In a smaller one the last lanes at work, which no other work is left to join, may be most of it.
"""


USEFUL = 2.0
"""The most lanes' instructions that an operation of the case takes, with all that surrounds it.

Honest kernels of divergence take 0.9 to 1.8. More is no use, and hides in the average what is idle.
"""


def check_case(exercise: Exercise, case: Case, lines: Sequence[LineInstructions]) -> Finding | None:
    """Whether too few lanes are active in the average instruction of a case."""
    if exercise.active_lanes is None:
        return None
    if exercise.compulsory_bytes(**case) < LARGE * exercise.compulsory_bytes(**exercise.largest):
        return None
    useful = USEFUL * exercise.flops(**case) if exercise.flops else math.inf
    return check_active_lanes(lines, exercise.active_lanes, case, useful)


def check_active_lanes(
    lines: Sequence[LineInstructions], limit: float, case: Case, useful: float = math.inf
) -> Finding | None:
    """One average over all instructions of all launches, as a warp pays for each of them alike.

    useful: how many lanes' instructions count at most; as many fewer instructions are taken to be executed.
    """
    instructions: float = sum(line.instructions for line in lines)
    active: float = sum(line.active_lanes for line in lines)
    useless = max(0.0, active - useful)
    active, instructions = active - useless, instructions - useless / LANES
    if active >= limit * instructions:
        return None
    worst = max(lines, key=lambda line: line.idle)
    parted = max(lines, key=lambda line: line.divergent_branches)
    cause = (
        f"at {arguments(case)}: {active / instructions:.3g} of {LANES} lanes are active in the average instruction,"
        f" {limit:.3g} are required; most are idle in {words.line(worst.line)} ({worst.active:.3g} active)"
    )
    if useless:
        cause += "; instructions that the work does not take are left out"
    if parted.divergent_branches:
        cause += f", and they part in {words.line(parted.line)}"
    return Finding(Verdict.DIVERGENT, cause, worst.file, worst.line)
