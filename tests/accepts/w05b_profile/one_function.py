"""Straight down in one function, as in a notebook: lists, loops, and merged intervals for the busy time."""

import csv
import io
import itertools
import json


def report(trace, counters):
    with open(trace, encoding="utf-8") as f:
        data = json.load(f)
    kernels, busy, calls, ranges = [], [], {}, []
    for e in data["traceEvents"]:
        cat = e.get("cat", "")
        if e.get("ph") != "X":
            continue
        if cat == "kernel":
            kernels.append(e)
        if cat in ["kernel", "gpu_memcpy", "gpu_memset"]:
            busy.append([e["ts"], e["ts"] + e["dur"]])
        if cat in ["cuda_runtime", "cuda_driver"] and "correlation" in e["args"]:
            calls[e["args"]["correlation"]] = e
        if cat == "user_annotation":
            ranges.append(e)
    kernels.sort(key=lambda e: e["args"]["correlation"])

    with open(counters, encoding="utf-8") as f:
        text = f.read()
    text = "\n".join(line for line in text.split("\n") if not line.startswith("=="))
    table = [row for row in csv.DictReader(io.StringIO(text)) if row["ID"].strip()]
    table = {int(row["ID"]): row for row in table}
    for number, k in enumerate(kernels):
        row = table[number]
        k["dram"] = float(row["dram__throughput.avg.pct_of_peak_sustained_elapsed"])
        k["sm"] = float(row["sm__throughput.avg.pct_of_peak_sustained_elapsed"])
        k["tensor"] = float(row["sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed"])

    def what_bounds(dram, sm, tensor):
        if dram < 60 and sm < 60:
            return "latency"
        if dram >= sm:
            return "memory"
        if tensor >= 60:
            return "tensor"
        return "compute"

    total = {}
    for k in kernels:
        total[k["name"]] = total.get(k["name"], 0) + k["dur"]
    top = sorted(total.items(), key=lambda item: item[1], reverse=True)[:3]
    out = {"kernels": [], "microseconds": [], "dram_percent": [], "sm_percent": [], "tensor_percent": [], "bounds": []}
    for name, time in top:
        out["kernels"].append(name)
        out["microseconds"].append(time)
        means = []
        for unit in ["dram", "sm", "tensor"]:
            mean = 0
            for k in kernels:
                if k["name"] == name:
                    mean += k[unit] * k["dur"] / time
            out[unit + "_percent"].append(mean)
            means.append(mean)
        out["bounds"].append(what_bounds(*means))

    busy.sort()
    merged = [busy[0]]
    for start, end in busy[1:]:
        if start > merged[-1][1]:
            merged.append([start, end])
        else:
            merged[-1][1] = max(merged[-1][1], end)
    step = merged[-1][1] - merged[0][0]
    work = sum(end - start for start, end in merged)
    out["idle_microseconds"] = step - work
    out["idle_share"] = 1 - work / step
    out["longest_gap"] = max(b[0] - a[1] for a, b in itertools.pairwise(merged))

    groups, forbidden = {}, set()
    for k in kernels:
        call, inner = calls.get(k["args"]["correlation"]), None
        for r in ranges:
            if not call or r["pid"] != call["pid"] or r["tid"] != call["tid"]:
                continue
            if r["ts"] <= call["ts"] <= r["ts"] + r["dur"] and (inner is None or r["ts"] > inner["ts"]):
                inner = r
        if inner is not None:
            groups.setdefault((inner["name"], inner["ts"]), []).append(k["dur"])
            if what_bounds(k["dram"], k["sm"], k["tensor"]) == "tensor":
                forbidden.add(inner["name"])
    saved = {"gaps": step - work}
    for (name, _), times in groups.items():
        if name not in forbidden:
            saved[name] = saved.get(name, 0) + sum(times) - max(times)
    out["gains"] = {name: step / (step - time) for name, time in saved.items()}
    out["change"] = max(saved, key=saved.get)
    return out
