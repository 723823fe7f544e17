"""ncu's shapes from its columns Grid Size and Block Size; the answer is the dict of a NamedTuple."""

import csv
import json
import re
import sqlite3
from math import prod
from typing import NamedTuple


class Launch(NamedTuple):
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


def facts(file, tool):
    match tool:
        case "ncu":
            return ncu(file)._asdict()
        case "nsys":
            with sqlite3.connect(file) as db:
                sql = """SELECT (SELECT value FROM StringIds WHERE id = demangledName), end - start,
                         gridX * gridY * gridZ, blockX * blockY * blockZ, registersPerThread
                         FROM CUPTI_ACTIVITY_KIND_KERNEL"""
                return Launch(*max(db.execute(sql), key=lambda row: row[1]))._asdict()
        case "perfetto":
            kernels = (e for e in json.loads(file.read_text())["traceEvents"] if e.get("cat") == "kernel")
            k = max(kernels, key=lambda e: e["dur"])
            a = k["args"]
            shape = prod(a["grid"]), prod(a["block"]), a["registers per thread"]
            return Launch(k["name"], k["dur"] * 1000, *shape)._asdict()
        case "rocprof":
            return rocprof(file)._asdict()


def ncu(file):
    rows = csv.reader(file.read_text().splitlines())
    head = next(row for row in rows if "Kernel Name" in row)
    unit = dict(zip(head, next(rows), strict=False))
    scale = {"ns": 1, "us": 10**3, "ms": 10**6, "byte": 1, "Kbyte": 10**3, "Mbyte": 10**6}

    def number(row, name):
        return float(row[name].replace(",", "")) * scale.get(unit[name], 1)

    row = max(
        (dict(zip(head, row, strict=False)) for row in rows), key=lambda row: number(row, "gpu__time_duration.sum")
    )
    shape = [prod(map(int, re.findall(r"\d+", row[f"{what} Size"]))) for what in ("Grid", "Block")]
    stalls = sorted(
        (number(row, name), name.split("stalled_")[1].split("_per_issue")[0])
        for name in head
        if "issue_stalled" in name and "stalled_selected" not in name
    )
    loads = number(row, "l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum")
    return Launch(
        row["Kernel Name"],
        number(row, "gpu__time_duration.sum"),
        *shape,
        int(number(row, "launch__registers_per_thread")),
        sum(number(row, f"dram__bytes_{way}.sum") for way in ("read", "write")),
        number(row, "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum") / loads if loads else None,
        number(row, "sm__warps_active.avg.pct_of_peak_sustained_active"),
        stalls[-1][1],
        number(row, "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed"),
    )


def rocprof(file):
    table = list(csv.DictReader(file.read_text().splitlines()))

    def time(row):
        return int(row["End_Timestamp"]) - int(row["Start_Timestamp"])

    row = max(table, key=time)
    value = {r["Counter_Name"]: float(r["Counter_Value"]) for r in table if r["Dispatch_Id"] == row["Dispatch_Id"]}
    moved = None
    if {"FETCH_SIZE", "WRITE_SIZE"} <= value.keys():
        moved = 1024 * (value["FETCH_SIZE"] + value["WRITE_SIZE"])
    threads = int(row["Workgroup_Size"])
    return Launch(
        row["Kernel_Name"],
        time(row),
        int(row["Grid_Size"]) // threads,
        threads,
        int(row["VGPR_Count"]),
        moved,
        occupancy=value.get("OccupancyPercent"),
        tensor=value.get("MfmaUtil"),
    )
