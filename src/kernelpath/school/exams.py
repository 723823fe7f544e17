"""Grade the exams of a class: a folder per learner, with the answer sheet, the kernels and the deliverable.

checkpoint1.csv has a row for each learner, with the points by part and what is missing. checkpoint1-written.csv has the
written answers, prompt by prompt, for marking: a teacher writes "2 1 0" into the column marks, a number for each
criterion of the rubric. The next run reads the marks, and keeps them as long as the answer stays the same.
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
from kernelpath.exam import ExamError
from kernelpath.exam.certificate import TEACHER, Certificate
from kernelpath.exam.questions import Exam, name_words
from kernelpath.exam.sheet import ANSWERS, Sheet
from kernelpath.exam.sitting import certify, digest_files
from kernelpath.files import write_atomically
from kernelpath.grading import grade
from kernelpath.school import classroom, gradebook, handed_in
from kernelpath.school.gradebook import Grade, neutralize
from kernelpath.verdict import Report, Verdict, encode

_COLUMNS = ("answer", "learner", "words", "marks", "comment", "text", "rubric")

# The name of a prompt and the name of a learner.
AnswerId = tuple[str, str]


@dataclass(frozen=True)
class ExamOutcome:
    """The outcome of one learner's exam.

    Attributes:
        certificate: None if there is nothing to certify. Then `cause` says why.
    """

    learner: str
    certificate: Certificate | None
    cause: str = ""


@dataclass(frozen=True)
class Marks:
    """The marks in the file of written answers.

    Attributes:
        marks_by_answer: The points for each criterion, and a comment.
        entries_by_answer: The columns marks and comment as they stand in the file.
        unclear: A sentence for each row that cannot be understood.
    """

    marks_by_answer: Mapping[AnswerId, tuple[tuple[int, ...], str]] = field(default_factory=dict)
    entries_by_answer: Mapping[AnswerId, tuple[str, str]] = field(default_factory=dict)
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
    on_graded: Callable[[Grade, int, int], None] = lambda grade, done, of: None,
) -> tuple[list[ExamOutcome], Marks]:
    """Grade every learner of `folder`, and write both tables below `out`.

    The options are those of `classroom.grade_class`.
    """
    learners = handed_in.learners(folder)
    sheets = {learner.name: _open_sheet(exam, learner) for learner in learners}
    entries: list[handed_in.Entry] = []
    for learner in learners:
        sheet = sheets[learner.name]
        if isinstance(sheet, Sheet):
            # Each learner has a deliverable of their own, drawn by the name in the sheet.
            entries += handed_in.entries_of(learner, [*exam.items, sheet.paper.item])
    secret = secret or gradebook.read_secret(out) or classroom.generate_secret()
    seeds = {name: _exam_seed(secret, sheet) if seed is None else seed for name, sheet in sheets.items()}
    grades = classroom.grade_entries(
        entries,
        folder,
        out,
        device=device,
        seed=lambda entry: seeds[entry.learner],
        secret=secret,
        jobs=jobs,
        engine=engine,
        on_graded=on_graded,
    )
    # Marks are read before the file is written again, and are carried over to it.
    path = out / f"checkpoint{exam.number}-written.csv"
    marks = _read_marks(path, exam, sheets)
    outcomes = [_certify_learner(name, sheet, grades, exam, seeds[name], marks) for name, sheet in sheets.items()]
    write_atomically(path, _written_csv(exam, sheets, marks))
    write_atomically(out / f"checkpoint{exam.number}.csv", _points_csv(exam, outcomes))
    return outcomes, marks


def _exam_seed(secret: str, sheet: Sheet | str) -> int:
    """Return the seed of a learner's exam, which the certificate names. A changed submission gets another seed."""
    if isinstance(sheet, str):
        return 0
    try:
        digests = digest_files(sheet.paper, sheet.path.parent)
        del digests[ANSWERS]  # answers do not influence the inputs
    except (OSError, ValueError, LookupError):  # certify reports the cause
        digests = {}
    return classroom.derive_seed(secret, sheet.paper.name, sheet.paper.exam.phase, encode(digests))


def _open_sheet(exam: Exam, learner: Path) -> Sheet | str:
    """Return a learner's sheet, or the reason why there is none. No content of one folder stops the others' grading."""
    try:
        path = handed_in.file_of(learner, ANSWERS, exam.phase)
        if path is None:
            return f"there is no {ANSWERS}"
        sheet = Sheet(exam, path)
    except (ExamError, OSError) as error:
        return words.shown(str(error).replace(f"{learner.parent}/", ""), 300)
    except Exception as error:
        return words.shown(f"the grader failed: {type(error).__name__}: {error}", 300)
    # The name draws the questions, so a sheet under another learner's name would be a copy.
    if not name_words(sheet.paper.name) <= name_words(learner.name):
        return f"{ANSWERS} is the sheet of {sheet.paper.name}; name the folder after its learner"
    return sheet


def _certify_learner(
    name: str, sheet: Sheet | str, grades: Sequence[Grade], exam: Exam, seed: int, marks: Marks
) -> ExamOutcome:
    if isinstance(sheet, str):
        return ExamOutcome(name, None, sheet)
    reports_by_exercise = {result.exercise: result.report for result in grades if result.learner == name}
    try:
        reports = [
            reports_by_exercise[item.path_id] or _report_not_submitted(item.path_id, seed)
            for item in (*exam.items, sheet.paper.item)
        ]
        teacher_marks = {
            prompt: answer_marks for (prompt, learner), answer_marks in marks.marks_by_answer.items() if learner == name
        }
        digests = digest_files(sheet.paper, sheet.path.parent)
        marked_by = TEACHER if teacher_marks else ""
        certificate = certify(sheet, reports[:-1], reports[-1], seed, digests, teacher_marks, marked_by)
    except Exception as error:  # no learner's files may cost the others their rows
        return ExamOutcome(name, None, words.shown(f"the grader failed: {type(error).__name__}: {error}", 300))
    return ExamOutcome(name, certificate)


