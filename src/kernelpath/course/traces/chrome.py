"""torch.profiler's Chrome trace: kernels and copies on the GPU, the calls that launched them, and named ranges.

Times are microseconds on one clock for host and GPU. Format: "Trace Event Format" of the Chromium project; the
categories and arguments are those of PyTorch's profiler (Kineto).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kernelpath.course.traces import Malformed

ON_GPU = ("kernel", "gpu_memcpy", "gpu_memset")
CALLS = ("cuda_runtime", "cuda_driver")
RANGE = "user_annotation"


@dataclass(frozen=True)
class Activity:
    """A kernel or a copy on the GPU. correlation: the number that it shares with the call that launched it."""

    name: str
    category: str
    start: float
    end: float
    stream: int
    correlation: int
    arguments: Mapping[str, Any] = field(repr=False)

    @property
    def duration(self) -> float:
        return self.end - self.start


@dataclass(frozen=True)
class Range:
    """A named range on a thread of the host."""

    name: str
    start: float
    end: float
    thread: tuple[str, str]


@dataclass(frozen=True)
class Timeline:
    """What a trace holds, in the order of start. calls: thread and time of each launch, by its correlation."""

    activities: Sequence[Activity]
    ranges: Sequence[Range]
    calls: Mapping[int, tuple[tuple[str, str], float]]

    @property
    def kernels(self) -> Sequence[Activity]:
        return [one for one in self.activities if one.category == "kernel"]

    def range_of(self, activity: Activity) -> Range | None:
        """The innermost range that was open on the launching thread; None outside of all, or for an unknown call."""
        thread, time = self.calls.get(activity.correlation, (None, 0.0))
        around = [one for one in self.ranges if one.thread == thread and one.start <= time <= one.end]
        return max(around, key=lambda one: (one.start, -one.end), default=None)

    def gaps(self) -> Iterator[tuple[float, float]]:
        """The spans between the first activity's start and the last one's end in which nothing runs on the GPU."""
        busy_until = self.activities[0].end
        for activity in self.activities[1:]:
            if activity.start > busy_until:
                yield busy_until, activity.start
            busy_until = max(busy_until, activity.end)


def read(content: bytes) -> Timeline:
    """Raises Malformed where it is no trace, or one without a kernel."""
    complete = [event for event in events_of(content) if event.get("ph") == "X"]
    try:
        activities = [_activity(event) for event in complete if event.get("cat") in ON_GPU]
        ranges = [
            Range(str(event["name"]), float(event["ts"]), float(event["ts"]) + float(event["dur"]), _thread(event))
            for event in complete
            if event.get("cat") == RANGE
        ]
        calls = {
            int(event["args"]["correlation"]): (_thread(event), float(event["ts"]))
            for event in complete
            if event.get("cat") in CALLS and "correlation" in event.get("args", {})
        }
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise Malformed(f"an event of the trace has no usable {error}; record it again with torch.profiler") from error
    if not any(one.category == "kernel" for one in activities):
        raise Malformed("the trace holds no kernel; record it with ProfilerActivity.CUDA, on a GPU")
    activities.sort(key=lambda one: (one.start, one.end))
    return Timeline(activities, sorted(ranges, key=lambda one: one.start), calls)


def events_of(content: bytes) -> list[dict[str, Any]]:
    """The events of a Chrome trace, in the order of the file. Raises Malformed."""
    try:
        document = json.loads(content)
    except (ValueError, RecursionError) as error:
        said = "it is empty" if not content.strip() else f"it is cut off or no JSON: {error}"
        raise Malformed(f"the trace cannot be read: {said}") from error
    events = document.get("traceEvents") if isinstance(document, dict) else document
    if not isinstance(events, list) or not all(isinstance(event, dict) for event in events):
        raise Malformed("the file is JSON, but has no list traceEvents, as a Chrome trace has")
    return events


def _activity(event: dict[str, Any]) -> Activity:
    start, arguments = float(event["ts"]), event["args"]
    return Activity(
        name=str(event["name"]),
        category=event["cat"],
        start=start,
        end=start + float(event["dur"]),
        stream=int(arguments["stream"]),
        correlation=int(arguments["correlation"]),
        arguments=arguments,
    )


def _thread(event: dict[str, Any]) -> tuple[str, str]:
    return str(event["pid"]), str(event["tid"])
