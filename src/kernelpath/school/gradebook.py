"""Save the grades of a class, for a spreadsheet, for Gradescope and for the next run."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import os
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernelpath import words
from kernelpath.files import write_atomically
from kernelpath.verdict import Report, ValidationError, Verdict, decode, encode

# The key of a grade that is not final: the next run tries again.
UNFINISHED = ""

# The status of a grade without a report.
NOT_HANDED_IN = "NOT_HANDED_IN"
UNCHANGED_STUB = "UNCHANGED_STUB"


@dataclass(frozen=True)
class Grade:
    """An entry's report, with the key of the contents, device and seed for which it is valid.

    Attributes:
        report: None if nothing was handed in.
        unchanged: Whether nothing was handed in but the unchanged stub.
    """

    learner: str
    exercise: str
    key: str
    report: Report | None
    unchanged: bool = False

    @property
    def status(self) -> str:
        """The verdict; NOT_HANDED_IN or UNCHANGED_STUB without a report."""
        if self.report is not None:
            return str(self.report.verdict.value)
        return UNCHANGED_STUB if self.unchanged else NOT_HANDED_IN

    @property
    def reason(self) -> str:
        """The reason why there is no report, or ""."""
        if self.report is not None:
            return ""
        name = f"{self.exercise.partition('/')[2]}.py"
        return f"{name} is the unchanged stub" if self.unchanged else f"nothing was handed in as {name}"


@dataclass(frozen=True)
class _GradesFile:
    """The contents of grades.json.

    Attributes:
        secret: Determines all seeds of the grades, and repeats the run.
    """

    grades: tuple[Grade, ...]
    secret: str = ""


# The last four are the full-width forms of the first four.
_FORMULA_STARTS = ("=", "+", "-", "@", "\uff1d", "\uff0b", "\uff0d", "\uff20")

# The length of a file name without suffixes. A folder's name may be as long as the system allows.
_MAX_NAME_BYTES = 200

# The special characters of Markdown, of HTML, and of GitHub's mentions and emoji.
_MARKUP = re.compile(r"[\\`*_{}\[\]<>()#+!|~&@:-]")

_PLACE_COLUMNS = ("file", "line", "seed", "device", "sha256")

# The column with "yes" if a submission accessed something outside; the cause says what.
_OUTSIDE_COLUMN = "outside"


def read(folder: Path) -> dict[str, Grade]:
    """Return the grades of an earlier run by their key, none if there are none or another version saved them."""
    try:
        return {graded.key: graded for graded in read_all(folder) if graded.key != UNFINISHED}
    except (OSError, ValidationError):
        return {}


def read_all(folder: Path) -> tuple[Grade, ...]:
    """Return all grades of an earlier run. Raises OSError, and ValidationError for another version's file."""
    return decode((folder / "grades.json").read_bytes(), _GradesFile).grades


def read_secret(folder: Path) -> str:
    """Return the secret of an earlier run, with which the next run continues, or ""."""
    try:
        return decode((folder / "grades.json").read_bytes(), _GradesFile).secret
    except (OSError, ValidationError):
        return ""


def write(folder: Path, grades: Sequence[Grade], max_stars: Mapping[str, int], read_secret: str = "") -> None:
    """Write all files. Raises OSError.

    Args:
        max_stars: The stars that each exercise, by its path id, gives on this device.
        read_secret: The secret of the run.
    """
    write_atomically(folder / "grades.json", encode(_GradesFile(tuple(grades), read_secret), indent=1) + "\n")
    write_atomically(folder / "grades.csv", _format_csv(grades))
    (folder / "gradescope").mkdir(exist_ok=True)
    by_learner: dict[str, list[Grade]] = defaultdict(list)
    for graded in grades:
        by_learner[graded.learner].append(graded)
    for learner, learner_grades in by_learner.items():
        text = json.dumps(gradescope_results(learner_grades, max_stars, read_secret), indent=1) + "\n"
        write_atomically(folder / "gradescope" / f"{file_name(learner)}.json", text)


def file_name(learner: str) -> str:
    """Return a file name for a learner, without a suffix."""
    raw = os.fsencode(learner)
    if len(raw) <= _MAX_NAME_BYTES:
        return learner
    # Two long names may begin alike, so a digest of the whole name tells them apart. os.fsdecode accepts a character
    # that was cut in two.
    return os.fsdecode(raw[:_MAX_NAME_BYTES]) + "-" + hashlib.sha256(raw).hexdigest()[:8]


