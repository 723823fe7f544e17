"""Report ten facts about the longest launch of a recording, from the files of ncu, nsys, Perfetto and rocprofv3."""

from __future__ import annotations

import random

import torch

from kernelpath.course.problem import Problem, Tolerance
from kernelpath.course.problems.profile_report import ALL, FEW, RECORDING, max_kernels
from kernelpath.course.traces import Facts, TraceFile, chrome, facts, nsys, recordings, rocprof
from kernelpath.course.traces.variants import OF_A_FILE, apply_changes

ORDER = "another order"


def inputs(rng: torch.Generator, tool: str, variant: str, kernels: int | str) -> tuple[TraceFile, str]:
    """Return a varied file of at most so many launches, and the name of its tool."""
    python_rng = random.Random(int(torch.randint(1 << 31, (), generator=rng, device=rng.device)))
    recorded = (recordings.read(RECORDING, name) for name in (recordings.TRACE, recordings.COUNTERS))
    trace, counters = apply_changes(python_rng, OF_A_FILE[variant], max_kernels(kernels), *recorded)
    if tool == "ncu":
        return TraceFile("ncu.csv", counters), tool
    if tool == "perfetto":
        return TraceFile("trace.json", trace), tool
    timeline = chrome.read(trace)
    if tool == "nsys":
        return TraceFile("trace.sqlite", nsys.export(timeline)), tool
    chosen = rocprof.PERCENT if variant == ORDER else (*rocprof.SIZES, *rocprof.PERCENT)
    return TraceFile("counter_collection.csv", rocprof.export(python_rng, timeline, chosen)), tool


def reference(file: TraceFile, tool: str) -> Facts:
    return facts.of(file, tool)


PROBLEM = Problem(
    inputs=inputs,
    cases=[
        {"tool": tool, "variant": variant, "kernels": kernels}
        for tool in facts.READERS
        for variant, kernels in (("as recorded", ALL), ("other launches", ALL), (ORDER, FEW))
    ],
    reference=reference,
    # The files give numbers with at least four digits. Any confusion of units, of threads with blocks or of a maximum
    # with an average is further away.
    tolerance={"float64": Tolerance(rtol=1e-3, atol=0.0)},
    compulsory_bytes=lambda tool, variant, kernels: 0,
)
