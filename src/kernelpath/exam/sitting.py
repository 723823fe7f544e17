"""Beginning an exam and sitting it: grades the submission, its answers and its deliverable."""

from __future__ import annotations

import dataclasses
import functools
import platform
import random
from collections.abc import Callable, Mapping, Sequence
from datetime import date
from pathlib import Path

import torch

from kernelpath import words
from kernelpath.course.checkpoint import FEWEST_WORDS, MOST_WORDS
from kernelpath.course.registry import DELIVERABLE, Item
from kernelpath.device import gpu
from kernelpath.exam.certificate import SELF, Answered, Certificate, Written, points
from kernelpath.exam.questions import Paper
from kernelpath.exam.sheet import ANSWERS, Sheet
from kernelpath.files import MOST_BYTES, digest_source, submitted, write_atomically
from kernelpath.grading import grade
from kernelpath.verdict import Report

Tell = Callable[[str], None]


def write_stub(paper: Paper, folder: Path) -> list[Path]:
    """Write the files of the deliverable that are not there yet; returns those. Raises OSError."""
    paths = {folder / f"{DELIVERABLE}{suffix}": text for suffix, text in paper.twist.stub.items()}
    new = {path: text for path, text in paths.items() if not path.exists()}
    for path, text in new.items():
        write_atomically(path, text)
    return list(new)


def sit(
    sheet: Sheet, *, device: grade.Device = "auto", seed: int | None = None, tell: Tell = lambda what: None
) -> Certificate:
    """Grade what lies beside the sheet, and its answers. Raises NotValid and grade.Usage."""
    paper, folder = sheet.paper, sheet.path.parent
    paper.require_files(folder)
    seed = random.SystemRandom().randrange(1 << 32) if seed is None else seed
    items: list[Item] = [*paper.exam.items, paper.item]
    reports = [
        graded(sheet, item, device, seed, functools.partial(_numbered, tell, f"{at} of {len(items)}"))
        for at, item in enumerate(items, start=1)
    ]
    return certify(sheet, reports[:-1], reports[-1], seed, files(paper, folder))


def graded(sheet: Sheet, item: Item, device: grade.Device, seed: int | None, tell: Tell) -> Report:
    """The report of one item of the exam: an exercise, or the deliverable, whose next step leads back to the exam."""
    file = sheet.path.with_name(item.solution.name)
    report = grade.grade(
        item, file, device=device, seed=seed, report_progress=lambda what: tell(f"{item.name}: {what}")
    )
    if item.name == DELIVERABLE:
        blamed = report.file or str(file)
        again = f"kp checkpoint {sheet.paper.exam.number}"
        step = again if report.verdict.passed else f"edit {blamed}, then {again} --deliverable --seed {report.seed}"
        report = dataclasses.replace(report, next_step=step)
    return report


def _numbered(tell: Tell, place: str, what: str) -> None:
    tell(f"{place}, {what}")


def certify(
    sheet: Sheet,
    exercises: Sequence[Report],
    deliverable: Report,
    seed: int,
    files: Mapping[str, str],
    marks: Mapping[str, tuple[tuple[int, ...], str]] | None = None,
    marked_by: str = "",
) -> Certificate:
    """What was found, as a certificate.

    marks: a teacher's marks and comment by prompt; without any, the learner's own count.
    """
    paper = sheet.paper
    brief = tuple(dataclasses.replace(report, printed="", traffic=()) for report in exercises)
    own = {prompt.name: (found, "") for prompt in sheet.prompts if (found := sheet.marks(prompt)) is not None}
    marked = marks or own
    if not marked_by and len(own) == len(sheet.prompts) > 0:
        marked_by = SELF
    answers = tuple(
        Answered(asked.part, asked.key, words.shown(sheet.given(asked), 200), sheet.right[asked.key])
        for asked in paper.asked
    )
    written = tuple(
        Written(one.name, one.ask, words.shown(sheet.written(one)), one.rubric, *marked.get(one.name, ()))
        for one in sheet.prompts
    )
    return Certificate(
        checkpoint=paper.exam.number,
        phase=paper.exam.phase,
        name=paper.name,
        date=date.today().isoformat(),
        device=deliverable.device,
        machine=machine(deliverable.device),
        versions=grade.versions(),
        seed=seed,
        twist=paper.twist.name,
        score=sum(points(brief, deliverable, answers).values()),
        missing=tuple(_missing(paper, brief, deliverable, answers, written)),
        exercises=brief,
        deliverable=dataclasses.replace(deliverable, printed=""),
        answers=answers,
        written=written,
        marked_by=marked_by,
        files=files,
    )


def machine(device: str) -> dict[str, str]:
    """What the exam ran on, in words."""
    found = {"device": device, "system": platform.platform(), "processor": platform.processor() or platform.machine()}
    if torch.cuda.is_available() and device == torch.cuda.get_device_name():
        found["driver"] = gpu.driver()
        found["compute capability"] = ".".join(map(str, torch.cuda.get_device_capability()))
    return found


def files(paper: Paper, folder: Path) -> dict[str, str]:
    """SHA-256 of everything in `folder` that the exam reads, by name."""
    items = (*paper.exam.items, paper.item)
    names = [ANSWERS, *(item.solution.with_suffix(end).name for item in items for end in (".cu", ".py"))]
    paths = {name: folder / name for name in names}
    for item in items:
        paths |= {str(one.relative_to(folder)): one for one in submitted(folder / item.solution.name)}
    return {name: digest_source(path, MOST_BYTES) for name, path in paths.items() if path.is_file()}


def _missing(
    paper: Paper,
    exercises: Sequence[Report],
    deliverable: Report,
    answers: Sequence[Answered],
    written: Sequence[Written],
) -> list[str]:
    found = [
        f"{item.name} ends as {report.verdict.value}: {report.cause or report.verdict.meaning}"
        for item, report in zip(paper.exam.items, exercises, strict=True)
        if not report.verdict.passed
    ]
    if not deliverable.verdict.passed:
        told = deliverable.cause or deliverable.verdict.meaning
        found.append(f"the deliverable ends as {deliverable.verdict.value}: {told}")
    right, needed = sum(one.right for one in answers), paper.exam.needed(len(answers))
    if right < needed:
        found.append(f"{right} of {len(answers)} questions are answered correctly, {needed} are needed")
    asked_for = f"{FEWEST_WORDS} to {MOST_WORDS} are required"
    found += [
        f"the written answer {one.key} has {words.count(one.words, 'word')}, {asked_for}"
        for one in written
        if not one.fits
    ]
    texts = [" ".join(one.text.casefold().split()) for one in written]
    found += [
        f"the written answer {one.key} repeats an earlier one; each question needs its own"
        for at, one in enumerate(written)
        if texts[at] and texts[at] in texts[:at]
    ]
    return found
