"""The same recording with other names, times, orders and counters, so that no fact can be known in advance.

Each change keeps what a reader may rely on: a range encloses the launches that it enclosed, and every kernel of the
trace is in the CSV of counters.
"""

from __future__ import annotations

import bisect
import csv
import io
import json
import math
import random
import re
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any

from kernelpath.course.traces import Malformed, chrome, ncu

Events = list[dict[str, Any]]
Change = Callable[[random.Random, Events, "Table"], None]


class Table:
    """ncu's CSV, to be changed in place. progress: what ncu printed above it."""

    def __init__(self, content: bytes) -> None:
        self.head, self.units, self.rows = ncu.table(content)
        self.progress = content[: content.index(b'"ID"')] if b'"ID"' in content else b""

    def by_number(self) -> list[list[str]]:
        """The rows in the order of launch."""
        place = self.column(ncu.NUMBER)
        return sorted(self.rows, key=lambda row: ncu.number(row[place]) or 0)

    def column(self, name: str) -> int:
        if name not in self.head:
            raise Malformed(f"the CSV of ncu has no column {name}; record it with --metrics {name}")
        return self.head.index(name)

    def scale(self, name: str, factor: float) -> None:
        """Multiply the numbers of a column."""
        place = self.column(name)
        for row in self.rows:
            if (value := ncu.number(row[place])) is not None:
                row[place] = f"{value * factor:.10g}"

    def written(self) -> bytes:
        text = io.StringIO()
        csv.writer(text, quoting=csv.QUOTE_ALL, lineterminator="\n").writerows([self.head, self.units, *self.rows])
        return self.progress + text.getvalue().encode()


def varied(
    rng: random.Random, changes: Sequence[Change], kernels: int, trace: bytes, counters: bytes
) -> tuple[bytes, bytes]:
    """The Chrome trace and ncu's CSV after these changes. kernels: how many are kept at most, the first ones.

    Raises traces.Malformed.
    """
    chrome.read(trace)  # which says what is wrong with it
    events, table = chrome.events_of(trace), Table(counters)
    kept = _kernels(events)[:kernels]
    last = max((_correlation(event) for event in kept), default=0)
    events = [one for one in events if one.get("cat") not in chrome.ON_GPU or _correlation(one) <= last]
    table.rows = table.by_number()[:kernels]
    for change in changes:
        change(rng, events, table)
    return json.dumps({"schemaVersion": 1, "traceEvents": events}).encode(), table.written()


def other_names(rng: random.Random, events: Events, table: Table) -> None:
    """The kernels exchange their names, and so do the ranges."""
    kernels, place = _kernels(events), table.column(ncu.NAME)
    of_csv = {event["name"]: row[place] for event, row in zip(kernels, table.by_number(), strict=False)}
    new = _shuffled(rng, of_csv)
    for event, row in zip(kernels, table.by_number(), strict=False):
        event["name"] = new[event["name"]]
        row[place] = of_csv[event["name"]]
    ranges = [event for event in events if event.get("cat") == chrome.RANGE]
    renamed = _shuffled(rng, dict.fromkeys(event["name"] for event in ranges))
    for event in ranges:
        event["name"] = renamed[event["name"]]


def _kernels(events: Events) -> Events:
    """In the order of launch."""
    kernels = [event for event in events if event.get("cat") == "kernel"]
    return sorted(kernels, key=_correlation)


def _correlation(event: Mapping[str, Any]) -> int:
    return int(event["args"]["correlation"])


def _shuffled(rng: random.Random, names: Mapping[str, Any]) -> Mapping[str, str]:
    return dict(zip(names, _shuffled_list(rng, list(names)), strict=True))


def other_times(rng: random.Random, events: Events, table: Table, idle: float = 0.2) -> None:
    """Time runs faster or slower while one kernel or another runs, and between them idle times as slow."""
    timed = [event for event in events if event.get("ph") == "X" and event.get("cat") in chrome.ON_GPU]
    timed.sort(key=lambda event: event["ts"])
    factors = {event["name"]: math.exp(rng.uniform(-1, 1)) for event in timed}
    marks, warped, slopes = [0.0], [0.0], [1.0]
    for event in timed:
        begin, end = max(float(event["ts"]), marks[-1]), float(event["ts"]) + float(event["dur"])
        if end > begin:
            for time, slope in ((begin, factors[event["name"]]), (end, idle * math.exp(rng.uniform(-1, 1)))):
                warped.append(warped[-1] + (time - marks[-1]) * slopes[-1])
                marks.append(time)
                slopes.append(slope)
    slopes[-1] = 1.0

    def warp(time: float) -> float:
        place = bisect.bisect_right(marks, time) - 1
        return warped[place] + (time - marks[place]) * slopes[place]

    for event in events:
        if "ts" in event:
            begin = float(event["ts"])
            if "dur" in event:
                event["dur"] = round(warp(begin + float(event["dur"])) - warp(begin), 3)
            event["ts"] = round(warp(begin), 3)
    table.scale(ncu.DURATION, math.exp(rng.uniform(-1, 1)))


