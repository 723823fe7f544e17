"""Vary a recording: other names, times, orders and counters, so that no fact can be known in advance.

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
    """ncu's CSV, to be changed in place.

    Attributes:
        progress: The lines that ncu printed above the CSV.
    """

    def __init__(self, content: bytes) -> None:
        self.head, self.units, self.rows = ncu.table(content)
        self.progress = content[: content.index(b'"ID"')] if b'"ID"' in content else b""

    def by_number(self) -> list[list[str]]:
        """Return the rows in the order of launch."""
        column = self.column(ncu.NUMBER)
        return sorted(self.rows, key=lambda row: ncu.number(row[column]) or 0)

    def column(self, name: str) -> int:
        if name not in self.head:
            raise Malformed(f"the CSV of ncu has no column {name}; record it with --metrics {name}")
        return self.head.index(name)

    def scale(self, name: str, factor: float) -> None:
        """Multiply the numbers of a column."""
        column = self.column(name)
        for row in self.rows:
            if (value := ncu.number(row[column])) is not None:
                row[column] = f"{value * factor:.10g}"

    def to_bytes(self) -> bytes:
        text = io.StringIO()
        csv.writer(text, quoting=csv.QUOTE_ALL, lineterminator="\n").writerows([self.head, self.units, *self.rows])
        return self.progress + text.getvalue().encode()


def apply_changes(
    rng: random.Random, changes: Sequence[Change], kernels: int, trace: bytes, counters: bytes
) -> tuple[bytes, bytes]:
    """Return the Chrome trace and ncu's CSV after these changes. Raises traces.Malformed.

    Args:
        kernels: The maximum number of kernels to keep, the first ones.
    """
    chrome.read(trace)  # raises Malformed for an invalid trace
    events = chrome.events_of(trace)
    table = Table(counters)
    kept_kernels = _kernels(events)[:kernels]
    last = max((_correlation(event) for event in kept_kernels), default=0)
    # Copies and fills that were launched after the last of these kernels are dropped as well.
    events = [event for event in events if event.get("cat") not in chrome.ON_GPU or _correlation(event) <= last]
    table.rows = table.by_number()[:kernels]
    for change in changes:
        change(rng, events, table)
    return json.dumps({"schemaVersion": 1, "traceEvents": events}).encode(), table.to_bytes()


def other_names(rng: random.Random, events: Events, table: Table) -> None:
    """Exchange the names of the kernels, and those of the ranges."""
    kernels = _kernels(events)
    name_column = table.column(ncu.NAME)
    csv_names = {event["name"]: row[name_column] for event, row in zip(kernels, table.by_number(), strict=False)}
    new_names = _shuffle_mapping(rng, csv_names)
    for event, row in zip(kernels, table.by_number(), strict=False):
        event["name"] = new_names[event["name"]]
        row[name_column] = csv_names[event["name"]]
    ranges = [event for event in events if event.get("cat") == chrome.RANGE]
    new_range_names = _shuffle_mapping(rng, dict.fromkeys(event["name"] for event in ranges))
    for event in ranges:
        event["name"] = new_range_names[event["name"]]


def _kernels(events: Events) -> Events:
    """Return the kernels in the order of launch."""
    kernels = [event for event in events if event.get("cat") == "kernel"]
    return sorted(kernels, key=_correlation)


def _correlation(event: Mapping[str, Any]) -> int:
    return int(event["args"]["correlation"])


def _shuffle_mapping(rng: random.Random, names: Mapping[str, Any]) -> Mapping[str, str]:
    return dict(zip(names, _shuffle(rng, list(names)), strict=True))


def other_times(rng: random.Random, events: Events, table: Table, idle: float = 0.2) -> None:
    """Stretch or shrink the time of each kernel, and of the idle time between kernels."""
    timed = [event for event in events if event.get("ph") == "X" and event.get("cat") in chrome.ON_GPU]
    timed.sort(key=lambda event: event["ts"])
    factors = {event["name"]: math.exp(rng.uniform(-1, 1)) for event in timed}
    # One increasing, piecewise linear function maps the times of host and GPU, so a range still encloses the launches
    # that it enclosed.
    marks = [0.0]
    warped = [0.0]
    slopes = [1.0]
    for event in timed:
        start = max(float(event["ts"]), marks[-1])
        end = float(event["ts"]) + float(event["dur"])
        if end > start:
            for time, slope in ((start, factors[event["name"]]), (end, idle * math.exp(rng.uniform(-1, 1)))):
                warped.append(warped[-1] + (time - marks[-1]) * slopes[-1])
                marks.append(time)
                slopes.append(slope)
    # After the last activity on the GPU the host's time passes as recorded.
    slopes[-1] = 1.0

    def warp(time: float) -> float:
        index = bisect.bisect_right(marks, time) - 1
        return warped[index] + (time - marks[index]) * slopes[index]

    for event in events:
        if "ts" in event:
            start = float(event["ts"])
            if "dur" in event:
                event["dur"] = round(warp(start + float(event["dur"])) - warp(start), 3)
            event["ts"] = round(warp(start), 3)
    table.scale(ncu.DURATION, math.exp(rng.uniform(-1, 1)))


def longer_gaps(rng: random.Random, events: Events, table: Table) -> None:
    """Let the GPU wait for the host much of the time."""
    other_times(rng, events, table, idle=3)


def another_order(rng: random.Random, events: Events, table: Table) -> None:
    """Shuffle events, rows and columns, and give durations in microseconds, as ncu writes them by default.

    The column "ID" stays the first: a reader may use it to find the header below ncu's lines of progress.
    """
    rng.shuffle(events)
    rng.shuffle(table.rows)
    id_column = table.column(ncu.NUMBER)
    other_columns = [column for column in range(len(table.head)) if column != id_column]
    rng.shuffle(other_columns)
    columns = [id_column, *other_columns]
    table.head, table.units, *table.rows = [
        [row[column] for column in columns] for row in (table.head, table.units, *table.rows)
    ]
    if table.units[table.column(ncu.DURATION)] in ("ns", "nsecond"):
        table.scale(ncu.DURATION, 1e-3)
        table.units[table.column(ncu.DURATION)] = "us"


def two_streams(rng: random.Random, events: Events, table: Table) -> None:
    """Move some kernels to a second stream, where they overlap with the kernels before them."""
    kernels = sorted((event for event in events if event.get("cat") == "kernel"), key=lambda event: event["ts"])
    for previous, event in pairwise(kernels):
        if rng.random() < 0.3 and event["args"]["stream"] == previous["args"]["stream"]:
            event["ts"] = round(float(previous["ts"]) + rng.uniform(0.2, 0.8) * float(previous["dur"]), 3)
            event["args"]["stream"] = int(previous["args"]["stream"]) + 1


def other_counters(rng: random.Random, events: Events, table: Table) -> None:
    """Make each kernel randomly busy with memory or with arithmetic."""
    name, *percent_columns = (table.column(name) for name in (ncu.NAME, ncu.DRAM, ncu.SM, ncu.TENSOR))
    percentages_by_name: dict[str, tuple[float, ...]] = {}
    for row in table.rows:
        if row[name] not in percentages_by_name:
            high = rng.uniform(66, 92)
            low = rng.uniform(20, 45)
            lower = rng.uniform(5, 15)
            percentages_by_name[row[name]] = rng.choice(
                [(high, low, lower), (low, high, high), (low, high, lower), (low, lower, 0)]
            )
        for column, percent in zip(percent_columns, percentages_by_name[row[name]], strict=True):
            row[column] = f"{percent * rng.uniform(0.95, 1.05):.2f}"


def other_launches(rng: random.Random, events: Events, table: Table) -> None:
    """Exchange the shapes of launches and, each group for itself, their counters; shuffle the stall reasons.

    Each stall is less frequent than issuing: "selected" is 1 everywhere.
    """
    kernels = _kernels(events)
    for event, other_arguments in zip(kernels, _shuffle(rng, [event["args"] for event in kernels]), strict=True):
        event["args"] = {
            **event["args"],
            **{name: other_arguments[name] for name in _SHAPE_ARGUMENTS if name in other_arguments},
        }
        event["args"].update({name: _fold_shape(event["args"][name]) for name in ("grid", "block")})
    for pattern in _COLUMN_GROUPS:
        columns = [column for column, name in enumerate(table.head) if re.match(pattern, name)]
        rows = _shuffle(rng, [[row[column] for column in columns] for row in table.rows])
        for row, values in zip(table.rows, rows, strict=True):
            for column, value in zip(columns, values, strict=True):
                row[column] = value
    stalls = ((column, ncu.STALL.fullmatch(name)) for column, name in enumerate(table.head))
    reasons = [column for column, stall in stalls if stall and stall[1] != "selected"]
    for row in table.rows:
        values = [ncu.number(row[column]) or 0.0 for column in reasons]
        scale = rng.uniform(0.3, 0.95) / (max(values) or 1.0)
        for column, value in zip(reasons, _shuffle(rng, values), strict=True):
            row[column] = f"{scale * value:.3f}"


def _fold_shape(shape: Sequence[int]) -> list[int]:
    """Return a shape with as many blocks or threads, half of them along y."""
    x, y, z = shape
    return [x // 2, 2 * y, z] if x % 2 == 0 else [x, y, z]


_SHAPE_ARGUMENTS = ("grid", "block", "registers per thread", "shared memory")

# Groups of columns that belong together in a launch, as the beginnings of ncu's names.
_COLUMN_GROUPS = (
    "(launch__|Block Size|Grid Size)",
    "gpu__time",
    "dram__bytes",
    "l1tex__",
    "sm__warps",
    ".*stalled",
    "sm__pipe",
)


def _shuffle(rng: random.Random, values: Sequence[Any]) -> list[Any]:
    return rng.sample(values, len(values))


# Variants of the recording of a step, by name.
OF_A_STEP: Mapping[str, Sequence[Change]] = {
    "as recorded": (),
    "other names": (other_names, other_times),
    "other times": (other_times, other_counters),
    "another order": (other_times, another_order),
    "two streams": (other_times, two_streams),
    "other counters": (other_counters,),
    "long gaps": (longer_gaps, other_names),
}

# Variants of a file of one tool, by name.
OF_A_FILE: Mapping[str, Sequence[Change]] = {
    "as recorded": (),
    "other launches": (other_times, other_launches),
    "another order": (other_names, other_times, other_launches, another_order),
}
