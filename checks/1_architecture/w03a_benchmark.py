"""Benchmark: a timer that convinces a skeptic.

Week 3. The timer is tried on devices that fool naive timers: launches return at once, the first calls are slow, calls
differ, and some are interrupted. The devices are simulated, with or without a GPU, and have a clock of their own, so a
busy machine cannot fail a timer.
"""

from collections.abc import Sequence
from typing import Any

import torch

from kernelpath.course.labs.timer import Workload, symptom
from kernelpath.course.problems import timer
from kernelpath.course.spec import Exercise
from kernelpath.grading import compare


def complaint(inputs: Sequence[Any], outputs: Sequence[torch.Tensor]) -> str | None:
    """The first quartile that is wrong, of which device, and what it is a sign of."""
    work: Workload = inputs[0].work
    wrong = compare.mismatches(outputs[0], timer.reference(*inputs), timer.PROBLEM.tolerance["float64"]).tolist()
    if not any(wrong):
        return None
    place = wrong.index(True)
    found, expected = outputs[0].tolist(), work.quartiles
    name = ("lower quartile", "median", "upper quartile")[place]
    said = f"{name} {1e6 * found[place]:,.1f} µs, expected {1e6 * expected[place]:,.1f} µs within 4%"
    return f"{said}, on the device {work.described}: {symptom(work, found, place)}"


EXERCISE = Exercise(entry="quartiles", problem=timer.PROBLEM, kind="lab", check=complaint)
