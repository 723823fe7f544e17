"""Begin an exam, and grade its exercises, its answers and its deliverable."""

from __future__ import annotations

import dataclasses
import platform
import random
from collections.abc import Callable, Mapping, Sequence
from datetime import date
from pathlib import Path

import torch

from kernelpath import words
from kernelpath.course.checkpoint import MAX_WORDS, MIN_WORDS
from kernelpath.course.registry import DELIVERABLE, ExerciseRef
from kernelpath.device import gpu
from kernelpath.exam.certificate import SELF, Certificate, GradedAnswer, WrittenAnswer, points_by_part
from kernelpath.exam.questions import Paper
from kernelpath.exam.sheet import ANSWERS, Sheet
from kernelpath.files import MOST_BYTES, digest_source, submitted, write_atomically
from kernelpath.grading import grade
from kernelpath.verdict import Report

ReportProgress = Callable[[str], None]


def write_stub(paper: Paper, folder: Path) -> list[Path]:
    """Write the files of the deliverable that are not there yet, and return their paths. Raises OSError."""
    paths = {folder / f"{DELIVERABLE}{suffix}": text for suffix, text in paper.variant.stub.items()}
    # A file that exists may already hold the learner's work.
    new = {path: text for path, text in paths.items() if not path.exists()}
    for path, text in new.items():
        write_atomically(path, text)
    return list(new)


def grade_exam(
    sheet: Sheet,
    *,
    device: grade.Device = "auto",
    seed: int | None = None,
    report_progress: ReportProgress = lambda what: None,
) -> Certificate:
    """Grade the exercises, the deliverable and the answers beside the sheet. Raises ExamError and grade.Usage."""
    paper = sheet.paper
    folder = sheet.path.parent
    paper.require_files(folder)
    if seed is None:
        seed = random.SystemRandom().randrange(1 << 32)
    items: list[ExerciseRef] = [*paper.exam.items, paper.item]
    reports = [
        grade_item(sheet, item, device, seed, _with_prefix(report_progress, f"{position} of {len(items)}, "))
        for position, item in enumerate(items, start=1)
    ]
    return certify(sheet, reports[:-1], reports[-1], seed, digest_files(paper, folder))


def grade_item(
    sheet: Sheet, item: ExerciseRef, device: grade.Device, seed: int | None, report_progress: ReportProgress
) -> Report:
    """Grade one item of the exam: an exercise, or the deliverable, whose next step leads back to the exam."""
    # The submission lies beside the sheet, which may be outside the checkout (--from).
    file = sheet.path.with_name(item.solution.name)
    report = grade.grade(
        item, file, device=device, seed=seed, report_progress=lambda message: report_progress(f"{item.name}: {message}")
    )
    if item.name == DELIVERABLE:
        file_to_edit = report.file or str(file)
        command = f"kp checkpoint {sheet.paper.exam.number}"
        next_step = (
            command
            if report.verdict.passed
            else f"edit {file_to_edit}, then {command} --deliverable --seed {report.seed}"
        )
        report = dataclasses.replace(report, next_step=next_step)
    return report


def _with_prefix(report_progress: ReportProgress, prefix: str) -> ReportProgress:
    return lambda message: report_progress(f"{prefix}{message}")


