"""Regression gate: find changes that made a kernel slower.

Week 16. A gate for continuous integration judges hundreds of changes of kernels, on machines with the troubles of
shared ones. The machines are simulated, with or without a GPU. Graded are the gate's false alarms, and the slowdowns
that it misses.
"""

from collections.abc import Sequence
from typing import Any

import torch

from kernelpath.course.labs.ci_machine import SYMPTOMS, CiMachine, most_compatible
from kernelpath.course.problems import regression_gate
from kernelpath.course.spec import Exercise

# The rates that the statement allows. A rate is rejected if a gate with this rate has as many errors in less than
# CHANCE of all gradings, so a right gate is never rejected by a seed.
FALSE_ALARMS = 0.01
MISSED = 0.05

CHANCE = 1e-6


def complaint(inputs: Sequence[Any], outputs: Sequence[torch.Tensor]) -> str | None:
    """Return the rate that the statement does not allow, and the machine's troubles."""
    machine: CiMachine = inputs[0]
    decisions = outputs[0].tolist()
    if not set(decisions) <= {0, 1}:
        return None  # the comparison of the values says so
    alarms = [index for index, decision in enumerate(decisions) if decision]
    slower = {index for index, change in enumerate(machine.changes) if change.ratio > 1}
    harmless_count = len(machine.changes) - len(slower)
    false_alarms = [index for index in alarms if index not in slower]
    most_alarms = most_compatible(harmless_count, FALSE_ALARMS, CHANCE)
    missed = len(slower) - (len(alarms) - len(false_alarms))
    most_missed = most_compatible(len(slower), MISSED, CHANCE)
    if len(false_alarms) > most_alarms:
        faster = sum(machine.changes[index].ratio < 1 for index in false_alarms)
        of_faster = f" ({faster} of them made the kernel faster)" if faster else ""
        problem = f"{len(false_alarms)} of {harmless_count} harmless changes were reported{of_faster}"
        allowed = f"{100 * FALSE_ALARMS:.0f}% may be, by chance up to {most_alarms}"
    elif missed > most_missed:
        problem = f"{missed} of {len(slower)} slowdowns of 2% were missed"
        allowed = f"{100 * MISSED:.0f}% may be, by chance up to {most_missed}"
    else:
        return None
    return f"{problem}; {allowed}, {_describe_troubles(machine)}"


def _describe_troubles(machine: CiMachine) -> str:
    """Return the troubles of the machine, as the rest of a sentence."""
    troubles = {change.troubles for change in machine.changes}
    if len(troubles) > 1:
        return "over machines with each of the troubles, with all, and with none"
    (names,) = troubles
    if not names:
        return "on the machine that has no troubles"
    return "on a machine with all troubles" if len(names) > 1 else f"on a machine where {SYMPTOMS[names[0]]}"


EXERCISE = Exercise(entry="judge", problem=regression_gate.PROBLEM, kind="lab", check=complaint)
