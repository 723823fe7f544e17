"""Counters: the same ten facts, from the files of four profilers.

file contains the tool's recording: "ncu" (the CSV from `ncu --csv --page raw`), "nsys" (the SQLite export), "perfetto"
(a Chrome trace from torch.profiler, which Perfetto opens) or "rocprof" (counter_collection.csv from rocprofv3). The
result is a dict or a dataclass with facts about the longest launch in the file. A fact that the file does not contain
is None. A value that a tool estimates from the launch, such as "est. achieved occupancy %", was not measured. Numbers
may be 0.1% off.

    kernel              the kernel's name, as the tool writes it
    nanoseconds         how long the kernel ran
    blocks              blocks in the grid, over all dimensions (AMD's workgroup is a block)
    threads             threads per block, over all dimensions (AMD's work-item is a thread)
    registers           registers per thread (vector registers, VGPR_Count, on AMD)
    dram_bytes          bytes read from device memory and bytes written to it, together
    sectors_per_request sectors per request of global loads through the LSU; None where there was no request
    occupancy           achieved occupancy, in percent: active warps, relative to the maximum
    stall               the reason that stalled most warps per issue, by ncu's name, such as "long_scoreboard";
                        "selected" is not a stall, because these warps issue
    tensor              percentage of the time in which the tensor (matrix) pipe was active

The files contain the facts in these places:

- ncu: after the progress lines comes the header, which starts with "ID". All other columns may be in any order. The row
  below the header contains the units, and numbers contain commas, as in 1,234. The columns are gpu__time_duration.sum,
  launch__grid_size, launch__block_size, launch__registers_per_thread, dram__bytes_read.sum, dram__bytes_write.sum,
  l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum and l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum,
  sm__warps_active.avg.pct_of_peak_sustained_active, smsp__average_warps_issue_stalled_REASON_per_issue_active.ratio,
  sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed.
- nsys: the table is CUPTI_ACTIVITY_KIND_KERNEL; demangledName is an id in StringIds. Times are in nanoseconds.
- perfetto: kernels are events with "cat" == "kernel" and "dur" in microseconds; the launch's shape is in "args".
- rocprof: there is one row per counter and dispatch (Dispatch_Id). Times are in nanoseconds. Grid_Size counts
  work-items. FETCH_SIZE and WRITE_SIZE are in kilobytes of 1024 bytes; OccupancyPercent and MfmaUtil (the matrix pipe)
  are percentages. A file contains only the counters that were requested. AMD has no counters for sectors or for ncu's
  stalls.
"""

import csv
import json
import math
import re
import sqlite3
from contextlib import closing
from dataclasses import asdict, dataclass
from itertools import dropwhile
from pathlib import Path

NANOSECONDS = {"ns": 1, "us": 1e3, "ms": 1e6, "s": 1e9}
BYTES = {"byte": 1, "Kbyte": 1e3, "Mbyte": 1e6, "Gbyte": 1e9}
STALLED = re.compile(r"smsp__average_warps_issue_stalled_(\w+)_per_issue_active\.ratio")


@dataclass
class Facts:
    kernel: str
    nanoseconds: float
    blocks: int
    threads: int
    registers: int
    dram_bytes: float | None = None
    sectors_per_request: float | None = None
    occupancy: float | None = None
    stall: str | None = None
    tensor: float | None = None


def facts(file: Path, tool: str) -> dict:
    """Return the ten facts about the longest launch, by name."""
    return asdict({"ncu": of_ncu, "nsys": of_nsys, "perfetto": of_perfetto, "rocprof": of_rocprof}[tool](file))


def of_ncu(file: Path) -> Facts:
    with file.open(newline="") as lines:
        units, *rows = csv.DictReader(dropwhile(lambda line: '"Kernel Name"' not in line, lines))

    def number(row: dict, metric: str) -> float:
        unit = units[metric]
        return float(row[metric].replace(",", "")) * NANOSECONDS.get(unit, BYTES.get(unit, 1))

    longest = max(rows, key=lambda row: number(row, "gpu__time_duration.sum"))
    stalls = {match[1]: number(longest, name) for name in units if (match := STALLED.fullmatch(name))}
    del stalls["selected"]
    sectors, requests = (
        number(longest, f"l1tex__t_{what}_pipe_lsu_mem_global_op_ld.sum") for what in ("sectors", "requests")
    )
    return Facts(
        kernel=longest["Kernel Name"],
        nanoseconds=number(longest, "gpu__time_duration.sum"),
        blocks=int(number(longest, "launch__grid_size")),
        threads=int(number(longest, "launch__block_size")),
        registers=int(number(longest, "launch__registers_per_thread")),
        dram_bytes=number(longest, "dram__bytes_read.sum") + number(longest, "dram__bytes_write.sum"),
        sectors_per_request=sectors / requests if requests else None,
        occupancy=number(longest, "sm__warps_active.avg.pct_of_peak_sustained_active"),
        stall=max(stalls, key=stalls.get),
        tensor=number(longest, "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed"),
    )


def of_nsys(file: Path) -> Facts:
    query = """
        SELECT value, end - start AS duration, gridX * gridY * gridZ, blockX * blockY * blockZ, registersPerThread
        FROM CUPTI_ACTIVITY_KIND_KERNEL JOIN StringIds ON StringIds.id = demangledName
        ORDER BY duration DESC LIMIT 1
    """
    with closing(sqlite3.connect(file)) as database:
        return Facts(*database.execute(query).fetchone())


def of_perfetto(file: Path) -> Facts:
    events = json.loads(file.read_text())["traceEvents"]
    longest = max((event for event in events if event.get("cat") == "kernel"), key=lambda event: event["dur"])
    launch = longest["args"]
    return Facts(
        kernel=longest["name"],
        nanoseconds=1e3 * longest["dur"],
        blocks=math.prod(launch["grid"]),
        threads=math.prod(launch["block"]),
        registers=launch["registers per thread"],
    )


def of_rocprof(file: Path) -> Facts:
    with file.open(newline="") as lines:
        rows = list(csv.DictReader(lines))
    longest = max(rows, key=duration)
    counters = {
        row["Counter_Name"]: float(row["Counter_Value"]) for row in rows if row["Dispatch_Id"] == longest["Dispatch_Id"]
    }
    sizes = [counters.get(name) for name in ("FETCH_SIZE", "WRITE_SIZE")]
    return Facts(
        kernel=longest["Kernel_Name"],
        nanoseconds=duration(longest),
        blocks=int(longest["Grid_Size"]) // int(longest["Workgroup_Size"]),
        threads=int(longest["Workgroup_Size"]),
        registers=int(longest["VGPR_Count"]),
        dram_bytes=None if None in sizes else 1024 * sum(sizes),
        occupancy=counters.get("OccupancyPercent"),
        tensor=counters.get("MfmaUtil"),
    )


def duration(row: dict) -> int:
    return int(row["End_Timestamp"]) - int(row["Start_Timestamp"])
