"""Writes results/<gpu>.json: every reference kernel graded on this GPU, and the races against other libraries.

    python benchmarks/record.py                  both, a few minutes
    python benchmarks/record.py --only peers     what is already in the file stays
    python benchmarks/record.py --only reports softmax transpose

The tables of docs/ are generated from these files: `kp dev tables`.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import peers
import torch

from kernelpath.course import registry
from kernelpath.grading import grade
from kernelpath.show import results
from kernelpath.work.stopwatch import Stopwatch


def reports(names: Sequence[str], before: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The report of the reference kernels named, or of all, with the full number of rounds; the others as before."""
    items = [registry.find(name) for name in names] or list(registry.exercises())
    graded = {report["exercise"]: report for report in before}
    for item in items:
        report = grade.grade(item, item.reference, device="cuda", seed=1, bench=True)
        print(f"{item.name:<16} {report.verdict.value:<14} {'*' * report.stars:<3} {report.seconds:5.1f} s", flush=True)
        if not report.verdict.passed:
            print(f"  {report.cause}\n{report.printed}")
        graded[item.path_id] = dataclasses.asdict(dataclasses.replace(report, printed=""))
    return [graded[item.path_id] for item in registry.exercises() if item.path_id in graded]


def races(names: Sequence[str], before: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Every race that has one of the names, or all; the others as before."""
    stopwatch = Stopwatch()
    results = {(result["exercise"], result["case"]): result for result in before}
    for race in peers.races():
        if not names or set(names) & set(race.exercises):
            for result in peers.run(race, stopwatch):
                peers.show(result)
                results[result.exercise, result.case] = dataclasses.asdict(result)
    return list(results.values())


PARTS = {"reports": reports, "peers": races}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("exercises", nargs="*", metavar="NAME", help="only these; what is recorded of others stays")
    parser.add_argument("--only", choices=PARTS)
    parser.add_argument("--folder", type=Path, default=registry.root() / "results")
    options = parser.parse_args()
    gpu = re.sub(r"\W+", "_", torch.cuda.get_device_name().lower())
    path = options.folder / f"{gpu}.json"
    recorded = dataclasses.asdict(results.read(path)) if path.exists() else {}
    recorded |= peers.machine(Stopwatch())
    for part in [options.only] if options.only else PARTS:
        recorded[part] = PARTS[part](options.exercises, recorded.get(part, []))
        filled = {name: found for name, found in recorded.items() if found}
        path.write_text(json.dumps(filled, indent=1) + "\n", encoding="utf-8")
    print(path)


if __name__ == "__main__":
    main()
