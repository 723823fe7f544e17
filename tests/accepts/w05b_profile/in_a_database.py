"""Everything into tables of SQLite in memory; facts are queries, with window functions for the gaps."""

import csv
import json
import sqlite3
from pathlib import Path


def report(trace: Path, counters: Path):
    db = sqlite3.connect(":memory:")
    db.execute("CREATE TABLE event (cat, name, ts REAL, dur REAL, thread, correlation INT)")
    db.execute("CREATE TABLE launch (place INT, dram REAL, sm REAL, tensor REAL)")
    for e in json.loads(trace.read_text())["traceEvents"]:
        if e.get("ph") == "X":
            row = (
                e.get("cat"),
                e["name"],
                e["ts"],
                e["dur"],
                f"{e['pid']}/{e['tid']}",
                e.get("args", {}).get("correlation"),
            )
            db.execute("INSERT INTO event VALUES (?, ?, ?, ?, ?, ?)", row)
    rows = list(csv.reader(line for line in counters.read_text().splitlines() if line.startswith('"')))
    head, rows = rows[0], rows[2:]
    rows.sort(key=lambda row: int(row[head.index("ID")]))
    wanted = ("dram__throughput.avg", "sm__throughput.avg", "sm__pipe_tensor_cycles_active.avg")
    at = [head.index(f"{name}.pct_of_peak_sustained_elapsed") for name in wanted]
    db.executemany(
        "INSERT INTO launch VALUES (?, ?, ?, ?)", ((i, *(float(row[p]) for p in at)) for i, row in enumerate(rows, 1))
    )

    db.execute("""
        CREATE TABLE kernel AS SELECT k.*, dram, sm, tensor, CASE
            WHEN max(dram, sm) < 60 THEN 'latency' WHEN dram >= sm THEN 'memory' WHEN tensor >= 60 THEN 'tensor'
            ELSE 'compute' END AS bound
        FROM (SELECT *, row_number() OVER (ORDER BY correlation) AS place FROM event WHERE cat = 'kernel') k
        JOIN launch USING (place)
    """)
    top = db.execute("""
        SELECT name, sum(dur), sum(dram * dur) / sum(dur), sum(sm * dur) / sum(dur), sum(tensor * dur) / sum(dur)
        FROM kernel GROUP BY name ORDER BY 2 DESC LIMIT 3
    """).fetchall()
    gaps = [
        gap
        for (gap,) in db.execute("""
        SELECT ts - max(ts + dur) OVER (ORDER BY ts ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)
        FROM event WHERE cat IN ('kernel', 'gpu_memcpy', 'gpu_memset')
    """)
        if gap is not None and gap > 0
    ]
    ((step,),) = db.execute(
        "SELECT max(ts + dur) - min(ts) FROM event WHERE cat IN ('kernel', 'gpu_memcpy', 'gpu_memset')"
    )
    saved = dict(
        db.execute("""
        SELECT name, sum(time - longest) FROM (
            SELECT r.name AS name, sum(k.dur) AS time, max(k.dur) AS longest, max(k.bound = 'tensor') AS product
            FROM kernel k
            JOIN event c ON c.correlation = k.correlation AND c.cat IN ('cuda_runtime', 'cuda_driver')
            JOIN event r ON r.rowid = (
                SELECT rowid FROM event i WHERE i.cat = 'user_annotation' AND i.thread = c.thread
                AND c.ts BETWEEN i.ts AND i.ts + i.dur ORDER BY i.ts DESC LIMIT 1)
            GROUP BY r.rowid
        ) GROUP BY name HAVING NOT max(product)
    """)
    )
    saved["gaps"] = sum(gaps)
    gains = {name: 1 / (1 - time / step) for name, time in saved.items()}

    def bound(dram, sm, tensor):
        if max(dram, sm) < 60:
            return "latency"
        return "memory" if dram >= sm else "tensor" if tensor >= 60 else "compute"

    names, times, *percent = zip(*top, strict=False)
    return {
        "kernels": names,
        "microseconds": times,
        "dram_percent": percent[0],
        "sm_percent": percent[1],
        "tensor_percent": percent[2],
        "bounds": tuple(bound(*row[2:]) for row in top),
        "idle_microseconds": sum(gaps),
        "idle_share": sum(gaps) / step,
        "longest_gap": max(gaps),
        "gains": gains,
        "change": max(gains, key=gains.get),
    }
