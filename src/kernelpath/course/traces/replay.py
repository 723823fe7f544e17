"""Replay a step from its Chrome trace: what one host thread and one stream of a GPU do, and how long after a change.

A replay follows every call of the host and every activity of the GPU, so it knows what a share of the GPU's time does
not tell: whether the host or the GPU is ahead. A change is replayed in the same way (w15c_bottlenecks). Idea: Zhu,
Phanishayee, Pekhimenko, "Daydream: Accurately Estimating the Efficacy of Optimizations for DNN Training", ATC 2020.
"""

from __future__ import annotations

import json
import math
import random
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

from kernelpath.course.traces import Facts, Malformed, TraceFile, chrome

# Launch kernels as a CUDA graph; fuse chains of elementwise kernels; copy inputs before they are needed, from pinned
# memory; split kernels with few blocks over all multiprocessors; do not wait for the GPU within the step.
CHANGES = ("graph", "fusion", "prefetch", "split", "async")

SYNCHRONIZE = "cudaStreamSynchronize"
PAGEABLE = "Memcpy HtoD (Pageable -> Device)"
ELEMENTWISE = "elementwise"


@dataclass(frozen=True)
class Call:
    """A call of the host, with what it launches on the GPU. Times are microseconds.

    Attributes:
        name: The function of the CUDA runtime or driver.
        work: The time of the host between the call before and this one.
        cost: The time of the call itself, without waiting.
        waits: Whether the call returns only when the GPU has finished what was launched, this call's copy included.
        activity: The name of the kernel or copy that it launches; "" if it launches nothing.
        duration: The time of the activity.
        blocks: The number of thread blocks of a kernel; 0 for a copy.
        bytes: The bytes of a copy.
    """

    name: str
    work: float
    cost: float
    waits: bool = False
    activity: str = ""
    duration: float = 0.0
    blocks: int = 0
    bytes: int = 0

    @property
    def is_launch(self) -> bool:
        return self.blocks > 0

    @property
    def is_elementwise(self) -> bool:
        return self.is_launch and ELEMENTWISE in self.activity

    @property
    def is_pageable(self) -> bool:
        return self.activity == PAGEABLE


@dataclass(frozen=True)
class Replayed:
    """The times at which a call begins and ends, and at which its activity does."""

    begin: float
    end: float
    activity_begin: float = 0.0
    activity_end: float = 0.0


def run(calls: Sequence[Call]) -> list[Replayed]:
    """Return when everything happens. The first call begins at 0."""
    replayed: list[Replayed] = []
    # The first call is to begin at 0, so the work before it lies before 0.
    host = -calls[0].work
    gpu = 0.0
    for call in calls:
        begin = host + call.work
        host = begin + call.cost
        activity_begin = activity_end = 0.0
        if call.activity:
            # A copy that the host waits for begins when it is called. Other activities begin after their call.
            activity_begin = max(begin if call.waits else host, gpu)
            activity_end = gpu = activity_begin + call.duration
        if call.waits:
            host = max(host, gpu)
        replayed.append(Replayed(begin, host, activity_begin, activity_end))
    return replayed


def span(calls: Sequence[Call]) -> float:
    """Return the time from the first call to the last end on the host or the GPU."""
    return max(max(item.end, item.activity_end) for item in run(calls))


def change(calls: Sequence[Call], names: Collection[str], multiprocessors: int) -> list[Call]:
    """Return the calls after some of CHANGES."""
    changed = list(calls)
    if "split" in names:
        changed = [
            replace(call, duration=call.duration * call.blocks / multiprocessors)
            if call.is_launch and call.blocks < multiprocessors
            else call
            for call in changed
        ]
    if "fusion" in names:
        changed = _fuse(changed)
    if "prefetch" in names:
        changed = [replace(call, cost=0.0, waits=False, duration=0.0) if call.is_pageable else call for call in changed]
    if "async" in names:
        # The last call of a step may wait for its end.
        changed = [call for call in changed[:-1] if call.name != SYNCHRONIZE] + changed[-1:]
    if "graph" in names:
        changed = [replace(call, work=0.0, cost=0.0) if call.is_launch else call for call in changed]
    return changed


