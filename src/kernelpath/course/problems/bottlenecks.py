"""The bottlenecks of a step: what a simulated training step would gain by each of five changes, from its trace."""

from __future__ import annotations

import random

import torch

from kernelpath.course.problem import Problem, Tolerance
from kernelpath.course.traces import Facts, TraceFile, replay

# The numbers of operators of a step.
SIZES = (5, 23, 80)


def inputs(rng: torch.Generator, profile: str, operators: int) -> tuple[TraceFile]:
    """Return the trace of a simulated step.

    Args:
        rng: The generator.
        profile: What takes most of the time, one of replay.PROFILES.
        operators: The number of operators.
    """
    python_rng = random.Random(int(torch.randint(1 << 31, (), generator=rng, device=rng.device)))
    return (TraceFile("trace.json", replay.simulate(python_rng, profile, operators)),)


def reference(trace: TraceFile) -> Facts:
    return replay.of(trace)


PROBLEM = Problem(
    inputs=inputs,
    cases=tuple({"profile": profile, "operators": operators} for profile in replay.PROFILES for operators in SIZES),
    reference=reference,
    # The trace has nanoseconds, and a step takes at least 50 µs of at most 1,000 times.
    tolerance={"float64": Tolerance(rtol=1e-4, atol=0.0)},
    compulsory_bytes=lambda profile, operators: 0,
)
