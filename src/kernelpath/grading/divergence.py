"""Limit the idle lanes of warps, and name the line where most lanes are idle."""

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

In a smaller case, the last lanes that still work may be most of it, since no other work is left to join.
"""


USEFUL = 2.0
"""The most lane instructions that an operation of the case takes, with all overhead.

Honest kernels of divergence take 0.9 to 1.8. More are of no use, and would hide idle lanes in the average.
"""


def check_case(exercise: Exercise, case: Case, lines: Sequence[LineInstructions]) -> Finding | None:
    """Return a finding where too few lanes are active in the average instruction of a case."""
    if exercise.active_lanes is None:
        return None
    if exercise.compulsory_bytes(**case) < LARGE * exercise.compulsory_bytes(**exercise.largest):
        return None
    useful = USEFUL * exercise.flops(**case) if exercise.flops else math.inf
    return check_active_lanes(lines, exercise.active_lanes, case, useful)


def check_active_lanes(
    lines: Sequence[LineInstructions], limit: float, case: Case, useful: float = math.inf
) -> Finding | None:
    """Return a finding where the average over all instructions of all launches is below the limit.

    It is one average, since a warp pays for each instruction alike.

    Args:
        lines: The counters by line.
        limit: The average number of active lanes that is required.
        case: The case, for the message.
        useful: The lane instructions that count, at most. The excess is subtracted as if full warps had executed it.
    """
    instructions: float = sum(line.instructions for line in lines)
    active: float = sum(line.active_lanes for line in lines)
    excess = max(0.0, active - useful)
    active -= excess
    instructions -= excess / LANES
    if active >= limit * instructions:
        return None
    most_idle_line = max(lines, key=lambda line: line.idle)
    most_divergent_line = max(lines, key=lambda line: line.divergent_branches)
    where = f"{words.line(most_idle_line.line)} ({most_idle_line.active:.3g} active)"
    cause = (
        f"at {arguments(case)}: {active / instructions:.3g} of {LANES} lanes are active in the average instruction,"
        f" {limit:.3g} are required; most are idle in {where}"
    )
    if excess:
        cause += "; instructions that the work does not take are left out"
    if most_divergent_line.divergent_branches:
        cause += f", and they diverge in {words.line(most_divergent_line.line)}"
    return Finding(Verdict.DIVERGENT, cause, most_idle_line.file, most_idle_line.line)
