"""What limits a training step: the facts that `profile` asks of a Chrome trace and of ncu's counters.

Each tool demangles kernels' names in its own way, so a kernel of the trace and its counters are found by the order of
launch, which is the same in two runs of one step.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kernelpath.course.traces import Facts, Malformed, TraceFile, chrome, ncu
from kernelpath.course.traces.chrome import Activity, Timeline

BUSY = 60.0
"""Percent of a unit's peak from which on it bounds a kernel. Source: the rules of ncu's section SpeedOfLight."""

GAPS = "gaps"


@dataclass(frozen=True)
class Counters:
    """Percent of the peak: of DRAM, of the busiest unit of the multiprocessors, and of their tensor pipe."""

    dram: float
    sm: float
    tensor: float

    @property
    def bound(self) -> str:
        if max(self.dram, self.sm) < BUSY:
            return "latency"
        if self.dram >= self.sm:
            return "memory"
        return "tensor" if self.tensor >= BUSY else "compute"


Measured = Sequence[tuple[Activity, Counters]]
"""The kernels in the order of launch, each with its counters."""


def of(trace: TraceFile, counters: TraceFile) -> Facts:
    """Raises traces.Malformed."""
    timeline = chrome.read(trace.content)
    kernels = measured(timeline, ncu.read(counters.content, [ncu.DRAM, ncu.SM, ncu.TENSOR]))
    total: dict[str, float] = defaultdict(float)
    for kernel, _ in kernels:
        total[kernel.name] += kernel.duration
    top = sorted(total, key=lambda name: -total[name])[:3]
    busy = [_mean([one for one in kernels if one[0].name == name]) for name in top]
    span = max(one.end for one in timeline.activities) - timeline.activities[0].start
    idle = [end - start for start, end in timeline.gaps()]
    saved = {GAPS: sum(idle), **savings(timeline, kernels)}
    return {
        "kernels": top,
        "microseconds": [total[name] for name in top],
        "dram_percent": [one.dram for one in busy],
        "sm_percent": [one.sm for one in busy],
        "tensor_percent": [one.tensor for one in busy],
        "bounds": [one.bound for one in busy],
        "idle_microseconds": sum(idle),
        "idle_share": sum(idle) / span,
        "longest_gap": max(idle, default=0.0),
        "gains": {name: span / (span - time) for name, time in saved.items()},
        "change": max(saved, key=lambda name: saved[name]),
    }


def measured(timeline: Timeline, launches: Sequence[ncu.Launch]) -> Measured:
    """Raises Malformed where the counters are those of other launches."""
    kernels = sorted(timeline.kernels, key=lambda one: one.correlation)
    if len(kernels) != len(launches):
        raise Malformed(f"the trace has {len(kernels)} kernels and ncu's CSV {len(launches)}; record the same step")
    for kernel, launch in zip(kernels, launches, strict=True):
        shape = (tuple(kernel.arguments.get(name, ())) for name in ("grid", "block"))
        if tuple(shape) != (launch.shape(ncu.GRID), launch.shape(ncu.BLOCK)):
            raise Malformed(f"kernel {launch.number} has another grid or block in ncu's CSV; record the same step")
    return [
        (kernel, Counters(*(launch.metrics[name] for name in (ncu.DRAM, ncu.SM, ncu.TENSOR))))
        for kernel, launch in zip(kernels, launches, strict=True)
    ]


def _mean(kernels: Measured) -> Counters:
    """Weighted by the durations in the trace."""
    weight = sum(kernel.duration for kernel, _ in kernels)
    weighted = [[kernel.duration * value for value in (one.dram, one.sm, one.tensor)] for kernel, one in kernels]
    return Counters(*(sum(values) / weight for values in zip(*weighted, strict=True)))


def savings(timeline: Timeline, kernels: Measured) -> Mapping[str, float]:
    """Microseconds that are saved where each occurrence of a range becomes one kernel, by the range's name.

    That kernel takes as long as the longest of those that it replaces. What the tensor cores compute does not become
    faster by sharing a launch, so a range with a kernel that they bound is left out.
    """
    inside: dict[str, dict[chrome.Range, list[float]]] = defaultdict(lambda: defaultdict(list))
    bound = set()
    for kernel, counters in kernels:
        if (around := timeline.range_of(kernel)) is not None:
            inside[around.name][around].append(kernel.duration)
            if counters.bound == "tensor":
                bound.add(around.name)
    return {
        name: sum(sum(durations) - max(durations) for durations in found.values())
        for name, found in inside.items()
        if name not in bound
    }
