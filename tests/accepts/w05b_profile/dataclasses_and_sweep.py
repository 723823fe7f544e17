"""A reader with types of its own: spans as dataclasses, a sweep over starts and ends, ranges by thread."""

import bisect
import csv
import json
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path

UNITS = {
    "dram": "dram__throughput.avg.pct_of_peak_sustained_elapsed",
    "sm": "sm__throughput.avg.pct_of_peak_sustained_elapsed",
    "tensor": "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed",
}


@dataclass(order=True)
class Span:
    start: float
    end: float
    name: str = field(compare=False)
    kind: str = field(compare=False)
    number: int = field(compare=False, default=-1)
    thread: tuple = field(compare=False, default=())
    percent: dict = field(compare=False, default_factory=dict)

    @property
    def duration(self) -> float:
        return self.end - self.start


@dataclass
class Report:
    kernels: list
    microseconds: list
    dram_percent: list
    sm_percent: list
    tensor_percent: list
    bounds: list
    idle_microseconds: float
    idle_share: float
    longest_gap: float
    gains: dict
    change: str


def spans(trace: Path) -> list[Span]:
    found = []
    with trace.open() as file:
        for one in json.load(file)["traceEvents"]:
            if one.get("ph") == "X" and "dur" in one:
                start = float(one["ts"])
                number = one.get("args", {}).get("correlation", -1)
                thread = (one["pid"], one["tid"])
                found.append(Span(start, start + float(one["dur"]), one["name"], one.get("cat", ""), number, thread))
    return sorted(found)


def percentages(counters: Path) -> dict[int, dict[str, float]]:
    lines = counters.read_text().splitlines()
    first = next(place for place, line in enumerate(lines) if "Kernel Name" in line)
    table = csv.reader(lines[first:])
    head, _ = next(table), next(table)
    at = {name: head.index(metric) for name, metric in UNITS.items()}
    return {int(row[head.index("ID")]): {name: float(row[place]) for name, place in at.items()} for row in table}


def bound(percent: dict) -> str:
    if percent["dram"] < 60 and percent["sm"] < 60:
        return "latency"
    if percent["dram"] >= percent["sm"]:
        return "memory"
    return "compute" if percent["tensor"] < 60 else "tensor"


def idle(gpu: list[Span]) -> list[float]:
    """A sweep: +1 at each start, -1 at each end, a gap wherever the sum is 0."""
    edges = sorted(
        [(one.start, 1) for one in gpu] + [(one.end, -1) for one in gpu], key=lambda edge: (edge[0], -edge[1])
    )
    gaps, running, since = [], 0, None
    for time, step in edges:
        if running == 0 and since is not None and time > since:
            gaps.append(time - since)
        running += step
        since = time if running == 0 else None
    return gaps


def report(trace: Path, counters: Path) -> Report:
    every = spans(trace)
    gpu = [one for one in every if one.kind in {"kernel", "gpu_memcpy", "gpu_memset"}]
    kernels = sorted((one for one in gpu if one.kind == "kernel"), key=lambda one: one.number)
    rows = percentages(counters)
    for kernel, (_, percent) in zip(kernels, sorted(rows.items()), strict=True):
        kernel.percent = percent
    calls = {one.number: one for one in every if one.kind.startswith("cuda_")}
    by_thread = defaultdict(list)
    for one in every:
        if one.kind == "user_annotation":
            by_thread[one.thread].append(one)

    occurrences, tensor = defaultdict(list), set()
    for kernel in kernels:
        call = calls.get(kernel.number)
        ranges = by_thread[call.thread] if call else []
        upto = bisect.bisect_right([one.start for one in ranges], call.start) if call else 0
        inner = next((one for one in reversed(ranges[:upto]) if one.end >= call.start), None)
        if inner:
            occurrences[id(inner)].append((inner.name, kernel))
            if bound(kernel.percent) == "tensor":
                tensor.add(inner.name)
    saved = Counter()
    for members in occurrences.values():
        name = members[0][0]
        durations = [kernel.duration for _, kernel in members]
        saved[name] += sum(durations) - max(durations)
    for name in tensor:
        del saved[name]
    gaps = idle(gpu)
    saved["gaps"] = sum(gaps)

    totals = Counter()
    for kernel in kernels:
        totals[kernel.name] += kernel.duration
    top = totals.most_common(3)
    means = []
    for name, time in top:
        mine = [one for one in kernels if one.name == name]
        means.append({unit: sum(one.percent[unit] * one.duration for one in mine) / time for unit in UNITS})
    step = max(one.end for one in gpu) - gpu[0].start
    gains = {name: step / (step - time) for name, time in saved.items()}
    return Report(
        kernels=[name for name, _ in top],
        microseconds=[time for _, time in top],
        dram_percent=[one["dram"] for one in means],
        sm_percent=[one["sm"] for one in means],
        tensor_percent=[one["tensor"] for one in means],
        bounds=[bound(one) for one in means],
        idle_microseconds=sum(gaps),
        idle_share=sum(gaps) / step,
        longest_gap=max(gaps),
        gains=gains,
        change=max(gains, key=gains.get),
    )
