"""Tables as lists, the longest launch by numpy.argmax; values stay NumPy's."""

import csv
import json
import sqlite3

import numpy as np

UNKNOWN = dict.fromkeys(("dram_bytes", "sectors_per_request", "occupancy", "stall", "tensor"))


def facts(file, tool):
    if tool == "ncu":
        return _ncu(file)
    if tool == "rocprof":
        return _rocprof(file)
    rows = _nsys(file) if tool == "nsys" else _perfetto(file)
    name, time, grid, block, registers = rows[np.argmax([row[1] for row in rows])]
    shape = {"blocks": np.prod(grid), "threads": np.prod(block), "registers": np.int64(registers)}
    return {"kernel": name, "nanoseconds": np.float64(time), **shape, **UNKNOWN}


def _nsys(file):
    db = sqlite3.connect(str(file))
    rows = db.execute(
        "SELECT s.value, k.end - k.start, gridX, gridY, gridZ, blockX, blockY, blockZ, registersPerThread "
        "FROM CUPTI_ACTIVITY_KIND_KERNEL k, StringIds s WHERE s.id = k.demangledName"
    ).fetchall()
    db.close()
    return [(row[0], row[1], row[2:5], row[5:8], row[8]) for row in rows]


def _perfetto(file):
    events = [e for e in json.loads(file.read_text())["traceEvents"] if e.get("cat") == "kernel"]
    return [
        (e["name"], e["dur"] * 1e3, e["args"]["grid"], e["args"]["block"], e["args"]["registers per thread"])
        for e in events
    ]


def _ncu(file):
    rows = [row for row in csv.reader(file.read_text().splitlines()) if len(row) > 3]
    head, units, values = rows[0], rows[1], rows[2:]

    def column(name, convert=float):
        place = head.index(name)
        factor = {"us": 1e3, "ms": 1e6, "Kbyte": 1e3, "Mbyte": 1e6, "Gbyte": 1e9}.get(units[place], 1)
        return np.array([convert(row[place].replace(",", "")) * factor for row in values])

    time = column("gpu__time_duration.sum")
    at = int(np.argmax(time))
    stall = {}
    for name in head:
        if name.startswith("smsp__average_warps_issue_stalled_") and "_selected_" not in name.replace(
            "not_selected", ""
        ):
            stall[name[len("smsp__average_warps_issue_stalled_") : -len("_per_issue_active.ratio")]] = column(name)[at]
    requests = column("l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum")[at]
    sectors = column("l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum")[at]
    return {
        "kernel": values[at][head.index("Kernel Name")],
        "nanoseconds": time[at],
        "blocks": column("launch__grid_size").astype(int)[at],
        "threads": column("launch__block_size").astype(int)[at],
        "registers": column("launch__registers_per_thread").astype(int)[at],
        "dram_bytes": (column("dram__bytes_read.sum") + column("dram__bytes_write.sum"))[at],
        "sectors_per_request": sectors / requests if requests > 0 else None,
        "occupancy": column("sm__warps_active.avg.pct_of_peak_sustained_active")[at],
        "stall": max(stall, key=stall.get),
        "tensor": column("sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed")[at],
    }


def _rocprof(file):
    rows = list(csv.DictReader(file.read_text().splitlines()))
    time = np.array([int(row["End_Timestamp"]) - int(row["Start_Timestamp"]) for row in rows])
    at = rows[int(np.argmax(time))]
    mine = {r["Counter_Name"]: float(r["Counter_Value"]) for r in rows if r["Correlation_Id"] == at["Correlation_Id"]}
    size = np.array([mine.get("FETCH_SIZE", np.nan), mine.get("WRITE_SIZE", np.nan)]).sum() * 1024
    return {
        "kernel": at["Kernel_Name"],
        "nanoseconds": time.max(),
        "blocks": int(at["Grid_Size"]) // int(at["Workgroup_Size"]),
        "threads": int(at["Workgroup_Size"]),
        "registers": int(at["VGPR_Count"]),
        **UNKNOWN,
        "dram_bytes": None if np.isnan(size) else size,
        "occupancy": mine.get("OccupancyPercent"),
        "tensor": mine.get("MfmaUtil"),
    }
