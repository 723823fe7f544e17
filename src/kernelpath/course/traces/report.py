"""Report what limits a training step: the facts that `profile` requires of a Chrome trace and of ncu's counters.

Each tool demangles kernels' names in its own way, so a kernel of the trace and its counters are matched by the order of
launch, which is the same in two runs of one step.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kernelpath.course.traces import Facts, Malformed, TraceFile, chrome, ncu
from kernelpath.course.traces.chrome import Activity, ChromeTrace

# The percentage of a unit's peak from which on the unit bounds a kernel.
#
# Source: the rules of ncu's section SpeedOfLight.
BUSY = 60.0

GAPS = "gaps"


@dataclass(frozen=True)
class Counters:
    """Percentages of the peak: of DRAM, of the busiest unit of the multiprocessors, and of their tensor pipe."""

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


# The kernels in the order of launch, each with its counters.
Measured = Sequence[tuple[Activity, Counters]]


def of(trace: TraceFile, counters: TraceFile) -> Facts:
    """Return the facts of the report. Raises traces.Malformed."""
    timeline = chrome.read(trace.content)
    kernels = measured(timeline, ncu.read(counters.content, [ncu.DRAM, ncu.SM, ncu.TENSOR]))
    total: dict[str, float] = defaultdict(float)
    for kernel, _ in kernels:
        total[kernel.name] += kernel.duration
    top = sorted(total, key=lambda name: -total[name])[:3]
    busy = [_mean([entry for entry in kernels if entry[0].name == name]) for name in top]
    span = max(entry.end for entry in timeline.activities) - timeline.activities[0].start
    idle = [end - start for start, end in timeline.gaps()]
    saved = {GAPS: sum(idle), **savings(timeline, kernels)}
    return {
        "kernels": top,
        "microseconds": [total[name] for name in top],
        "dram_percent": [entry.dram for entry in busy],
        "sm_percent": [entry.sm for entry in busy],
        "tensor_percent": [entry.tensor for entry in busy],
        "bounds": [entry.bound for entry in busy],
        "idle_microseconds": sum(idle),
        "idle_share": sum(idle) / span,
        "longest_gap": max(idle, default=0.0),
        "gains": {name: span / (span - time) for name, time in saved.items()},
        "change": max(saved, key=lambda name: saved[name]),
    }


def measured(timeline: ChromeTrace, launches: Sequence[ncu.ProfiledLaunch]) -> Measured:
    """Match kernels with their counters. Raises Malformed if the counters are from other launches."""
    # CUPTI numbers launches in their order. On two streams, kernels may start in another order.
    kernels = sorted(timeline.kernels, key=lambda kernel: kernel.correlation)
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
    """Return the means, weighted by the durations in the trace."""
    weight = sum(kernel.duration for kernel, _ in kernels)
    weighted = [
        [kernel.duration * value for value in (counters.dram, counters.sm, counters.tensor)]
        for kernel, counters in kernels
    ]
    return Counters(*(sum(values) / weight for values in zip(*weighted, strict=True)))


def savings(timeline: ChromeTrace, kernels: Measured) -> Mapping[str, float]:
    """Return the microseconds saved if each occurrence of a range becomes one kernel, by the range's name.

    That kernel takes as long as the longest of those that it replaces. Sharing a launch does not speed up the tensor
    cores, so a range with a kernel that they bound is left out.
    """
    durations_by_range: dict[str, dict[chrome.Range, list[float]]] = defaultdict(lambda: defaultdict(list))
    tensor_bound = set()
    for kernel, counters in kernels:
        if (enclosing := timeline.range_of(kernel)) is not None:
            durations_by_range[enclosing.name][enclosing].append(kernel.duration)
            if counters.bound == "tensor":
                tensor_bound.add(enclosing.name)
    return {
        name: sum(sum(durations) - max(durations) for durations in occurrences.values())
        for name, occurrences in durations_by_range.items()
        if name not in tensor_bound
    }
