"""Write the events of launches in the Trace Event Format, which ui.perfetto.dev and chrome://tracing open."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from warpcheck.events import Event, EventKind
from warpcheck.report import Launch

__all__ = ["trace_document"]

# The events that begin a state of a warp, which lasts until its next one.
_STATES = {EventKind.RUN: "run", EventKind.WAIT: "wait", EventKind.PREEMPTED: "ready"}

_NAMES = {
    EventKind.PASS: "pass",
    EventKind.LOAD: "issue load",
    EventKind.STORE: "issue store",
    EventKind.LAND: "land",
    EventKind.ARRIVE: "arrive",
    EventKind.MULTIPLY: "multiply",
    EventKind.COMMIT: "commit",
}


def trace_document(launches: Iterable[Launch]) -> dict[str, Any]:
    """Return the JSON object of a trace: a process for each launch with events, and a thread for each warp.

    A microsecond of the trace is an executed instruction of the launch, which orders events and is not a time.
    """
    events: list[dict[str, Any]] = []
    for number, launch in enumerate(launches):
        if launch.timeline:
            events += _launch_events(number, launch)
    return {"traceEvents": events, "displayTimeUnit": "ns", "otherData": {"unit": "executed warp instructions"}}


def _launch_events(number: int, launch: Launch) -> Iterator[dict[str, Any]]:
    yield {"ph": "M", "name": "process_name", "pid": number, "args": {"name": f"{launch.kernel} (launch {number})"}}
    by_warp: dict[tuple[int, int], list[Event]] = {}
    for event in launch.timeline:
        by_warp.setdefault((event.block, event.warp), []).append(event)
    end = max(event.step for event in launch.timeline) + 1
    for thread, ((block, warp), events) in enumerate(sorted(by_warp.items())):
        name = {"name": f"block {block}, warp {warp}"}
        yield {"ph": "M", "name": "thread_name", "pid": number, "tid": thread, "args": name}
        for trace_event in _warp_events(events, end, launch):
            yield {**trace_event, "pid": number, "tid": thread}


def _warp_events(events: Sequence[Event], end: int, launch: Launch) -> Iterator[dict[str, Any]]:
    # The machine records when a state begins. It ends with the next one of the same warp.
    changes = [event for event in events if event.kind in _STATES or event.kind == EventKind.EXIT]
    for event, following in zip(changes, [*changes[1:], None], strict=True):
        if event.kind != EventKind.EXIT:
            stop = following.step if following else end
            name = f"{_STATES[event.kind]} {event.barrier}".strip()
            yield {"ph": "X", "name": name, "ts": event.step, "dur": stop - event.step, **_arguments(event, launch)}
    for event in events:
        if event.kind in _NAMES:
            name = f"{_NAMES[event.kind]} {event.barrier}".strip()
            yield {"ph": "i", "s": "t", "name": name, "ts": event.step, **_arguments(event, launch)}


def _arguments(event: Event, launch: Launch) -> dict[str, Any]:
    values = {
        "line": event.line,
        "source": launch.source_line(event.line) if event.line else "",
        "instruction": event.instruction,
        "phase": event.phase,
        "bytes": event.bytes,
    }
    return {"args": {name: value for name, value in values.items() if value}}
