"""A profile report: what limits a recorded training step, from a Chrome trace and the counters of its kernels."""

from __future__ import annotations

import random
import sys
from collections.abc import Sequence

import torch

from kernelpath.course.problem import Case, Problem, Tolerance
from kernelpath.course.traces import Facts, TraceFile, recordings, report
from kernelpath.course.traces.variants import OF_A_STEP, apply_changes

RECORDING = "block"
ALL = "all"
FEW = 37


def max_kernels(kernels: int | str) -> int:
    """Return the number of kernels that a case keeps of a recording: "all", or so many."""
    return sys.maxsize if kernels == ALL else int(kernels)


def inputs(rng: torch.Generator, recording: str, variant: str, kernels: int | str) -> tuple[TraceFile, TraceFile]:
    """Return the trace, of at most so many kernels, and the counters of a recording, both varied."""
    python_rng = random.Random(int(torch.randint(1 << 31, (), generator=rng, device=rng.device)))
    files = (recordings.TRACE, recordings.COUNTERS)
    contents = apply_changes(
        python_rng, OF_A_STEP[variant], max_kernels(kernels), *(recordings.read(recording, name) for name in files)
    )
    return tuple(TraceFile(*pair) for pair in zip(files, contents, strict=True))  # type: ignore[return-value]


def reference(trace: TraceFile, counters: TraceFile) -> Facts:
    return report.of(trace, counters)


def cases(recording: str) -> Sequence[Case]:
    """Return every variant of the course's recording of this name, or of a learner's in the folder of that path."""
    full_cases = [{"recording": recording, "variant": variant, "kernels": ALL} for variant in OF_A_STEP]
    return [*full_cases, {"recording": recording, "variant": "other times", "kernels": FEW}]


PROBLEM = Problem(
    inputs=inputs,
    cases=cases(RECORDING),
    reference=reference,
    # Sums and quotients of numbers that the files give with at least four digits. A unit, a percentage instead of a
    # share and a sum instead of a union are all further away.
    tolerance={"float64": Tolerance(rtol=1e-3, atol=0.0)},
    compulsory_bytes=lambda recording, variant, kernels: 0,
)
