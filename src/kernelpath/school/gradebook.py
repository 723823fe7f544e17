"""The grades of a class on the disk, for a spreadsheet, for Gradescope and for the next run."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import os
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernelpath import words
from kernelpath.files import write_atomically
from kernelpath.verdict import Report, ValidationError, Verdict, decode, encode

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
    """The contents of grades.json. secret: what was drawn for the grades follows from it; it repeats the run."""

    grades: tuple[Grade, ...]
    secret: str = ""


_BEGINS_A_FORMULA = ("=", "+", "-", "@", "\uff1d", "\uff0b", "\uff0d", "\uff20")
_MOST_BYTES = 200
"""Of a file's name, without its suffixes: a folder's name may be as long as the system allows."""

_PLACE = ("file", "line", "seed", "device", "sha256")
_OUTSIDE = "outside"
"""The column that says "yes" where a submission reached for what is not its own; the cause says for what."""


def read(folder: Path) -> dict[str, Grade]:
    """The grades of an earlier run by their key; none where there are none, or another version saved them."""
    try:
        return {graded.key: graded for graded in saved(folder) if graded.key != UNFINISHED}
    except (OSError, ValidationError):
        return {}


def saved(folder: Path) -> tuple[Grade, ...]:
    """All grades of an earlier run. Raises OSError, and ValidationError for what another version saved."""
    return decode((folder / "grades.json").read_bytes(), _Saved).grades


def secret(folder: Path) -> str:
    """Return the secret of an earlier run, with which it is gone on; nothing where there is none."""
    try:
        return decode((folder / "grades.json").read_bytes(), _Saved).secret
    except (OSError, ValidationError):
        return ""


def write(folder: Path, grades: Sequence[Grade], most: Mapping[str, int], secret: str = "") -> None:
    """Write all files. most: the stars that each exercise, by its stem, gives on this device. Raises OSError.

    secret: of the run.
    """
    write_atomically(folder / "grades.json", encode(_Saved(tuple(grades), secret), indent=1) + "\n")
    write_atomically(folder / "grades.csv", _csv(grades))
    (folder / "gradescope").mkdir(exist_ok=True)
    by_learner: dict[str, list[Grade]] = defaultdict(list)
    for graded in grades:
        by_learner[graded.learner].append(graded)
    for learner, own in by_learner.items():
        text = json.dumps(gradescope(own, most, secret), indent=1) + "\n"
        write_atomically(folder / "gradescope" / f"{file_name(learner)}.json", text)


def file_name(learner: str) -> str:
    """A name of a file for a learner, without its suffix."""
    raw = os.fsencode(learner)
    if len(raw) <= _MOST_BYTES:
        return learner
    return os.fsdecode(raw[:_MOST_BYTES]) + "-" + hashlib.sha256(raw).hexdigest()[:8]


def _csv(grades: Sequence[Grade]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(("learner", "exercise", "verdict", "stars", "speedup", "cause", *_PLACE, _OUTSIDE))
    writer.writerows(map(inert, _row(graded)) for graded in grades)
    return text.getvalue()


def inert(cell: Any) -> Any:
    """A cell that no terminal or spreadsheet executes: a learner chooses a folder's name and parts of a cause."""
    if not isinstance(cell, str):
        return cell
    text = words.escaped(cell)
    return f"'{text}" if text.lstrip().startswith(_BEGINS_A_FORMULA) else text


def _row(graded: Grade) -> tuple[Any, ...]:
    report = graded.report
    if report is None:
        return (graded.learner, graded.exercise, "NOT_HANDED_IN", 0, *[""] * 8)
    speedup = f"{report.measurement.speedup.median:.3f}" if report.measurement else ""
    cause = " ".join(report.cause.split())
    told = (report.verdict.value, report.stars, speedup, cause, report.file, report.line or "")
    digests = " ".join(f"{name}={digest}" for name, digest in report.graded.items())
    outside = "yes" if report.verdict is Verdict.ACCESS_DENIED else ""
    return (graded.learner, graded.exercise, *told, report.seed, report.device, digests, outside)


def gradescope(grades: Sequence[Grade], most: Mapping[str, int], secret: str = "") -> dict[str, Any]:
    """One learner's grades as Gradescope's results.json: a test for each exercise, a point for each star.

    most: the stars that each exercise, by its stem, gives on this device. The leaderboard has all stars, and the
    speedup of each exercise that was timed. secret: of the run, which Gradescope keeps and shows to no student.
    https://gradescope-autograders.readthedocs.io/en/latest/specs/
    """
    tests = [_test(graded, most[graded.exercise]) for graded in grades]
    stars = sum(test["score"] for test in tests)
    board: list[dict[str, Any]] = [{"name": "stars", "value": stars, "order": "desc"}]
    for one in grades:
        if one.report and one.report.measurement:
            speedup = round(one.report.measurement.speedup.median, 3)
            board.append({"name": f"speedup of {_name(one.exercise)}", "value": speedup, "order": "desc"})
    seconds = round(sum(one.report.seconds for one in grades if one.report), 1)
    totals = {"score": stars, "execution_time": seconds, "visibility": "visible"}
    kept = {"extra_data": {"secret": secret}} if secret else {}
    return {**totals, "tests": tests, "leaderboard": board, **kept}


def _name(stem: str) -> str:
    """The name of an exercise, "softmax" for "2_cuda/w07a_softmax"."""
    return stem.partition("/")[2].partition("_")[2]


def _test(graded: Grade, most: int) -> dict[str, Any]:
    report = graded.report
    return {
        "name": graded.exercise,
        "score": report.stars if report else 0,
        "max_score": most,
        "status": "passed" if report and report.verdict.passed else "failed",
        "output": _said(report) if report else f"nothing was handed in as {graded.exercise.partition('/')[2]}.py",
    }


def _said(report: Report) -> str:
    """The verdict with its cause, and in lines of their own the place in the learner's file and the next step."""
    place = f"{report.file}:{report.line}" if report.line else report.file
    then = next_step(report)
    return "\n".join(filter(None, (f"{report.verdict.value}: {_cause(report)}", place, then and f"next: {then}")))


def next_step(report: Report | None) -> str:
    """Return what a learner does next with a file; nothing after a pass, as what follows is the teacher's choice."""
    return "" if report is None or report.verdict.passed else report.next_step


def _cause(report: Report) -> str:
    return report.cause or "; ".join((report.verdict.meaning, *(f"not measured: {x}" for x in report.not_measured)))
