"""Bottlenecks: replay a step, and predict what a change would gain.

trace is a Chrome trace from torch.profiler, a JSON file with "traceEvents" and "deviceProperties". The first entry of
"deviceProperties" has "numSms", the number of multiprocessors. An event with "ph" == "X" has a start "ts" and a
duration "dur" in microseconds, a "name", and a category "cat". Two groups of categories matter here, in any order:

- "cuda_runtime" and "cuda_driver": calls from one host thread. args["correlation"] is the number of the call.
- "kernel" and "gpu_memcpy": activities on one stream of the GPU, with the correlation of the call that launched them. A
  kernel has args["grid"], three extents in blocks, and a copy has args["bytes"].

The step follows these rules. Before each call, the host works for the time that the trace has between the end of the
previous call and the start of this call. A call takes as long as its recorded duration. Its activity starts when both
the call and the previous activity have ended, and also takes as long as recorded. Two kinds of calls wait instead.
"cudaStreamSynchronize" takes no time itself and ends when the GPU has finished all activities launched so far. The call
of an activity named "Memcpy HtoD (Pageable -> Device)" takes no time itself either. Its copy starts as soon as the call
and the previous activity allow, and the call ends when its copy ends. The step lasts from the start of the first call
to the last end of a call or an activity.

Five changes:

    graph     all kernels are launched as one graph: neither their calls nor the host's work before them takes time
    fusion    kernels whose names contain "elementwise" become one kernel if their calls follow each other without any
              other call between them. The first call launches this kernel, which takes as long as the longest of them.
              The other calls, the host's work before these calls, and their kernels disappear
    prefetch  pageable copies were made before the step: their calls do not wait, and calls and copies take no time. The
              host's work before them remains
    split     a kernel with fewer blocks than multiprocessors uses all multiprocessors, and takes
              blocks / multiprocessors of its time
    async     no call synchronizes, except for the last call of the step. The work before these calls disappears, too

Changes that are applied together are applied in the order split, fusion, prefetch, async, graph. Return a dict, or a
dataclass, with these facts. Numbers may be 0.01% off.

    microseconds             the time of the step
    busy_share               the total duration of all activities divided by the time of the step
    launches                 the number of kernels
    fused_away               the number of kernels that disappear by fusion
    pageable_bytes           the bytes of pageable copies
    few_blocks_microseconds  the total duration of the kernels with fewer blocks than multiprocessors
    waits                    the number of calls that synchronize, excluding the last call of the step
    after                    the time of the step after each change alone, by its name
    bottlenecks              the names of the three changes that leave the shortest times, the shortest first. Equal
                             times, rounded to nanoseconds, stay in the order above
    together                 how many times faster the step is with these three changes together
"""

import json
import math
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path

CHANGES = ("graph", "fusion", "prefetch", "split", "async")
PAGEABLE = "Memcpy HtoD (Pageable -> Device)"
SYNCHRONIZE = "cudaStreamSynchronize"


@dataclass
class Call:
    """A call with its activity. work: the host's time before it; cost: its own time; blocks: 0 without a kernel."""

    name: str
    work: float
    cost: float
    activity: str = ""
    duration: float = 0.0
    blocks: int = 0
    bytes: int = 0
    waits: bool = False


def read(document: dict) -> list[Call]:
    """Return the calls in order."""
    events = [event for event in document["traceEvents"] if event.get("ph") == "X"]
    on_gpu = {e["args"]["correlation"]: e for e in events if e["cat"] in ("kernel", "gpu_memcpy")}
    on_host = sorted((e for e in events if e["cat"] in ("cuda_runtime", "cuda_driver")), key=lambda e: e["ts"])
    calls, end = [], on_host[0]["ts"]
    for event in on_host:
        call = Call(event["name"], event["ts"] - end, event["dur"], waits=event["name"] == SYNCHRONIZE)
        if activity := on_gpu.get(event["args"]["correlation"]):
            arguments = activity["args"]
            call.activity, call.duration = activity["name"], activity["dur"]
            call.blocks, call.bytes = math.prod(arguments.get("grid", [0])), arguments.get("bytes", 0)
            call.waits |= call.activity == PAGEABLE
        calls.append(replace(call, cost=0.0) if call.waits else call)
        end = event["ts"] + event["dur"]
    return calls


def step_time(calls: list[Call]) -> float:
    """Return the time of a step, with one clock for the host and one for the GPU."""
    host = gpu = 0.0
    for call in calls:
        host += call.work + call.cost
        if call.activity:
            gpu = max(host, gpu) + call.duration
        if call.waits:
            host = max(host, gpu)
    return max(host, gpu)


def chains(calls: list[Call]) -> list[list[Call]]:
    """Return the calls in groups. Consecutive elementwise kernels share a group; every other call is alone."""
    numbered = enumerate(calls)
    groups = groupby(numbered, key=lambda pair: -1 if pair[1].blocks and "elementwise" in pair[1].activity else pair[0])
    return [[call for _, call in group] for _, group in groups]


def changed(calls: list[Call], names: list[str], multiprocessors: int) -> list[Call]:
    """Return the calls after these changes."""
    calls = [replace(call) for call in calls]
    if "split" in names:
        for call in calls:
            call.duration *= min(1.0, call.blocks / multiprocessors) if call.blocks else 1.0
    if "fusion" in names:
        calls = [replace(chain[0], duration=max(c.duration for c in chain)) for chain in chains(calls)]
    if "prefetch" in names:
        calls = [replace(c, waits=False, duration=0.0) if c.activity == PAGEABLE else c for c in calls]
    if "async" in names:
        calls = [call for call in calls[:-1] if call.name != SYNCHRONIZE] + calls[-1:]
    if "graph" in names:
        calls = [replace(call, work=0.0, cost=0.0) if call.blocks else call for call in calls]
    return calls


def report(trace: Path) -> dict:
    """Return the facts about the step, by name."""
    document = json.loads(trace.read_text())
    multiprocessors = document["deviceProperties"][0]["numSms"]
    calls = read(document)
    now = step_time(calls)
    after = {name: step_time(changed(calls, [name], multiprocessors)) for name in CHANGES}
    top = sorted(CHANGES, key=lambda name: round(after[name], 3))[:3]
    return {
        "microseconds": now,
        "busy_share": sum(call.duration for call in calls) / now,
        "launches": sum(call.blocks > 0 for call in calls),
        "fused_away": len(calls) - len(chains(calls)),
        "pageable_bytes": sum(call.bytes for call in calls if call.activity == PAGEABLE),
        "few_blocks_microseconds": sum(c.duration for c in calls if 0 < c.blocks < multiprocessors),
        "waits": sum(call.name == SYNCHRONIZE for call in calls[:-1]),
        "after": after,
        "bottlenecks": top,
        "together": now / step_time(changed(calls, top, multiprocessors)),
    }
