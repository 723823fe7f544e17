"""Reuse reports of the reference kernels that were made a moment ago, instead of grading these again in a notebook.

If KERNELPATH_REPORTS names a folder, a notebook that runs with the reference kernels takes its reports from there. Only
the tests, a maintainer who executes the book (benchmarks/record.py), and `execute --reports` set it, after every
reference kernel has been graded. The grader knows nothing of the folder: no report of a learner's file comes from it,
and no report from it is saved as a pass.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from kernelpath.course.registry import ExerciseRef
from kernelpath.files import grader_sources
from kernelpath.verdict import Report

REPORTS_VARIABLE = "KERNELPATH_REPORTS"


def digest(item: ExerciseRef) -> str:
    """Hash what determines the report of the reference kernel: its files, its declaration, and the grader."""
    declaration_files = sorted(item.declaration.parent.glob(f"{item.declaration.stem}.*"))
    hasher = hashlib.sha256(item.path_id.encode())
    for path in (*item.files("expert"), *declaration_files, *grader_sources()):
        hasher.update(f"{path.name} {path.stat().st_size}\n".encode() + path.read_bytes())
    return hasher.hexdigest()


def save_report(item: ExerciseRef, report: Report, folder: Path) -> None:
    """Save the report of an exercise's reference kernel, atomically."""
    temporary = folder / f"{digest(item)}.{os.getpid()}"
    temporary.write_text(report.to_json(), encoding="utf-8")
    temporary.rename(folder / f"{digest(item)}.json")


def load_report(item: ExerciseRef, folder: Path | None = None) -> Report | None:
    """Return the saved report of the reference kernel in its current state, or None."""
    report_folder = folder or os.environ.get(REPORTS_VARIABLE)
    file = Path(report_folder) / f"{digest(item)}.json" if report_folder else None
    return Report.from_json(file.read_text(encoding="utf-8")) if file is not None and file.is_file() else None
