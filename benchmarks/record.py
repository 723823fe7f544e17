"""Writes results/<gpu>.json: every reference kernel graded on this GPU, and the races against other libraries.

    python benchmarks/record.py                  both, a few minutes
    python benchmarks/record.py --only peers     what is already in the file stays

The README's tables are generated from these files: `kp dev tables`.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import peers
import torch

from kernelpath import grade, registry
from kernelpath.timing import Stopwatch


def reports() -> list[dict[str, Any]]:
    """The report of every reference kernel, with the full number of rounds."""
    graded = []
    for item in registry.exercises():
        report = grade.grade(item, item.solution, device="cuda", seed=1, bench=True)
        print(f"{item.name:<16} {report.verdict.value:<14} {'*' * report.stars:<3} {report.seconds:5.1f} s", flush=True)
        if not report.verdict.passed:
            print(f"  {report.cause}\n{report.printed}")
        graded.append(dataclasses.asdict(report))
    return graded


def races() -> list[dict[str, Any]]:
    stopwatch = Stopwatch()
    results = []
    for race in peers.races():
        for result in peers.run(race, stopwatch, rounds=96):
            peers.show(result)
            results.append(dataclasses.asdict(result))
    return results


PARTS: dict[str, Callable[[], list[dict[str, Any]]]] = {"reports": reports, "peers": races}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=PARTS)
    parser.add_argument("--folder", type=Path, default=registry.root() / "results")
    options = parser.parse_args()
    gpu = re.sub(r"\W+", "_", torch.cuda.get_device_name().lower())
    path = options.folder / f"{gpu}.json"
    recorded = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    recorded |= peers.machine(Stopwatch())
    for part in [options.only] if options.only else PARTS:
        recorded[part] = PARTS[part]()
        path.write_text(json.dumps(recorded, indent=1) + "\n", encoding="utf-8")
    print(path)


if __name__ == "__main__":
    main()