def chains(calls: Sequence[Call]) -> list[list[int]]:
    """Return the places of elementwise kernels that are called one right after another, at least two each."""
    ended_chains: list[list[int]] = []
    current: list[int] = []
    for number, call in enumerate(calls):
        if call.is_elementwise:
            current.append(number)
        else:
            ended_chains.append(current)
            current = []
    return [places for places in (*ended_chains, current) if len(places) > 1]


def _fuse(calls: Sequence[Call]) -> list[Call]:
    """Return the calls with one kernel for each chain, which takes as long as the longest of them."""
    fused = list(calls)
    for places in chains(calls):
        longest = max(calls[number].duration for number in places)
        # The fused kernel takes the place of the first one, and loads the most that any of them loads.
        fused[places[0]] = replace(calls[places[0]], duration=longest)
    dropped = {number for places in chains(calls) for number in places[1:]}
    return [call for number, call in enumerate(fused) if number not in dropped]


def of(file: TraceFile) -> Facts:
    """Return the facts of the report on a trace. Raises Malformed."""
    calls, multiprocessors = read(file.content)
    before = span(calls)
    after = {name: span(change(calls, [name], multiprocessors)) for name in CHANGES}
    # A change without effect leaves the same time, up to rounding. Equal times stay in the order of CHANGES.
    top = sorted(CHANGES, key=lambda name: round(after[name], 3))[:3]
    busy = sum(call.duration for call in calls)
    return {
        "microseconds": before,
        "busy_share": busy / before,
        "launches": sum(call.is_launch for call in calls),
        "fused_away": sum(len(places) - 1 for places in chains(calls)),
        "pageable_bytes": sum(call.bytes for call in calls if call.is_pageable),
        "few_blocks_microseconds": sum(
            call.duration for call in calls if call.is_launch and call.blocks < multiprocessors
        ),
        "waits": sum(call.name == SYNCHRONIZE for call in calls[:-1]),
        "after": after,
        "bottlenecks": top,
        "together": before / span(change(calls, top, multiprocessors)),
    }


def read(content: bytes) -> tuple[list[Call], int]:
    """Return the calls of a trace in order, and the number of multiprocessors. Raises Malformed."""
    timeline = chrome.read(content)
    launched = {activity.correlation: activity for activity in timeline.activities}
    events = [
        event
        for event in chrome.events_of(content)
        if event.get("cat") in chrome.CALLS and event.get("ph") == "X" and "correlation" in event.get("args", {})
    ]
    # The profiler does not write events in the order of time.
    events.sort(key=lambda event: float(event["ts"]))
    calls = []
    # Python's work between two calls is the gap between them on the host.
    previous_end = float(events[0]["ts"])
    for event in events:
        begin = float(event["ts"])
        activity = launched.get(int(event["args"]["correlation"]))
        # A simulated step waits for its stream only. A recorded one may also wait for an event or the whole device.
        waits = event["name"].endswith("Synchronize") or (activity is not None and activity.name == PAGEABLE)
        call = Call(str(event["name"]), max(0.0, begin - previous_end), 0.0 if waits else float(event["dur"]), waits)
        if activity is not None:
            call = replace(
                call,
                activity=activity.name,
                duration=activity.duration,
                blocks=math.prod(activity.arguments["grid"]) if activity.category == "kernel" else 0,
                bytes=int(activity.arguments.get("bytes", 0)),
            )
        calls.append(call)
        previous_end = max(previous_end, begin + float(event["dur"]))
    try:
        multiprocessors = int(json.loads(content)["deviceProperties"][0]["numSms"])
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise Malformed("the trace does not say how many multiprocessors the GPU has: deviceProperties") from error
    return calls, multiprocessors


