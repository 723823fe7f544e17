"""All four into one table of SQLite, and one query for the longest launch."""

import csv
import itertools
import json
import sqlite3
from pathlib import Path

COLUMNS = [
    "kernel",
    "nanoseconds",
    "blocks",
    "threads",
    "registers",
    "dram_bytes",
    "sectors_per_request",
    "occupancy",
    "stall",
    "tensor",
]


def facts(file: Path, tool: str) -> dict:
    rows = {"ncu": from_ncu, "nsys": from_nsys, "perfetto": from_perfetto, "rocprof": from_rocprof}[tool](file)
    with sqlite3.connect(":memory:") as database:
        database.execute(f"CREATE TABLE launch ({', '.join(COLUMNS)})")
        database.executemany(f"INSERT INTO launch VALUES ({', '.join('?' * len(COLUMNS))})", rows)
        longest = database.execute("SELECT * FROM launch ORDER BY nanoseconds DESC LIMIT 1").fetchone()
    return dict(zip(COLUMNS, longest, strict=True))


def from_ncu(file):
    with file.open() as lines:
        table = csv.DictReader(itertools.dropwhile(lambda line: not line.startswith('"'), lines))
        units = next(table)
        for row in table:
            yield ncu_row(row, units)


def ncu_row(row, units):
    powers = {"u": 1e3, "m": 1e6, "K": 1e3, "M": 1e6, "G": 1e9}

    def value(name):
        unit = units[name]
        number = float(row[name].replace(",", ""))
        return number * (powers[unit[0]] if unit in ("us", "ms", "Kbyte", "Mbyte", "Gbyte") else 1)

    stall, most = None, -1.0
    for name in row:
        if "issue_stalled_" in name:
            reason = name.removeprefix("smsp__average_warps_issue_stalled_").removesuffix("_per_issue_active.ratio")
            if reason != "selected" and value(name) > most:
                stall, most = reason, value(name)
    sectors = value("l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum")
    requests = value("l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum")
    return (
        row["Kernel Name"],
        value("gpu__time_duration.sum"),
        int(value("launch__grid_size")),
        int(value("launch__block_size")),
        int(value("launch__registers_per_thread")),
        value("dram__bytes_read.sum") + value("dram__bytes_write.sum"),
        None if requests == 0 else sectors / requests,
        value("sm__warps_active.avg.pct_of_peak_sustained_active"),
        stall,
        value("sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed"),
    )


def from_nsys(file):
    with sqlite3.connect(file) as database:
        yield from database.execute("""
            SELECT value, end - start, gridX * gridY * gridZ, blockX * blockY * blockZ, registersPerThread,
                   NULL, NULL, NULL, NULL, NULL
            FROM CUPTI_ACTIVITY_KIND_KERNEL AS kernel INNER JOIN StringIds AS string ON kernel.demangledName = string.id
        """)


def from_perfetto(file):
    for event in json.loads(file.read_text())["traceEvents"]:
        if event.get("cat") == "kernel":
            args = event["args"]
            (a, b, c), (x, y, z) = args["grid"], args["block"]
            shape = (a * b * c, x * y * z, args["registers per thread"])
            yield (event["name"], event["dur"] * 1e3, *shape, None, None, None, None, None)


def from_rocprof(file):
    def key(row):
        return int(row["Dispatch_Id"])

    with file.open(newline="") as lines:
        rows = sorted(csv.DictReader(lines), key=key)
    for _, group in itertools.groupby(rows, key):
        group = list(group)
        one, counters = group[0], {row["Counter_Name"]: float(row["Counter_Value"]) for row in group}
        size = [counters[name] * 1024 for name in ("FETCH_SIZE", "WRITE_SIZE") if name in counters]
        yield (
            one["Kernel_Name"],
            int(one["End_Timestamp"]) - int(one["Start_Timestamp"]),
            int(one["Grid_Size"]) // int(one["Workgroup_Size"]),
            int(one["Workgroup_Size"]),
            int(one["VGPR_Count"]),
            sum(size) if len(size) == 2 else None,
            None,
            counters.get("OccupancyPercent"),
            None,
            counters.get("MfmaUtil"),
        )
