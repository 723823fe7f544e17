"""The trace as columns of NumPy, with a running maximum of the ends; facts come back as arrays and NumPy's scalars."""

import csv
import json
from pathlib import Path

import numpy as np

METRICS = [
    "dram__throughput.avg.pct_of_peak_sustained_elapsed",
    "sm__throughput.avg.pct_of_peak_sustained_elapsed",
    "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed",
]


def report(trace, counters):
    events = json.loads(Path(trace).read_bytes())["traceEvents"]
    events = [e for e in events if e.get("ph") == "X"]
    gpu = [e for e in events if e.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset")]
    starts = np.array([e["ts"] for e in gpu])
    ends = starts + np.array([e["dur"] for e in gpu])
    order = np.argsort(starts, kind="stable")
    gaps = np.maximum(starts[order][1:] - np.maximum.accumulate(ends[order])[:-1], 0)
    step = ends.max() - starts.min()

    kernels = sorted((e for e in gpu if e["cat"] == "kernel"), key=lambda e: e["args"]["correlation"])
    duration = np.array([k["dur"] for k in kernels])
    with open(counters) as file:
        lines = file.readlines()
    while "Kernel Name" not in lines[0]:
        lines.pop(0)
    rows = list(csv.DictReader(lines))[1:]
    rows.sort(key=lambda row: int(row["ID"]))
    percent = np.array([[float(row[metric]) for metric in METRICS] for row in rows])

    names, label = np.unique([k["name"] for k in kernels], return_inverse=True)
    totals = np.bincount(label, duration)
    top = np.argsort(-totals)[:3]
    means = np.array([(percent[label == t] * duration[label == t, None]).sum(0) / totals[t] for t in top])

    calls = {e["args"]["correlation"]: e for e in events if e.get("cat") in ("cuda_runtime", "cuda_driver")}
    ranges = [e for e in events if e.get("cat") == "user_annotation"]
    owner = np.array([_owner(ranges, calls.get(k["args"]["correlation"])) for k in kernels])
    gains = {"gaps": step / (step - gaps.sum())}
    for name in {ranges[o]["name"] for o in owner if o >= 0}:
        mine = [o for o in set(owner[owner >= 0].tolist()) if ranges[o]["name"] == name]
        if any(_bound(p) == "tensor" for p in percent[np.isin(owner, mine)]):
            continue
        saved = sum(duration[owner == o].sum() - duration[owner == o].max() for o in mine)
        gains[name] = step / (step - saved)
    return {
        "kernels": names[top].tolist(),
        "microseconds": totals[top],
        "dram_percent": means[:, 0],
        "sm_percent": means[:, 1],
        "tensor_percent": means[:, 2],
        "bounds": [_bound(p) for p in means],
        "idle_microseconds": gaps.sum(),
        "idle_share": gaps.sum() / step,
        "longest_gap": gaps.max(),
        "gains": gains,
        "change": max(gains, key=gains.get),
    }


def _owner(ranges, call):
    """The shortest range around the start of the call on its thread; -1 where there is none."""
    if call is None:
        return -1
    around = [
        place
        for place, r in enumerate(ranges)
        if (r["pid"], r["tid"]) == (call["pid"], call["tid"]) and r["ts"] <= call["ts"] <= r["ts"] + r["dur"]
    ]
    return min(around, key=lambda place: ranges[place]["dur"], default=-1)


def _bound(percent):
    dram, sm, tensor = percent
    if max(dram, sm) < 60:
        return "latency"
    return "memory" if dram >= sm else ("tensor" if tensor >= 60 else "compute")
