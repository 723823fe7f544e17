"""The exams of a class: one folder for each learner, with the answer sheet, the kernels and the deliverable.

checkpoint1.csv has a row for each learner, with the points by part and what is missing. checkpoint1-written.csv has the
written answers, prompt by prompt, for marking: a teacher writes "2 1 0" into the column marks, a number for each
criterion of the rubric. The next run reads it, and keeps the marks as long as the answer stays.
"""

from __future__ import annotations

import contextlib
import csv
import io
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kernelpath import words
from kernelpath.exam import NotValid
from kernelpath.exam.certificate import TEACHER, Certificate
from kernelpath.exam.questions import Exam, words_of
from kernelpath.exam.sheet import ANSWERS, Sheet
from kernelpath.exam.sitting import certify, files
from kernelpath.files import write_atomically
from kernelpath.grading import grade
from kernelpath.school import classroom, gradebook, handed_in
from kernelpath.school.gradebook import Grade, inert
from kernelpath.verdict import Report, Verdict, encode

_COLUMNS = ("answer", "learner", "words", "marks", "comment", "text", "rubric")
Key = tuple[str, str]
"""Prompt and learner."""


@dataclass(frozen=True)
class Sat:
    """One learner's exam. certificate: None where there is nothing to certify, and cause says why."""

    learner: str
    certificate: Certificate | None
    cause: str = ""


@dataclass(frozen=True)
class Marks:
    """What a teacher wrote into the file of written answers.

    given: points for each criterion, and a comment. unclear: what cannot be understood, a sentence each.
    """

    given: Mapping[Key, tuple[tuple[int, ...], str]] = field(default_factory=dict)
    kept: Mapping[Key, tuple[str, str]] = field(default_factory=dict)
    unclear: tuple[str, ...] = ()


def grade_exams(
    folder: Path,
    out: Path,
    exam: Exam,
    *,
    device: grade.Device = "auto",
    seed: int | None = None,
    secret: str = "",
    jobs: int | None = None,
    engine: classroom.Engine = classroom.this_machine,
    tell: Callable[[Grade, int, int], None] = lambda grade, done, of: None,
) -> tuple[list[Sat], Marks]:
    """Grade every learner of `folder`, and write both tables below `out`. As `classroom.grade_class`."""
    learners = handed_in.learners(folder)
    sheets = {learner.name: _sheet(exam, learner) for learner in learners}
    found: list[handed_in.Entry] = []
    for learner in learners:
        sheet = sheets[learner.name]
        if isinstance(sheet, Sheet):
            found += handed_in.entries_of(learner, [*exam.items, sheet.paper.item])
    secret = secret or gradebook.secret(out) or classroom.new_secret()
    seeds = {name: _exam_seed(secret, sheet) if seed is None else seed for name, sheet in sheets.items()}
    grades = classroom.grade_entries(
        found,
        folder,
        out,
        device=device,
        seed=lambda entry: seeds[entry.learner],
        secret=secret,
        jobs=jobs,
        engine=engine,
        tell=tell,
    )
    path = out / f"checkpoint{exam.number}-written.csv"
    marks = _read_marks(path, exam, sheets)
    sat = [_sat(name, sheet, grades, exam, seeds[name], marks) for name, sheet in sheets.items()]
    write_atomically(path, _written(exam, sheets, marks))
    write_atomically(out / f"checkpoint{exam.number}.csv", _points(exam, sat))
    return sat, marks


def _exam_seed(secret: str, sheet: Sheet | str) -> int:
    """Return the one seed of a learner's exam, which its certificate names. Another submission gets another one."""
    if isinstance(sheet, str):
        return 0
    try:
        submitted = files(sheet.paper, sheet.path.parent)
        del submitted[ANSWERS]  # which draw nothing
    except (OSError, ValueError, LookupError):  # said when the exam is certified
        submitted = {}
    return classroom.derive_seed(secret, sheet.paper.name, sheet.paper.exam.phase, encode(submitted))


def _sheet(exam: Exam, learner: Path) -> Sheet | str:
    """A learner's sheet, or why it is missing. Whatever one folder holds, the others are graded."""
    try:
        path = handed_in.file_of(learner, ANSWERS, exam.phase)
        if path is None:
            return f"there is no {ANSWERS}"
        sheet = Sheet(exam, path)
    except (NotValid, OSError) as error:
        return words.shown(str(error).replace(f"{learner.parent}/", ""), 300)
    except Exception as error:
        return words.shown(f"the grader failed: {type(error).__name__}: {error}", 300)
    if not words_of(sheet.paper.name) <= words_of(learner.name):
        return f"{ANSWERS} is the sheet of {sheet.paper.name}; name the folder after its learner"
    return sheet