# Simulated steps

_NAMES = {
    "product": (
        "nvjet_tst_128x256_64x4_1x2_h_bz_coopA_NTT",
        "nvjet_tst_192x192_64x4_2x1_v_bz_TNN",
        "void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_128x128_64x3_tn_align8>(Params)",
    ),
    "elementwise": (
        "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<c10::BFloat16>>(int)",
        "void at::native::vectorized_elementwise_kernel<8, at::native::GeluCUDAKernelImpl(TensorIteratorBase&)>(int)",
        "void at::native::elementwise_kernel<128, 4, at::native::gpu_kernel_impl_nocast<MulFunctor<float>>>(int)",
        "void at::native::unrolled_elementwise_kernel<at::native::direct_copy_kernel_cuda>(int)",
    ),
    "rows": (
        "void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<c10::BFloat16, float>(int)",
        "void (anonymous namespace)::softmax_warp_forward<c10::BFloat16, c10::BFloat16, float, 10, false>(int)",
    ),
    "few blocks": (
        "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::MeanOps<float>>>(int)",
        "void (anonymous namespace)::cunn_SoftMaxForward<8, float, float, float>(float*, float*, int)",
    ),
}

# What takes most of the time of a simulated step. In the last one the host is slow, but its work is hidden.
PROFILES = ("launches", "elementwise", "copies", "few blocks", "waits", "mixed", "hidden host")


def simulate(rng: random.Random, profile: str, operators: int) -> bytes:
    """Return the Chrome trace of a simulated training step, as torch.profiler writes it.

    Args:
        rng: The generator of names, times and order.
        profile: One of PROFILES.
        operators: The number of operators, each of one or more kernels.
    """
    multiprocessors = rng.choice((78, 108, 132, 148))
    calls = _draw_calls(rng, profile, operators, multiprocessors)
    replayed = run(calls)
    base = round(rng.uniform(1e5, 1e6), 3)
    number = rng.randrange(1000, 5000)
    events: list[dict[str, Any]] = [
        {"ph": "M", "name": "process_name", "ts": base, "pid": 507, "tid": 0, "args": {"name": "python3"}}
    ]
    for call, times in zip(calls, replayed, strict=True):
        # Correlation numbers have gaps, because the profiler numbers calls as well that launch nothing.
        number += rng.choice((1, 1, 2, 7))
        host = {"ph": "X", "pid": 507, "tid": 507}
        kind = "cuda_driver" if call.name.startswith("cu") and not call.name.startswith("cuda") else "cuda_runtime"
        events.append(
            host
            | _times(base, times.begin, times.end)
            | {"cat": kind, "name": call.name, "args": {"correlation": number}}
        )
        if rng.random() < 0.4:  # the operator of PyTorch around the call
            events.append(
                host
                | _times(base, times.begin - min(call.work, 1.0), times.end)
                | {"cat": "cpu_op", "name": "aten::op", "args": {"External id": number}}
            )
        if not call.activity:
            continue
        arguments: dict[str, Any] = {"stream": 7, "correlation": number, "device": 0}
        if call.is_launch:
            arguments |= {"grid": _grid(rng, call.blocks), "block": [rng.choice((128, 256, 512)), 1, 1]}
        else:
            arguments |= {"bytes": call.bytes}
        events.append(
            {"ph": "X", "pid": 0, "tid": 7, "cat": "kernel" if call.is_launch else "gpu_memcpy", "name": call.activity}
            | _times(base, times.activity_begin, times.activity_end)
            | {"args": arguments}
        )
    # A report must not rely on an order that the format does not promise.
    rng.shuffle(events)
    properties = [{"id": 0, "name": "NVIDIA", "numSms": multiprocessors}]
    return json.dumps({"schemaVersion": 1, "deviceProperties": properties, "traceEvents": events}).encode()