def _format_csv(grades: Sequence[Grade]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(("learner", "exercise", "verdict", "stars", "speedup", "cause", *_PLACE_COLUMNS, _OUTSIDE_COLUMN))
    writer.writerows(map(neutralize, _row(graded)) for graded in grades)
    return text.getvalue()


def neutralize(cell: Any) -> Any:
    """Escape a cell so that no terminal or spreadsheet executes it.

    Learners choose the names of folders and parts of causes.
    """
    if not isinstance(cell, str):
        return cell
    text = words.escaped(cell)
    # A spreadsheet reads a cell that begins with a single quote as text. Source: OWASP, "CSV Injection".
    return f"'{text}" if text.lstrip().startswith(_FORMULA_STARTS) else text


def _row(graded: Grade) -> tuple[Any, ...]:
    report = graded.report
    if report is None:
        return (graded.learner, graded.exercise, graded.status, 0, *[""] * 8)
    speedup = f"{report.measurement.speedup.median:.3f}" if report.measurement else ""
    cause = " ".join(report.cause.split())
    result_cells = (report.verdict.value, report.stars, speedup, cause, report.file, report.line or "")
    digests = " ".join(f"{name}={digest}" for name, digest in report.graded.items())
    outside = "yes" if report.verdict is Verdict.ACCESS_DENIED else ""
    return (graded.learner, graded.exercise, *result_cells, report.seed, report.device, digests, outside)


def gradescope_results(grades: Sequence[Grade], max_stars: Mapping[str, int], read_secret: str = "") -> dict[str, Any]:
    """Return a learner's grades as Gradescope's results.json: a test for each exercise, a point for each star.

    The leaderboard has all stars, and the speedup of each exercise that was timed.
    https://gradescope-autograders.readthedocs.io/en/latest/specs/

    Args:
        max_stars: The stars that each exercise, by its path id, gives on this device.
        read_secret: The secret of the run, which Gradescope keeps and shows to no student.
    """
    tests = [_gradescope_test(graded, max_stars[graded.exercise]) for graded in grades]
    stars = sum(test["score"] for test in tests)
    board: list[dict[str, Any]] = [{"name": "stars", "value": stars, "order": "desc"}]
    for graded in grades:
        if graded.report and graded.report.measurement:
            speedup = round(graded.report.measurement.speedup.median, 3)
            board.append({"name": f"speedup of {_name(graded.exercise)}", "value": speedup, "order": "desc"})
    seconds = round(sum(graded.report.seconds for graded in grades if graded.report), 1)
    totals = {"score": stars, "execution_time": seconds, "visibility": "visible"}
    extra = {"extra_data": {"secret": read_secret}} if read_secret else {}
    return {**totals, "tests": tests, "leaderboard": board, **extra}


def _name(path_id: str) -> str:
    """Return the name of an exercise, "softmax" for "2_cuda/w07a_softmax"."""
    return path_id.partition("/")[2].partition("_")[2]


def _gradescope_test(graded: Grade, max_score: int) -> dict[str, Any]:
    report = graded.report
    return {
        "name": graded.exercise,
        "score": report.stars if report else 0,
        "max_score": max_score,
        "status": "passed" if report and report.verdict.passed else "failed",
        "output": _format_output(report) if report else graded.reason,
    }


def _format_output(report: Report) -> str:
    """Format the verdict with its cause, then lines with the place in the learner's file and the next step."""
    place = f"{report.file}:{report.line}" if report.line else report.file
    step = next_step(report)
    return "\n".join(filter(None, (f"{report.verdict.value}: {_cause(report)}", place, step and f"next: {step}")))


def next_step(report: Report | None) -> str:
    """Return a learner's next step with a file, or "" after a pass, when the next step is the teacher's choice."""
    return "" if report is None or report.verdict.passed else report.next_step


def _cause(report: Report) -> str:
    return report.cause or "; ".join((report.verdict.meaning, *(f"not measured: {x}" for x in report.not_measured)))


def format_markdown(grades: Sequence[Grade]) -> str:
    """Return a line for each grade, and the sum below the table. Text written by learners is escaped.

    The table of a single learner, who reads it, has the next step. A teacher's table of many learners does not.
    """
    has_many_learners = len({graded.learner for graded in grades}) > 1
    headings = ["learner"] if has_many_learners else []
    headings += ["exercise", "verdict", "stars", "cause"] + ([] if has_many_learners else ["next"])
    rows = [headings, ["---"] * len(headings)]
    for graded in grades:
        name = [_escape_markup(graded.learner)] if has_many_learners else []
        cells = [*name, _escape_markup(graded.exercise.partition("/")[2]), *_result_cells(graded)]
        rows.append(cells if has_many_learners else [*cells, _escape_markup(next_step(graded.report))])
    passed = sum(graded.report is not None and graded.report.verdict.passed for graded in grades)
    table = "\n".join(f"| {' | '.join(row)} |" for row in rows)
    return f"{table}\n\n{passed} of {len(grades)} passed\n"


def _result_cells(graded: Grade) -> list[str]:
    report = graded.report
    if report is None:
        return [_escape_markup(graded.status), "0", ""]
    place = f" ({report.file}:{report.line})" if report.line else ""
    cause = f"{report.cause or report.verdict.meaning}{place}"
    return [_escape_markup(report.verdict.value), str(report.stars), _escape_markup(cause)]


def _escape_markup(text: str) -> str:
    return _MARKUP.sub(r"\\\g<0>", " ".join(words.escaped(text).split()))
