"""Profile: what limits a training step, read from what the profilers wrote.

trace is a Chrome trace of torch.profiler: JSON whose "traceEvents" are dicts. An event with "ph" == "X" has a start
"ts" and a duration "dur", both in microseconds on one clock, a "name", and a category "cat":

- "kernel", "gpu_memcpy" and "gpu_memset" run on the GPU. args["correlation"] is the number of the launching call.
- "cuda_runtime" and "cuda_driver" are the calls, on the host's threads ("pid" and "tid"), with the same
  args["correlation"].
- "user_annotation" is a named range (record_function) on a thread of the host. Ranges nest.

counters is the CSV of `ncu --csv --page raw` of the same step, in another run: lines of progress, a header, a row of
units, and a row for each kernel, numbered in the order of launch by the column ID. It has the kernels of the trace in
the order of launch, which is the order of correlations. Names cannot be compared: ncu writes them in another form.

The report is a dict, or a dataclass, of these facts. Numbers may be 0.1% off.

    kernels           the three names with the greatest total duration in the trace, the greatest first
    microseconds      their total durations
    dram_percent      DRAM, SM and TENSOR of each name: the mean over its launches, weighted by duration in the trace
    sm_percent
    tensor_percent
    bounds            what bounds each: "latency" where DRAM and SM are both below BUSY; "memory" where DRAM is at
                      least as large as SM; else "tensor" where TENSOR is at least BUSY, "compute" where it is not
    idle_microseconds from the first start to the last end on the GPU, the time in which nothing runs there
    idle_share        that, of the time from the first start to the last end; 1 is all of it
    longest_gap       the longest span without anything on the GPU, in microseconds
    gains             of each change below, by its name: how many times as fast the step would be, by Amdahl's law
    change            the change with the greatest gain

The changes: "gaps" closes all gaps. Each name of a range to which a kernel belongs is a change, too: the kernels of
every occurrence of that range become one, which takes as long as the longest of them. A kernel belongs to the innermost
range that was open, on the thread that launched it, at the start of the call. A range is not a change if any of its
occurrences has a launch that is bound by "tensor", because GEMMs do not become faster by sharing a launch. The step
takes the time from the first start to the last end.
"""

import csv
import json
from collections import defaultdict
from itertools import accumulate, dropwhile
from pathlib import Path

BUSY = 60.0
DRAM = "dram__throughput.avg.pct_of_peak_sustained_elapsed"
SM = "sm__throughput.avg.pct_of_peak_sustained_elapsed"
TENSOR = "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed"


def report(trace: Path, counters: Path) -> dict:
    """The facts about the step in these two files, by name."""
    events = [event for event in json.loads(trace.read_text())["traceEvents"] if event.get("ph") == "X"]
    on_gpu = [event for event in events if event.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset")]
    kernels = sorted((event for event in on_gpu if event["cat"] == "kernel"), key=correlation)
    for kernel, row in zip(kernels, launches(counters), strict=True):
        kernel["percent"] = [float(row[metric]) for metric in (DRAM, SM, TENSOR)]

    by_name = defaultdict(list)
    for kernel in kernels:
        by_name[kernel["name"]].append(kernel)
    top = sorted(by_name, key=lambda name: -total(by_name[name]))[:3]
    percent = [mean_percent(by_name[name]) for name in top]

    gaps = idle_spans(on_gpu)
    step = max(end(event) for event in on_gpu) - min(event["ts"] for event in on_gpu)
    saved = {"gaps": sum(gaps), **saved_by_fusion(kernels, events)}
    gains = {name: step / (step - time) for name, time in saved.items()}  # 1 / (1 - f + f / s): f - f / s = time / step
    return {
        "kernels": top,
        "microseconds": [total(by_name[name]) for name in top],
        "dram_percent": [dram for dram, _, _ in percent],
        "sm_percent": [sm for _, sm, _ in percent],
        "tensor_percent": [tensor for _, _, tensor in percent],
        "bounds": [bound(*one) for one in percent],
        "idle_microseconds": sum(gaps),
        "idle_share": sum(gaps) / step,
        "longest_gap": max(gaps),
        "gains": gains,
        "change": max(gains, key=gains.get),
    }


def launches(counters: Path) -> list[dict]:
    """The rows of ncu's CSV in the order of launch."""
    with counters.open(newline="") as file:
        _units, *rows = csv.DictReader(dropwhile(lambda line: '"Kernel Name"' not in line, file))
    return sorted(rows, key=lambda row: int(row["ID"]))


def bound(dram: float, sm: float, tensor: float) -> str:
    """What a kernel with these percentages of the peak waits for."""
    if max(dram, sm) < BUSY:
        return "latency"
    if dram >= sm:
        return "memory"
    return "tensor" if tensor >= BUSY else "compute"


def mean_percent(kernels: list[dict]) -> list[float]:
    """Each percentage, weighted by duration: a short launch says little about where time goes."""
    weighted = [[kernel["dur"] * percent for percent in kernel["percent"]] for kernel in kernels]
    return [sum(column) / total(kernels) for column in zip(*weighted, strict=True)]


def idle_spans(on_gpu: list[dict]) -> list[float]:
    """The durations of the spans in which nothing runs. Streams overlap, so the end of all so far counts."""
    ordered = sorted(on_gpu, key=lambda event: event["ts"])
    busy_until = accumulate(map(end, ordered), max)
    return [max(0.0, event["ts"] - until) for event, until in zip(ordered[1:], busy_until, strict=False)]


def saved_by_fusion(kernels: list[dict], events: list[dict]) -> dict[str, float]:
    """Microseconds by name of a range, of those that no tensor core bounds."""
    calls = {correlation(event): event for event in events if event.get("cat") in ("cuda_runtime", "cuda_driver")}
    ranges = [event for event in events if event.get("cat") == "user_annotation"]
    inside = defaultdict(list)
    for kernel in kernels:
        if (around := innermost(ranges, calls.get(correlation(kernel)))) is not None:
            inside[around["name"], around["ts"]].append(kernel)
    saved = defaultdict(float)
    for (name, _), fused in inside.items():
        saved[name] += total(fused) - max(kernel["dur"] for kernel in fused)
    products = {name for (name, _), fused in inside.items() if any(bound(*k["percent"]) == "tensor" for k in fused)}
    return {name: time for name, time in saved.items() if name not in products}


def innermost(ranges: list[dict], call: dict | None) -> dict | None:
    """The range that was opened last of those that were open on the call's thread when the call began."""
    if call is None:
        return None
    thread = call["pid"], call["tid"]
    around = [one for one in ranges if (one["pid"], one["tid"]) == thread and one["ts"] <= call["ts"] <= end(one)]
    return max(around, key=lambda one: one["ts"], default=None)


def correlation(event: dict) -> int:
    return event["args"]["correlation"]


def end(event: dict) -> float:
    return event["ts"] + event["dur"]


def total(events: list[dict]) -> float:
    return sum(event["dur"] for event in events)
