"""Four classes behind one interface, in the way of a small library; the tool is known from the file, too."""

import csv
import json
import re
import sqlite3


class Reader:
    known = ()

    def __init__(self, path):
        self.path = path

    def facts(self):
        longest = max(self.launches(), key=lambda launch: launch["nanoseconds"])
        names = [
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
        return {name: longest.get(name) for name in names}


class Ncu(Reader):
    def launches(self):
        lines = [line for line in self.path.read_text().splitlines() if line and not line.startswith("==")]
        head, units, *rows = csv.reader(lines)
        scale = {"us": 1_000, "ms": 1_000_000, "Kbyte": 1_000, "Mbyte": 1_000_000, "Gbyte": 1_000_000_000}
        for row in rows:
            value = {}
            for name, unit, text in zip(head, units, row, strict=False):
                try:
                    value[name] = float(text.replace(",", "")) * scale.get(unit, 1)
                except ValueError:
                    value[name] = text
            reasons = re.findall(r"stalled_(\w+?)_per_issue_active", " ".join(head))
            stalls = {r: value[f"smsp__average_warps_issue_stalled_{r}_per_issue_active.ratio"] for r in reasons}
            requests = value["l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum"]
            yield {
                "kernel": value["Kernel Name"],
                "nanoseconds": value["gpu__time_duration.sum"],
                "blocks": int(value["launch__grid_size"]),
                "threads": int(value["launch__block_size"]),
                "registers": int(value["launch__registers_per_thread"]),
                "dram_bytes": value["dram__bytes_read.sum"] + value["dram__bytes_write.sum"],
                "sectors_per_request": (requests and value["l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum"] / requests)
                or None,
                "occupancy": value["sm__warps_active.avg.pct_of_peak_sustained_active"],
                "stall": max((r for r in stalls if r != "selected"), key=stalls.get),
                "tensor": value["sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed"],
            }


class Nsys(Reader):
    def launches(self):
        db = sqlite3.connect(f"file:{self.path}?mode=ro", uri=True)
        db.row_factory = sqlite3.Row
        names = dict(db.execute("SELECT id, value FROM StringIds").fetchall())
        for k in db.execute("SELECT * FROM CUPTI_ACTIVITY_KIND_KERNEL"):
            yield {
                "kernel": names[k["demangledName"]],
                "nanoseconds": k["end"] - k["start"],
                "blocks": k["gridX"] * k["gridY"] * k["gridZ"],
                "threads": k["blockX"] * k["blockY"] * k["blockZ"],
                "registers": k["registersPerThread"],
            }


class Perfetto(Reader):
    def launches(self):
        for e in json.loads(self.path.read_bytes())["traceEvents"]:
            if e.get("cat") == "kernel":
                (gx, gy, gz), (bx, by, bz) = e["args"]["grid"], e["args"]["block"]
                yield {
                    "kernel": e["name"],
                    "nanoseconds": 1000 * e["dur"],
                    "blocks": gx * gy * gz,
                    "threads": bx * by * bz,
                    "registers": e["args"]["registers per thread"],
                }


class Rocprof(Reader):
    def launches(self):
        dispatches = {}
        with open(self.path) as file:
            for row in csv.DictReader(file):
                one = dispatches.setdefault(row["Dispatch_Id"], {"counters": {}})
                one["counters"][row["Counter_Name"]] = float(row["Counter_Value"])
                one["kernel"] = row["Kernel_Name"]
                one["nanoseconds"] = int(row["End_Timestamp"]) - int(row["Start_Timestamp"])
                one["threads"] = int(row["Workgroup_Size"])
                one["blocks"] = int(row["Grid_Size"]) // one["threads"]
                one["registers"] = int(row["VGPR_Count"])
        for one in dispatches.values():
            counters = one["counters"]
            if "FETCH_SIZE" in counters and "WRITE_SIZE" in counters:
                one["dram_bytes"] = (counters["FETCH_SIZE"] + counters["WRITE_SIZE"]) * 1024
            one["occupancy"], one["tensor"] = counters.get("OccupancyPercent"), counters.get("MfmaUtil")
        return dispatches.values()


def facts(file, tool):
    return {"ncu": Ncu, "nsys": Nsys, "perfetto": Perfetto, "rocprof": Rocprof}[tool](file).facts()
