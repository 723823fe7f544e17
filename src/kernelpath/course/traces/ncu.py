"""Parse Nsight Compute's CSV (`ncu --csv --page raw`): a row of names, a row of units, then a row per launch.

Numbers may have commas between thousands, and units are scaled: a duration is in ns, us or ms, a size in byte,
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

NUMBER = "ID"
NAME = "Kernel Name"
BLOCK = "Block Size"
GRID = "Grid Size"
DURATION = "gpu__time_duration.sum"
DRAM = "dram__throughput.avg.pct_of_peak_sustained_elapsed"
SM = "sm__throughput.avg.pct_of_peak_sustained_elapsed"
TENSOR = "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed"
STALL = re.compile(r"smsp__average_warps_issue_stalled_(\w+)_per_issue_active\.ratio")

_TIMES = {"ns": 1.0, "nsecond": 1.0, "us": 1e3, "usecond": 1e3, "ms": 1e6, "msecond": 1e6, "s": 1e9, "second": 1e9}
_SIZES = {"byte": 1.0, "Kbyte": 1e3, "Mbyte": 1e6, "Gbyte": 1e9, "Tbyte": 1e12}


@dataclass(frozen=True)
class ProfiledLaunch:
    """A profiled launch.

    Attributes:
        text: All of its fields.
        metrics: Numbers by ncu's name, in nanoseconds and bytes.
    """

    name: str
    number: int
    text: Mapping[str, str]
    metrics: Mapping[str, float]

    def shape(self, name: str) -> tuple[int, ...]:
        """Return GRID or BLOCK, along x, y and z."""
        return tuple(int(extent) for extent in re.findall(r"\d+", self.text.get(name, "")))


def read(content: bytes, needed: Sequence[str] = ()) -> Sequence[ProfiledLaunch]:
    """Return the launches in the order of their numbers. Raises Malformed, also if a needed metric is missing."""
    head, units, rows = table(content)
    launches: list[ProfiledLaunch] = []
    for row in rows:
        if len(row) != len(head):
            raise Malformed(f"a row of the CSV has {len(row)} fields, its header has {len(head)}; is it cut off?")
        text = dict(zip(head, row, strict=True))
        values = ((name, number(value, unit)) for name, value, unit in zip(head, row, units, strict=True))
        # Names and other texts are no metrics.
        metrics = {name: value for name, value in values if value is not None}
        launches.append(ProfiledLaunch(text[NAME], int(metrics.get(NUMBER, len(launches))), text, metrics))
    if not launches:
        raise Malformed("the CSV of ncu has a header and no launch; did the kernels run between Start and Stop?")
    missing = [name for name in needed if any(name not in launch.metrics for launch in launches)]
    if missing:
        raise Malformed(f"the CSV of ncu has no {missing[0]} for some launch; record it with --metrics {missing[0]}")
    return sorted(launches, key=lambda launch: launch.number)


def table(content: bytes) -> tuple[list[str], list[str], list[list[str]]]:
    """Return names, units and rows as text. Lines before the header, in which ncu reports progress, are skipped."""
    try:
        lines = [row for row in csv.reader(io.StringIO(content.decode("utf-8"))) if row]
    except (UnicodeDecodeError, csv.Error) as error:
        raise Malformed(f"the CSV of ncu cannot be read: {error}") from error
    # The header is found by a column that it always has, since ncu's own messages come before it.
    start = next((index for index, row in enumerate(lines) if NAME in row), None)
    if start is None or len(lines) < start + 2:
        raise Malformed(f"the file is not what `ncu --csv --page raw` writes: it has no column {NAME} above its units")
    head, units = lines[start : start + 2]
    if len(units) != len(head):
        raise Malformed("the CSV of ncu has no row of units below its header; is it --page raw?")
    return head, units, lines[start + 2 :]


def number(text: str, unit: str = "") -> float | None:
    """Return the value in nanoseconds or bytes if it has such a unit, else unchanged; None if it is no number."""
    try:
        # ncu writes thousands with commas in the C locale.
        value = float(text.replace(",", ""))
    except ValueError:
        return None
    if not math.isfinite(value):
        return None
    return value * _TIMES.get(unit, _SIZES.get(unit, 1.0))