def _sat(name: str, sheet: Sheet | str, grades: Sequence[Grade], exam: Exam, seed: int, marks: Marks) -> Sat:
    if isinstance(sheet, str):
        return Sat(name, None, sheet)
    own = {one.exercise: one.report for one in grades if one.learner == name}
    try:
        reports = [own[item.stem] or _absent(item.stem, seed) for item in (*exam.items, sheet.paper.item)]
        given = {prompt: marked for (prompt, learner), marked in marks.given.items() if learner == name}
        submitted = files(sheet.paper, sheet.path.parent)
        by = TEACHER if given else ""
        certificate = certify(sheet, reports[:-1], reports[-1], seed, submitted, given, by)
    except Exception as error:  # whatever one learner's files bring about, the others have their rows
        return Sat(name, None, words.shown(f"the grader failed: {type(error).__name__}: {error}", 300))
    return Sat(name, certificate)


def _absent(stem: str, seed: int) -> Report:
    return Report(stem, "", "", "", seed, Verdict.NOT_STARTED, "nothing was handed in")


def _points(exam: Exam, sat: Sequence[Sat]) -> str:
    parts = ("exercises", "questions", "reading", "deliverable")
    heading = ("learner", "name", "passed", "score", *parts, "written", "of", "marked_by", "twist", "missing", "digest")
    rows: list[Sequence[Any]] = []
    for one in sat:
        found = one.certificate
        if found is None:
            rows.append((one.learner, "", "no", 0, 0, 0, 0, 0, *[""] * 4, one.cause, ""))
            continue
        marked = sum(answer.points for answer in found.written) if found.marked_by else ""
        most = sum(answer.most for answer in found.written)
        made = [found.points[part] for part in parts]
        told = (marked, most, found.marked_by, found.twist, "; ".join(found.missing), found.digest)
        rows.append((one.learner, found.name, "yes" if found.passed else "no", found.score, *made, *told))
    return _csv(heading, rows)


def _written(exam: Exam, sheets: Mapping[str, Sheet | str], marks: Marks) -> str:
    """All answers to the first prompt, then all to the next, so that each is marked by one standard."""
    rows = []
    for prompt in exam.declared.prompts:
        rubric = "\n".join(f"{one.points}: {one.text}" for one in prompt.rubric)
        for learner, sheet in sheets.items():
            if isinstance(sheet, Sheet):
                text = words.shown(sheet.written(prompt))
                kept = marks.kept.get((prompt.name, learner), ("", ""))
                rows.append((prompt.name, learner, len(text.split()), *kept, text, rubric))
    return _csv(_COLUMNS, rows)


def _read_marks(path: Path, exam: Exam, sheets: Mapping[str, Sheet | str]) -> Marks:
    """The marks of the answers that are still the same."""
    given: dict[Key, tuple[tuple[int, ...], str]] = {}
    kept: dict[Key, tuple[str, str]] = {}
    unclear: list[str] = []
    prompts = {prompt.name: prompt for prompt in exam.declared.prompts}
    learners = {inert(learner): learner for learner in sheets}
    for number, row in enumerate(_rows(path), start=1):
        learner = learners.get(row.get("learner"), "")
        prompt, sheet = prompts.get(row.get("answer") or ""), sheets.get(learner)
        marked, comment = (row.get("marks") or "").strip(), (row.get("comment") or "").strip()
        if prompt is None or not isinstance(sheet, Sheet) or not (marked or comment):
            continue
        key = prompt.name, learner
        if _same(row.get("text") or "") != _same(str(inert(words.shown(sheet.written(prompt))))):
            unclear.append(f"{key[1]} has changed the answer {prompt.name}; mark it again")
            continue
        kept[key] = (marked, comment)
        numbers = re.findall(r"\d+", marked)
        points = tuple(map(int, numbers))
        fits = [has <= one.points for has, one in zip(points, prompt.rubric, strict=False)]
        if marked and (len(points) != len(prompt.rubric) or not all(fits)):
            most = " ".join(str(one.points) for one in prompt.rubric)
            unclear.append(f"row {number} of {path.name}, {key[1]}: marks {marked!r} are not like {most}, the maximum")
        elif marked:
            given[key] = (points, comment)
    return Marks(given, kept, tuple(unclear))


def _rows(path: Path) -> list[dict[str, str | None]]:
    """The rows as a spreadsheet left them: with a mark of byte order or without, between commas or semicolons."""
    with contextlib.suppress(OSError, UnicodeDecodeError, csv.Error):
        text = path.read_text("utf-8-sig")
        delimiter = ";" if ";" in text.partition("\n")[0] else ","
        return list(csv.DictReader(io.StringIO(text), delimiter=delimiter))
    return []


def _same(text: str) -> str:
    """A text without what a spreadsheet may change: the ends of its lines."""
    return " ".join(text.split())


def _csv(heading: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(heading)
    writer.writerows([inert(cell) for cell in row] for row in rows)
    return text.getvalue()
