"""Reports of the reference kernels that were made a moment ago, for notebooks that would only make them again.

Where KERNELPATH_REPORTS names a folder, a notebook that runs against the solutions takes its reports from there. The
tests, which have graded every solution by then, set it; nobody else does. The grader knows nothing of it: no report of
a learner's file comes from here, and none that comes from here is remembered as a pass.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from kernelpath.course.registry import Item
from kernelpath.files import grader_sources
from kernelpath.verdict import Report

VARIABLE = "KERNELPATH_REPORTS"


def digest(item: Item) -> str:
    """Of all that a report of the solution follows from: its files, its declaration, and the grader."""
    declared = sorted(item.declaration.parent.glob(f"{item.declaration.stem}.*"))
    found = hashlib.sha256(item.stem.encode())
    for path in (*item.files("solutions"), *declared, *grader_sources()):
        found.update(f"{path.name} {path.stat().st_size}\n".encode() + path.read_bytes())
    return found.hexdigest()


def keep(item: Item, report: Report, folder: Path) -> None:
    """Keep the report of an exercise's solution."""
    part = folder / f"{digest(item)}.{os.getpid()}"
    part.write_text(report.to_json(), encoding="utf-8")
    part.rename(folder / f"{digest(item)}.json")


def kept(item: Item, folder: Path | None = None) -> Report | None:
    """The report of the solution as it is now, from the folder that the environment names, where one was kept."""
    named = folder or os.environ.get(VARIABLE)
    file = Path(named) / f"{digest(item)}.json" if named else None
    return Report.from_json(file.read_text(encoding="utf-8")) if file is not None and file.is_file() else None
