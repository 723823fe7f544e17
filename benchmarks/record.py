"""Write results/<gpu>.json: the report of every reference kernel, graded on this GPU with the full number of rounds.

    python benchmarks/record.py                              half an hour
    python benchmarks/record.py softmax transpose            only these; the other reports stay as they are
    python benchmarks/record.py --for-pages FOLDER           also save the reports for `kernelpath.show.execute`

The file is written after each exercise. With KERNELPATH_REPORTS=FOLDER, the pages of the book take their reports from
that folder instead of grading each exercise again. The tables of docs/ are generated from results/: `kp dev tables`.
benchmarks/peers.py compares the kernels with other libraries.
"""

from __future__ import annotations

import argparse
import dataclasses
import datetime
import json
import re
from pathlib import Path

import peers
import torch

from kernelpath.course import registry
from kernelpath.grading import grade
from kernelpath.show import graded, results
from kernelpath.verdict import Report
from kernelpath.work.stopwatch import Stopwatch


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("exercises", nargs="*", metavar="NAME", help="only these; what is recorded of others stays")
    parser.add_argument("--folder", type=Path, default=registry.root() / results.FOLDER, help="default: results")
    parser.add_argument("--for-pages", type=Path, metavar="FOLDER", help="also save the reports for the book's pages")
    options = parser.parse_args()
    gpu = re.sub(r"\W+", "_", torch.cuda.get_device_name().lower())
    path = options.folder / f"{gpu}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    recorded = dataclasses.asdict(results.read(path)) if path.exists() else {}
    recorded |= peers.machine(Stopwatch())
    reports = {report["exercise"]: report for report in recorded.get("reports", [])}
    dates = recorded.get("report_dates", {})
    for item in [registry.find(name) for name in options.exercises] or registry.exercises():
        report = grade.grade(item, item.reference, device="cuda", seed=1, bench=True)
        show(item.name, report)
        reports[item.path_id] = dataclasses.asdict(dataclasses.replace(report, printed=""))
        dates[item.path_id] = datetime.date.today().isoformat()
        recorded["reports"] = [reports[ref.path_id] for ref in registry.exercises() if ref.path_id in reports]
        recorded["report_dates"] = {name: dates[name] for name in reports if name in dates}
        filled = {name: part for name, part in recorded.items() if part}
        path.write_text(json.dumps(filled, indent=1) + "\n", encoding="utf-8")
        if options.for_pages:
            options.for_pages.mkdir(parents=True, exist_ok=True)
            graded.save_report(item, report, options.for_pages)
    print(path)


def show(name: str, report: Report) -> None:
    """Print the verdict, the stars, and the times; and the cause, unless the kernel passed."""
    times = ""
    if measured := report.measurement:
        times = f"{measured.seconds * 1e6:9.1f} µs, speedup {measured.speedup}"
    print(f"{name:<24} {report.verdict.value:<14} {'*' * report.stars:<3} {report.seconds:5.1f} s {times}", flush=True)
    if not report.verdict.passed:
        print(f"  {report.cause}\n{report.printed}", flush=True)


if __name__ == "__main__":
    main()