def _report_not_submitted(path_id: str, seed: int) -> Report:
    return Report(path_id, "", "", "", seed, Verdict.NOT_STARTED, "nothing was handed in")


def _points_csv(exam: Exam, outcomes: Sequence[ExamOutcome]) -> str:
    parts = ("exercises", "questions", "reading", "deliverable")
    heading = ("learner", "name", "passed", "score", *parts, "written", "of", "marked_by", "twist", "missing", "digest")
    rows: list[Sequence[Any]] = []
    for outcome in outcomes:
        certificate = outcome.certificate
        if certificate is None:
            rows.append((outcome.learner, "", "no", 0, 0, 0, 0, 0, *[""] * 4, outcome.cause, ""))
            continue
        reached = sum(answer.points for answer in certificate.written) if certificate.marked_by else ""
        maximum = sum(answer.max_points for answer in certificate.written)
        points_by_part = [certificate.points[part] for part in parts]
        remaining_cells = (
            reached,
            maximum,
            certificate.marked_by,
            certificate.twist,
            "; ".join(certificate.missing),
            certificate.digest,
        )
        rows.append(
            (
                outcome.learner,
                certificate.name,
                "yes" if certificate.passed else "no",
                certificate.score,
                *points_by_part,
                *remaining_cells,
            )
        )
    return _format_csv(heading, rows)


def _written_csv(exam: Exam, sheets: Mapping[str, Sheet | str], marks: Marks) -> str:
    """Format all answers to the first prompt, then all to the next, so that one standard applies to each prompt."""
    rows = []
    for prompt in exam.checkpoint.prompts:
        rubric = "\n".join(f"{criterion.points}: {criterion.text}" for criterion in prompt.rubric)
        for learner, sheet in sheets.items():
            if isinstance(sheet, Sheet):
                text = words.shown(sheet.written(prompt))
                entry = marks.entries_by_answer.get((prompt.name, learner), ("", ""))
                rows.append((prompt.name, learner, len(text.split()), *entry, text, rubric))
    return _format_csv(_COLUMNS, rows)


def _read_marks(path: Path, exam: Exam, sheets: Mapping[str, Sheet | str]) -> Marks:
    """Read the marks of the answers that have not changed."""
    marks_by_answer: dict[AnswerId, tuple[tuple[int, ...], str]] = {}
    entries_by_answer: dict[AnswerId, tuple[str, str]] = {}
    unclear: list[str] = []
    prompts = {prompt.name: prompt for prompt in exam.checkpoint.prompts}
    # Names are compared as the file has them, after cells that could be formulas were escaped.
    learners = {neutralize(learner): learner for learner in sheets}
    for number, row in enumerate(_read_rows(path), start=1):
        learner = learners.get(row.get("learner"), "")
        prompt = prompts.get(row.get("answer") or "")
        sheet = sheets.get(learner)
        marks_text = (row.get("marks") or "").strip()
        comment = (row.get("comment") or "").strip()
        if prompt is None or not isinstance(sheet, Sheet) or not (marks_text or comment):
            continue
        key = prompt.name, learner
        # The file has the answer as _written_csv escaped it, and a spreadsheet may have changed the ends of its lines.
        if _normalize_whitespace(row.get("text") or "") != _normalize_whitespace(
            str(neutralize(words.shown(sheet.written(prompt))))
        ):
            unclear.append(f"{key[1]} has changed the answer {prompt.name}; mark it again")
            continue
        entries_by_answer[key] = (marks_text, comment)
        # "2 1 3", "2/1/3" and "2, 1, 3" are all accepted.
        numbers = re.findall(r"\d+", marks_text)
        points = tuple(map(int, numbers))
        fits = [value <= criterion.points for value, criterion in zip(points, prompt.rubric, strict=False)]
        if marks_text and (len(points) != len(prompt.rubric) or not all(fits)):
            example = " ".join(str(criterion.points) for criterion in prompt.rubric)
            unclear.append(
                f"row {number} of {path.name}, {key[1]}: marks {marks_text!r} are not like {example}, the maximum"
            )
        elif marks_text:
            marks_by_answer[key] = (points, comment)
    return Marks(marks_by_answer, entries_by_answer, tuple(unclear))


def _read_rows(path: Path) -> list[dict[str, str | None]]:
    """Read the rows as spreadsheets save them: with or without a byte order mark, separated by commas or semicolons."""
    with contextlib.suppress(OSError, UnicodeDecodeError, csv.Error):
        text = path.read_text("utf-8-sig")
        # Spreadsheets save CSV with semicolons where the locale has decimal commas.
        delimiter = ";" if ";" in text.partition("\n")[0] else ","
        return list(csv.DictReader(io.StringIO(text), delimiter=delimiter))
    return []


def _normalize_whitespace(text: str) -> str:
    """Return `text` without differences in whitespace, since spreadsheets change the ends of lines."""
    return " ".join(text.split())


def _format_csv(heading: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(heading)
    writer.writerows([neutralize(cell) for cell in row] for row in rows)
    return text.getvalue()
