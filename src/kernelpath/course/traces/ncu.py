"""Nsight Compute's CSV (`ncu --csv --page raw`): a row of names, a row of units, then a row a launch.

Numbers may have commas between thousands, and units are scaled: a duration stands in ns, us or ms, a size in byte,
Kbyte or Mbyte. Source: Nsight Compute CLI, "Command Line Options", --page raw, --print-units.
"""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kernelpath.course.traces import Malformed

NUMBER, NAME, BLOCK, GRID = "ID", "Kernel Name", "Block Size", "Grid Size"
DURATION = "gpu__time_duration.sum"
DRAM = "dram__throughput.avg.pct_of_peak_sustained_elapsed"
SM = "sm__throughput.avg.pct_of_peak_sustained_elapsed"
TENSOR = "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed"
STALL = re.compile(r"smsp__average_warps_issue_stalled_(\w+)_per_issue_active\.ratio")

_TIMES = {"ns": 1.0, "nsecond": 1.0, "us": 1e3, "usecond": 1e3, "ms": 1e6, "msecond": 1e6, "s": 1e9, "second": 1e9}
_SIZES = {"byte": 1.0, "Kbyte": 1e3, "Mbyte": 1e6, "Gbyte": 1e9, "Tbyte": 1e12}


@dataclass(frozen=True)
class Launch:
    """A profiled launch. metrics: numbers by ncu's name, in nanoseconds and bytes. text: all of its fields."""

    name: str
    number: int
    text: Mapping[str, str]
    metrics: Mapping[str, float]

    def shape(self, name: str) -> tuple[int, ...]:
        """GRID or BLOCK, along x, y and z."""
        return tuple(int(extent) for extent in re.findall(r"\d+", self.text.get(name, "")))


def read(content: bytes, needed: Sequence[str] = ()) -> Sequence[Launch]:
    """The launches in the order of their numbers. Raises Malformed, also where a needed metric is not there."""
    head, units, rows = table(content)
    launches: list[Launch] = []
    for row in rows:
        if len(row) != len(head):
            raise Malformed(f"a row of the CSV has {len(row)} fields, its header has {len(head)}; is it cut off?")
        text = dict(zip(head, row, strict=True))
        found = ((name, number(value, unit)) for name, value, unit in zip(head, row, units, strict=True))
        metrics = {name: value for name, value in found if value is not None}
        launches.append(Launch(text[NAME], int(metrics.get(NUMBER, len(launches))), text, metrics))
    if not launches:
        raise Malformed("the CSV of ncu has a header and no launch; did the kernels run between Start and Stop?")
    lacking = [name for name in needed if any(name not in launch.metrics for launch in launches)]
    if lacking:
        raise Malformed(f"the CSV of ncu has no {lacking[0]} for some launch; record it with --metrics {lacking[0]}")
    return sorted(launches, key=lambda launch: launch.number)


def table(content: bytes) -> tuple[list[str], list[str], list[list[str]]]:
    """Names, units and rows as text. Lines before the header, in which ncu reports progress, are skipped."""
    try:
        lines = [row for row in csv.reader(io.StringIO(content.decode("utf-8"))) if row]
    except (UnicodeDecodeError, csv.Error) as error:
        raise Malformed(f"the CSV of ncu cannot be read: {error}") from error
    start = next((place for place, row in enumerate(lines) if NAME in row), None)
    if start is None or len(lines) < start + 2:
        raise Malformed(f"the file is not what `ncu --csv --page raw` writes: it has no column {NAME} above its units")
    head, units = lines[start : start + 2]
    if len(units) != len(head):
        raise Malformed("the CSV of ncu has no row of units below its header; is it --page raw?")
    return head, units, lines[start + 2 :]


def number(text: str, unit: str = "") -> float | None:
    """The value in nanoseconds or bytes where it has such a unit, else as it stands; None where it is no number."""
    try:
        value = float(text.replace(",", ""))
    except ValueError:
        return None
    if not math.isfinite(value):
        return None
    return value * _TIMES.get(unit, _SIZES.get(unit, 1.0))
