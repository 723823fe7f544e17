"""Profile: what limits a training step, as read from the profilers' files.

trace is a Chrome trace from torch.profiler: a JSON file whose "traceEvents" are dicts. An event with "ph" == "X" has a
start "ts" and a duration "dur", both in microseconds on one clock, a "name", and a category "cat":

- "kernel", "gpu_memcpy" and "gpu_memset" run on the GPU. args["correlation"] is the number of the launching call.
- "cuda_runtime" and "cuda_driver" are the calls on the host's threads ("pid" and "tid"), with the same
  args["correlation"].
- "user_annotation" is a named range (record_function) on a host thread. Ranges nest.

counters is the CSV that `ncu --csv --page raw` wrote for the same step, in another run: progress lines, a header, a row
of units, and one row per kernel, numbered in launch order by the column ID. It contains the same kernels as the trace,
in launch order, which is the order of correlations. You can't match kernels by name, because ncu writes names in a
different form.

The report is a dict or a dataclass with these facts. Numbers may be 0.1% off.

    kernels           the three names with the longest total duration in the trace, the longest first
    microseconds      their total durations
    dram_percent      DRAM, SM and TENSOR of each name: the mean over its launches, weighted by duration in the trace
    sm_percent
    tensor_percent
    bounds            each name's limit: "latency" where DRAM and SM are both below BUSY; "memory" where DRAM is at
                      least as large as SM; else "tensor" where TENSOR is at least BUSY, "compute" where it is not
    idle_microseconds the time in which nothing runs on the GPU, between the first start and the last end
    idle_share        the same, as a share of the time from the first start to the last end, from 0 to 1
    longest_gap       the longest span in which nothing runs on the GPU, in microseconds
    gains             the speedup of the step for each change below, by its name, according to Amdahl's law
    change            the change with the largest gain

These are the changes. "gaps" closes all gaps. The name of each range to which a kernel belongs is a change, too: all
kernels in each occurrence of that range become one kernel, which takes as long as the longest of them. A kernel belongs
to the innermost range that was open, on the thread that launched it, at the start of the call. A range is not a change
if any of its occurrences contains a launch that is bound by "tensor", because GEMMs do not become faster by sharing a
launch. The step's time extends from the first start to the last end.
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
    """Return the facts about the step in these two files, by name."""
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
    """Return the rows of ncu's CSV in launch order."""
    with counters.open(newline="") as file:
        _units, *rows = csv.DictReader(dropwhile(lambda line: '"Kernel Name"' not in line, file))
    return sorted(rows, key=lambda row: int(row["ID"]))


def bound(dram: float, sm: float, tensor: float) -> str:
    """Return the bound of a kernel with these percentages of the peak."""
    if max(dram, sm) < BUSY:
        return "latency"
    if dram >= sm:
        return "memory"
    return "tensor" if tensor >= BUSY else "compute"


def mean_percent(kernels: list[dict]) -> list[float]:
    """Return the mean of each percentage, weighted by duration: a short launch says little about where time goes."""
    weighted = [[kernel["dur"] * percent for percent in kernel["percent"]] for kernel in kernels]
    return [sum(column) / total(kernels) for column in zip(*weighted, strict=True)]


def idle_spans(on_gpu: list[dict]) -> list[float]:
    """Return the durations of the spans in which nothing runs. Streams overlap, so the latest end so far counts."""
    ordered = sorted(on_gpu, key=lambda event: event["ts"])
    busy_until = accumulate(map(end, ordered), max)
    return [max(0.0, event["ts"] - until) for event, until in zip(ordered[1:], busy_until, strict=False)]


def saved_by_fusion(kernels: list[dict], events: list[dict]) -> dict[str, float]:
    """Return the microseconds saved by fusing each range, by name, except for ranges bound by tensor cores."""
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
    """Return the range that was opened last among the ranges open on the call's thread when the call started."""
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
