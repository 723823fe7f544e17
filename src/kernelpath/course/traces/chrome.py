"""Parse torch.profiler's Chrome trace: kernels and copies on the GPU, the calls that launched them, and named ranges.

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
    """A kernel or a copy on the GPU.

    Attributes:
        correlation: The number that it shares with the call that launched it.
    """

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
class ChromeTrace:
    """The contents of a trace, sorted by start.

    Attributes:
        calls: Thread and time of each launch, by its correlation.
    """

    activities: Sequence[Activity]
    ranges: Sequence[Range]
    calls: Mapping[int, tuple[tuple[str, str], float]]

    @property
    def kernels(self) -> Sequence[Activity]:
        return [activity for activity in self.activities if activity.category == "kernel"]

    def range_of(self, activity: Activity) -> Range | None:
        """Return the innermost range that was open on the launching thread; None without one."""
        # No range has the thread None, so an activity whose call was not recorded is in no range.
        thread, time = self.calls.get(activity.correlation, (None, 0.0))
        enclosing = [
            candidate
            for candidate in self.ranges
            if candidate.thread == thread and candidate.start <= time <= candidate.end
        ]
        return max(enclosing, key=lambda candidate: (candidate.start, -candidate.end), default=None)

    def gaps(self) -> Iterator[tuple[float, float]]:
        """Yield the spans between the first start and the last end in which nothing runs on the GPU."""
        # Kernels of several streams overlap, so a gap begins at the latest end so far, and not at the end of the
        # previous one.
        busy_until = self.activities[0].end
        for activity in self.activities[1:]:
            if activity.start > busy_until:
                yield busy_until, activity.start
            busy_until = max(busy_until, activity.end)


def read(content: bytes) -> ChromeTrace:
    """Parse a trace. Raises Malformed if it is no trace, or one without a kernel."""
    # "X" is a complete event, with a start and a duration; metadata and flow arrows have other phases.
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
    if not any(entry.category == "kernel" for entry in activities):
        raise Malformed("the trace holds no kernel; record it with ProfilerActivity.CUDA, on a GPU")
    activities.sort(key=lambda entry: (entry.start, entry.end))
    return ChromeTrace(activities, sorted(ranges, key=lambda entry: entry.start), calls)


def events_of(content: bytes) -> list[dict[str, Any]]:
    """Return the events of a Chrome trace, in the order of the file. Raises Malformed."""
    try:
        document = json.loads(content)
    except (ValueError, RecursionError) as error:
        # json raises RecursionError for deeply nested brackets.
        reason = "it is empty" if not content.strip() else f"it is cut off or no JSON: {error}"
        raise Malformed(f"the trace cannot be read: {reason}") from error
    # The format allows an object with a list of events, and the list alone.
    events = document.get("traceEvents") if isinstance(document, dict) else document
    if not isinstance(events, list) or not all(isinstance(event, dict) for event in events):
        raise Malformed("the file is JSON, but has no list traceEvents, as a Chrome trace has")
    return events


def _activity(event: dict[str, Any]) -> Activity:
    start = float(event["ts"])
    arguments = event["args"]
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
