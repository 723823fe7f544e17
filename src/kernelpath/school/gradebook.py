"""The grades of a class on the disk, for a spreadsheet, for Gradescope and for the next run."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernelpath.files import write_atomically
from kernelpath.verdict import Report, ValidationError, decode, encode

UNFINISHED = ""
"""The key of a grade that holds for nothing: the next run tries again."""


@dataclass(frozen=True)
class Grade:
    """An entry's report, and the key that says for which contents, device and seed it holds."""

    learner: str
    exercise: str
    key: str
    report: Report | None


@dataclass(frozen=True)
class _Saved:
    """The contents of grades.json."""

    grades: tuple[Grade, ...]


def read(folder: Path) -> dict[str, Grade]:
    """The grades of an earlier run by their key; none where there are none, or another version saved them."""
    try:
        saved = decode((folder / "grades.json").read_bytes(), _Saved)
    except (OSError, ValidationError):
        return {}
    return {graded.key: graded for graded in saved.grades if graded.key != UNFINISHED}


def write(folder: Path, grades: Sequence[Grade], most: Mapping[str, int]) -> None:
    """Write all files. most: the stars that each exercise, by its stem, gives on this device. Raises OSError."""
    write_atomically(folder / "grades.json", encode(_Saved(tuple(grades)), indent=1) + "\n")
    write_atomically(folder / "grades.csv", _csv(grades))
    (folder / "gradescope").mkdir(exist_ok=True)
    for learner in dict.fromkeys(graded.learner for graded in grades):
        own = [graded for graded in grades if graded.learner == learner]
        write_atomically(folder / "gradescope" / f"{learner}.json", json.dumps(gradescope(own, most), indent=1) + "\n")


def _csv(grades: Sequence[Grade]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(("learner", "exercise", "verdict", "stars", "speedup", "cause", "file", "line", "seed", "device"))
    writer.writerows(map(_inert, _row(graded)) for graded in grades)
    return text.getvalue().encode(errors="backslashreplace").decode()  # a folder's name need not be UTF-8


def _inert(cell: Any) -> Any:
    """A cell that no spreadsheet takes for a formula: a learner names a folder, and has a say in a cause."""
    return f"'{cell}" if isinstance(cell, str) and cell.startswith(("=", "+", "-", "@", "\t", "\r")) else cell


def _row(graded: Grade) -> tuple[Any, ...]:
    report = graded.report
    if report is None:
        return (graded.learner, graded.exercise, "NOT_HANDED_IN", 0, "", "", "", "", "", "")
    speedup = f"{report.measurement.speedup.median:.3f}" if report.measurement else ""
    cause = " ".join(report.cause.split())
    told = (report.verdict.value, report.stars, speedup, cause, report.file, report.line or "")
    return (graded.learner, graded.exercise, *told, report.seed, report.device)


def gradescope(grades: Sequence[Grade], most: Mapping[str, int]) -> dict[str, Any]:
    """One learner's grades as Gradescope's results.json: a test for each exercise, a point for each star.

    most: the stars that each exercise, by its stem, gives on this device.
    """
    tests = [_test(graded, most[graded.exercise]) for graded in grades]
    return {"score": sum(test["score"] for test in tests), "visibility": "visible", "tests": tests}


def _test(graded: Grade, most: int) -> dict[str, Any]:
    report = graded.report
    return {
        "name": graded.exercise,
        "score": report.stars if report else 0,
        "max_score": most,
        "status": "passed" if report and report.verdict.passed else "failed",
        "output": f"{report.verdict.value}: {_said(report)}" if report else "nothing was handed in",
    }


def _said(report: Report) -> str:
    return report.cause or "; ".join((report.verdict.meaning, *(f"not measured: {x}" for x in report.not_measured)))