def certify(
    sheet: Sheet,
    exercises: Sequence[Report],
    deliverable: Report,
    seed: int,
    files: Mapping[str, str],
    marks: Mapping[str, tuple[tuple[int, ...], str]] | None = None,
    marked_by: str = "",
) -> Certificate:
    """Assemble the certificate of an exam from the reports of its parts.

    Args:
        files: The SHA-256 digest of each submitted file, by name.
        marks: A teacher's marks and comment, by prompt. Without any, the learner's own marks count.
        marked_by: Who set `marks`, if anybody did.
    """
    paper = sheet.paper
    # A certificate is passed on: without what the submission printed, it stays short and private.
    brief = tuple(dataclasses.replace(report, printed="", traffic=()) for report in exercises)
    self_marks = {prompt.name: (points, "") for prompt in sheet.prompts if (points := sheet.marks(prompt)) is not None}
    marks_by_prompt = marks or self_marks
    # Incomplete marks of the learner's own do not make an assessment.
    if not marked_by and len(self_marks) == len(sheet.prompts) > 0:
        marked_by = SELF
    answers = tuple(
        GradedAnswer(
            question.part, question.key, words.shown(sheet.answer_text(question), 200), sheet.is_correct[question.key]
        )
        for question in paper.questions
    )
    written = tuple(
        WrittenAnswer(
            prompt.name,
            prompt.ask,
            words.shown(sheet.written(prompt)),
            prompt.rubric,
            *marks_by_prompt.get(prompt.name, ()),
        )
        for prompt in sheet.prompts
    )
    return Certificate(
        checkpoint=paper.exam.number,
        phase=paper.exam.phase,
        name=paper.name,
        date=date.today().isoformat(),
        device=deliverable.device,
        machine=describe_machine(deliverable.device),
        versions=grade.versions(),
        seed=seed,
        twist=paper.variant.name,
        score=sum(points_by_part(brief, deliverable, answers).values()),
        missing=tuple(_missing_for_pass(paper, brief, deliverable, answers, written)),
        exercises=brief,
        deliverable=dataclasses.replace(deliverable, printed=""),
        answers=answers,
        written=written,
        marked_by=marked_by,
        files=files,
    )


def describe_machine(device: str) -> dict[str, str]:
    """Describe the machine that the exam ran on."""
    description = {
        "device": device,
        "system": platform.platform(),
        "processor": platform.processor() or platform.machine(),
    }
    if torch.cuda.is_available() and device == torch.cuda.get_device_name():
        description["driver"] = gpu.driver()
        description["compute capability"] = ".".join(map(str, torch.cuda.get_device_capability()))
    return description


def digest_files(paper: Paper, folder: Path) -> dict[str, str]:
    """Return the SHA-256 digest of every file in `folder` that the exam reads, by name."""
    items = (*paper.exam.items, paper.item)
    names = [ANSWERS, *(item.solution.with_suffix(end).name for item in items for end in (".cu", ".py"))]
    paths = {name: folder / name for name in names}
    for item in items:
        # Submissions of several files, such as a package, are in a folder.
        paths |= {str(path.relative_to(folder)): path for path in submitted(folder / item.solution.name)}
    return {name: digest_source(path, MOST_BYTES) for name, path in paths.items() if path.is_file()}


def _missing_for_pass(
    paper: Paper,
    exercises: Sequence[Report],
    deliverable: Report,
    answers: Sequence[GradedAnswer],
    written: Sequence[WrittenAnswer],
) -> list[str]:
    """Return a sentence for each requirement that the exam fails."""
    sentences = [
        f"{item.name} ends as {report.verdict.value}: {report.cause or report.verdict.meaning}"
        for item, report in zip(paper.exam.items, exercises, strict=True)
        if not report.verdict.passed
    ]
    if not deliverable.verdict.passed:
        cause = deliverable.cause or deliverable.verdict.meaning
        sentences.append(f"the deliverable ends as {deliverable.verdict.value}: {cause}")
    correct = sum(answer.right for answer in answers)
    needed = paper.exam.correct_answers_needed(len(answers))
    if correct < needed:
        sentences.append(f"{correct} of {len(answers)} questions are answered correctly, {needed} are needed")
    length = f"{MIN_WORDS} to {MAX_WORDS} are required"
    sentences += [
        f"the written answer {answer.key} has {words.count(answer.words, 'word')}, {length}"
        for answer in written
        if not answer.has_valid_length
    ]
    # Case and whitespace do not make a copied answer a different one.
    texts = [" ".join(answer.text.casefold().split()) for answer in written]
    sentences += [
        f"the written answer {answer.key} repeats an earlier one; each question needs its own"
        for index, answer in enumerate(written)
        if texts[index] and texts[index] in texts[:index]
    ]
    return sentences
