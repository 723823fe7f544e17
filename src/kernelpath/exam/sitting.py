"""Sitting an exam: grades the submission, its answers and its deliverable; and grading once more what was certified."""

from __future__ import annotations

import dataclasses
import hashlib
import platform
import random
from collections.abc import Callable, Mapping, Sequence
from datetime import date
from pathlib import Path

import torch

from kernelpath.course.registry import Item
from kernelpath.device import gpu
from kernelpath.exam.certificate import Certificate, points
from kernelpath.exam.questions import Exam
from kernelpath.exam.sheet import ANSWERS, Sheet
from kernelpath.grading import grade
from kernelpath.grading.truth import derive
from kernelpath.verdict import Report

Tell = Callable[[str], None]


def sit(
    exam: Exam,
    folder: Path,
    *,
    device: grade.Device = "auto",
    seed: int | None = None,
    tell: Tell = lambda what: None,
) -> Certificate:
    """Grade the submission in `folder`: its kernels and its answer sheet. Raises NotValid and grade.Usage."""
    exam.require_files(folder)
    seed = random.SystemRandom().randrange(1 << 32) if seed is None else seed
    right = Sheet(exam, folder / ANSWERS).right

    def graded(item: Item, drawn: int, label: str) -> Report:
        report = grade.grade(
            item,
            folder / item.solution.name,
            device=device,
            seed=drawn,
            report_progress=lambda w: tell(f"{label}: {w}"),
        )
        return dataclasses.replace(report, printed="", traffic=())

    exercises = tuple(
        graded(item, seed, f"{position} of {len(exam.items)}, {item.name}")
        for position, item in enumerate(exam.items, start=1)
    )
    delivered = exercises[exam.items.index(exam.deliverable)].verdict.passed
    draws = range(exam.declared.draws if delivered else 0)
    deliverable = tuple(
        graded(exam.deliverable, derive(seed, "deliverable", draw), f"deliverable, size {draw + 1} of {len(draws)}")
        for draw in draws
    )
    return Certificate(
        checkpoint=exam.number,
        phase=exam.phase,
        date=date.today().isoformat(),
        device=exercises[0].device,
        machine=machine(exercises[0].device),
        versions=grade.versions(),
        seed=seed,
        score=sum(points(exercises, deliverable, right).values()),
        missing=tuple(_missing(exam, exercises, deliverable, right)),
        exercises=exercises,
        deliverable=deliverable,
        answers=right,
        files=files(exam, folder),
    )


def machine(device: str) -> dict[str, str]:
    """What the exam ran on, in words."""
    found = {"device": device, "system": platform.platform(), "processor": platform.processor() or platform.machine()}
    if torch.cuda.is_available() and device == torch.cuda.get_device_name():
        found["driver"] = gpu.driver()
        found["compute capability"] = ".".join(map(str, torch.cuda.get_device_capability()))
    return found


def files(exam: Exam, folder: Path) -> dict[str, str]:
    """SHA-256 of everything in `folder` that the exam reads, by name."""
    names = [ANSWERS, *(item.solution.with_suffix(end).name for item in exam.items for end in (".cu", ".py"))]
    paths = {name: folder / name for name in names}
    return {name: hashlib.sha256(path.read_bytes()).hexdigest() for name, path in paths.items() if path.is_file()}


def _missing(
    exam: Exam, exercises: Sequence[Report], deliverable: Sequence[Report], right: Mapping[str, bool]
) -> list[str]:
    found = [
        f"{item.name} ends as {report.verdict.value}: {report.cause or report.verdict.meaning}"
        for item, report in zip(exam.items, exercises, strict=True)
        if not report.verdict.passed
    ]
    found += [
        f"the deliverable {exam.deliverable.name} ends as {report.verdict.value} at a drawn size: {report.cause};"
        f" kp check {exam.deliverable.name} --seed {report.seed}"
        for report in deliverable
        if not report.verdict.passed
    ]
    needed = exam.needed(len(right))
    if sum(right.values()) < needed:
        found.append(f"{sum(right.values())} of {len(right)} questions are answered correctly, {needed} are needed")
    return found