def _times(base: float, begin: float, end: float) -> dict[str, float]:
    """Return start and duration in microseconds, with three digits, as the profiler writes them."""
    start = round(base + begin, 3)
    return {"ts": start, "dur": round(base + end - start, 3)}


def _grid(rng: random.Random, blocks: int) -> list[int]:
    """Return a grid of so many blocks, sometimes with two or three axes."""
    height = rng.choice([candidate for candidate in (1, 2, 3, 4) if blocks % candidate == 0])
    depth = rng.choice([candidate for candidate in (1, 2, 3) if blocks // height % candidate == 0])
    return [blocks // height // depth, height, depth]


def _draw_calls(rng: random.Random, profile: str, operators: int, multiprocessors: int) -> list[Call]:
    """Draw the calls of a step. Times are whole nanoseconds.

    Rules that a report may forget have to show: kernels with as many blocks as multiprocessors, elementwise kernels
    with fewer, a wait within a chain of them, and a last call that does not wait.
    """

    def microseconds(low: float, high: float) -> float:
        return round(math.exp(rng.uniform(math.log(low), math.log(high))), 3)

    # Each profile scales what is to dominate; all other times are drawn alike.
    slow_host = {"launches": 5.0, "waits": 2.5, "hidden host": 2.0}.get(profile, 1.0)
    long_kernels = {"launches": 0.3, "hidden host": 8.0}.get(profile, 1.0)
    weights = {"product": 4, "elementwise": 2, "rows": 2, "few blocks": 1, "copy": 0.5, "pinned": 0.5, "wait": 0.5}
    favored = {"elementwise": "elementwise", "copies": "copy", "few blocks": "few blocks", "waits": "wait"}
    if profile in favored:
        weights[favored[profile]] *= 10 if profile == "waits" else 5
    calls: list[Call] = []

    def work() -> float:
        return round(slow_host * microseconds(1.5, 8), 3)

    def launch(kind: str, low: float, high: float, blocks: int) -> None:
        name = rng.choice(("cudaLaunchKernel", "cudaLaunchKernel", "cuLaunchKernelEx", "cudaLaunchKernelExC"))
        duration = round(long_kernels * microseconds(low, high), 3)
        calls.append(Call(name, work(), microseconds(2, 6), False, rng.choice(_NAMES[kind]), duration, blocks))

    def copy(activity: str, amount: int, waits: bool) -> None:
        duration = round(1 + amount / (12e3 if waits else 50e3), 3)
        cost = 0.0 if waits else microseconds(2, 5)
        calls.append(Call("cudaMemcpyAsync", work(), cost, waits, activity, duration, 0, amount))

    def wait() -> None:
        calls.append(Call(SYNCHRONIZE, work(), 0.0, waits=True))

    launch("product", 10, 60, rng.randint(150, 2000))
    for kind in rng.choices(list(weights), list(weights.values()), k=operators):
        if kind == "elementwise":
            for position in range(rng.randint(1, 7)):
                # A wait between two elementwise kernels ends the chain that could be fused.
                if position and rng.random() < 0.1:
                    wait()
                fewest = rng.choice((1, 150, 150, 150))
                launch("elementwise", 5, 30, rng.randint(fewest, 100 * fewest))
        elif kind == "few blocks":
            launch("few blocks", 15, 120, rng.choice((rng.randint(1, 60), rng.randint(1, 60), multiprocessors)))
        elif kind == "copy":
            copy(PAGEABLE, rng.randrange(100_000, 2_000_000), waits=True)
        elif kind == "pinned":
            copy("Memcpy HtoD (Pinned -> Device)", rng.randrange(10_000, 2_000_000), waits=False)
        elif kind == "wait":
            copy("Memcpy DtoH (Device -> Pinned)", 4, waits=False)
            wait()
        else:
            launch(kind, 10, 80, rng.randint(150, 4000))
    launch("rows", 5, 20, rng.randint(150, 4000))
    if rng.random() < 0.7:
        wait()
    return calls
