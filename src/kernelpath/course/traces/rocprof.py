"""Parse rocprofv3's counter_collection.csv: a row for each counter of each dispatch, with the dispatch's properties.

Source: ROCprofiler-SDK, "Using rocprofv3", and "MI300 and MI200 series performance counters and metrics". Grid_Size
counts work-items (threads) and not workgroups. FETCH_SIZE and WRITE_SIZE are kilobytes of 1024, OccupancyPercent and
MfmaUtil are percent, times are nanoseconds.
"""

from __future__ import annotations

import csv
import io
import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kernelpath.course.traces import Malformed
from kernelpath.course.traces.chrome import ChromeTrace

COLUMNS = (
    *("Correlation_Id", "Dispatch_Id", "Agent_Id", "Queue_Id", "Process_Id", "Thread_Id", "Grid_Size", "Kernel_Id"),
    *("Kernel_Name", "Workgroup_Size", "LDS_Block_Size", "Scratch_Size", "VGPR_Count", "Accum_VGPR_Count"),
    *("SGPR_Count", "Counter_Name", "Counter_Value", "Start_Timestamp", "End_Timestamp"),
)

SIZES = ("FETCH_SIZE", "WRITE_SIZE")

# Derived counters that any recent Instinct GPU has.
PERCENT = ("OccupancyPercent", "MfmaUtil")


@dataclass(frozen=True)
class Dispatch:
    """A launch.

    Attributes:
        registers: The vector registers of a work-item.
        counters: The counters by rocprofv3's names.
    """

    name: str
    nanoseconds: int
    blocks: int
    threads: int
    registers: int
    counters: Mapping[str, float]


def read(content: bytes) -> Sequence[Dispatch]:
    """Return the dispatches. Raises Malformed."""
    try:
        rows = list(csv.DictReader(io.StringIO(content.decode("utf-8"))))
        missing = [name for name in COLUMNS if rows and name not in rows[0]]
        if missing:
            raise Malformed(f"the CSV has no column {missing[0]}: rocprofv3 writes it into counter_collection.csv")
        counters: dict[str, dict[str, float]] = {}
        for row in rows:
            counters.setdefault(row["Dispatch_Id"], {})[row["Counter_Name"]] = float(row["Counter_Value"])
        first_rows = {row["Dispatch_Id"]: row for row in rows}
        dispatches = [_dispatch(row, counters[number]) for number, row in first_rows.items()]
    except Malformed:
        raise
    except (UnicodeDecodeError, csv.Error, ValueError, TypeError, ZeroDivisionError) as error:
        raise Malformed(f"the CSV of rocprofv3 cannot be read, is it cut off? {error}") from error
    if not dispatches:
        raise Malformed("the CSV of rocprofv3 contains no dispatch")
    return dispatches


def _dispatch(row: Mapping[str, str], counters: Mapping[str, float]) -> Dispatch:
    return Dispatch(
        name=row["Kernel_Name"],
        nanoseconds=int(row["End_Timestamp"]) - int(row["Start_Timestamp"]),
        blocks=int(row["Grid_Size"]) // int(row["Workgroup_Size"]),
        threads=int(row["Workgroup_Size"]),
        registers=int(row["VGPR_Count"]),
        counters=counters,
    )


def export(rng: random.Random, timeline: ChromeTrace, counters: Sequence[str]) -> bytes:
    """Return a CSV with the columns above, of the kernels of a Chrome trace, with random counter values.

    Args:
        counters: The names of the counters.
    """
    rows = []
    numbers = {kernel.name: number for number, kernel in enumerate(timeline.kernels, start=1)}
    for number, kernel in enumerate(timeline.kernels, start=1):
        threads = math.prod(kernel.arguments["block"])
        blocks = math.prod(kernel.arguments["grid"])
        vectors = -(-int(kernel.arguments["registers per thread"]) // 8) * 8
        dispatch = (number, number, 4, 1, 4711, 4711, threads * blocks, numbers[kernel.name], kernel.name, threads)
        times = (round(1e3 * kernel.start), round(1e3 * kernel.end))
        for name in counters:
            # Sizes are in units of 1024 bytes and durations in microseconds: the bandwidth is at most 4.1 TB/s.
            maximum = 100.0 if name in PERCENT else 4e3 * kernel.duration
            rows.append((*dispatch, 0, 0, vectors, 0, 32, name, f"{rng.uniform(0.05, 0.95) * maximum:.6f}", *times))
    rng.shuffle(rows)
    text = io.StringIO()
    csv.writer(text, quoting=csv.QUOTE_NONNUMERIC, lineterminator="\n").writerows([COLUMNS, *rows])
    return text.getvalue().encode()