def longer_gaps(rng: random.Random, events: Events, table: Table) -> None:
    """The GPU waits for the host much of the time."""
    other_times(rng, events, table, idle=3)


def another_order(rng: random.Random, events: Events, table: Table) -> None:
    """Events, rows and columns stand in any order, and durations in microseconds, as ncu writes them by default.

    The column "ID" stays the first: a reader may find the header below ncu's lines of progress by it.
    """
    rng.shuffle(events)
    rng.shuffle(table.rows)
    first = table.column(ncu.NUMBER)
    others = [column for column in range(len(table.head)) if column != first]
    rng.shuffle(others)
    columns = [first, *others]
    table.head, table.units, *table.rows = [
        [row[place] for place in columns] for row in (table.head, table.units, *table.rows)
    ]
    if table.units[table.column(ncu.DURATION)] in ("ns", "nsecond"):
        table.scale(ncu.DURATION, 1e-3)
        table.units[table.column(ncu.DURATION)] = "us"


def two_streams(rng: random.Random, events: Events, table: Table) -> None:
    """Some kernels run on a second stream, while those before them still run."""
    kernels = sorted((event for event in events if event.get("cat") == "kernel"), key=lambda event: event["ts"])
    for before, event in pairwise(kernels):
        if rng.random() < 0.3 and event["args"]["stream"] == before["args"]["stream"]:
            event["ts"] = round(float(before["ts"]) + rng.uniform(0.2, 0.8) * float(before["dur"]), 3)
            event["args"]["stream"] = int(before["args"]["stream"]) + 1


def other_counters(rng: random.Random, events: Events, table: Table) -> None:
    """Each kernel is as busy with memory or with arithmetic as chance has it."""
    name, *places = (table.column(name) for name in (ncu.NAME, ncu.DRAM, ncu.SM, ncu.TENSOR))
    drawn: dict[str, tuple[float, ...]] = {}
    for row in table.rows:
        if row[name] not in drawn:
            high, low, lower = rng.uniform(66, 92), rng.uniform(20, 45), rng.uniform(5, 15)
            drawn[row[name]] = rng.choice([(high, low, lower), (low, high, high), (low, high, lower), (low, lower, 0)])
        for place, percent in zip(places, drawn[row[name]], strict=True):
            row[place] = f"{percent * rng.uniform(0.95, 1.05):.2f}"


def other_launches(rng: random.Random, events: Events, table: Table) -> None:
    """Launches exchange their shapes and, each kind for itself, their counters; stalls exchange their reasons.

    Fewer warps stall for any of them than issue: "selected" is 1 everywhere.
    """
    kernels = _kernels(events)
    for event, other in zip(kernels, _shuffled_list(rng, [event["args"] for event in kernels]), strict=True):
        event["args"] = {**event["args"], **{name: other[name] for name in _SHAPE if name in other}}
        event["args"].update({name: _folded(event["args"][name]) for name in ("grid", "block")})
    for kind in _KINDS:
        columns = [place for place, name in enumerate(table.head) if re.match(kind, name)]
        rows = _shuffled_list(rng, [[row[place] for place in columns] for row in table.rows])
        for row, values in zip(table.rows, rows, strict=True):
            for place, value in zip(columns, values, strict=True):
                row[place] = value
    stalls = ((place, ncu.STALL.fullmatch(name)) for place, name in enumerate(table.head))
    reasons = [place for place, stall in stalls if stall and stall[1] != "selected"]
    for row in table.rows:
        values = [ncu.number(row[place]) or 0.0 for place in reasons]
        scale = rng.uniform(0.3, 0.95) / (max(values) or 1.0)
        for place, value in zip(reasons, _shuffled_list(rng, values), strict=True):
            row[place] = f"{scale * value:.3f}"


def _folded(shape: Sequence[int]) -> list[int]:
    """As many blocks or threads, half of them along y."""
    x, y, z = shape
    return [x // 2, 2 * y, z] if x % 2 == 0 else [x, y, z]


_SHAPE = ("grid", "block", "registers per thread", "shared memory")
_KINDS = (
    "(launch__|Block Size|Grid Size)",
    "gpu__time",
    "dram__bytes",
    "l1tex__",
    "sm__warps",
    ".*stalled",
    "sm__pipe",
)
"""What belongs together in a launch, as the beginnings of ncu's names."""


def _shuffled_list(rng: random.Random, values: Sequence[Any]) -> list[Any]:
    return rng.sample(values, len(values))


OF_A_STEP: Mapping[str, Sequence[Change]] = {
    "as recorded": (),
    "other names": (other_names, other_times),
    "other times": (other_times, other_counters),
    "another order": (other_times, another_order),
    "two streams": (other_times, two_streams),
    "other counters": (other_counters,),
    "long gaps": (longer_gaps, other_names),
}
"""Of the recording of a step, by name."""

OF_A_FILE: Mapping[str, Sequence[Change]] = {
    "as recorded": (),
    "other launches": (other_times, other_launches),
    "another order": (other_names, other_times, other_launches, another_order),
}
"""Of a file of one tool."""
