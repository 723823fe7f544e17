"""Read and update the learner's progress for the commands. What cannot be saved is a warning, never a failure."""

from __future__ import annotations

from collections.abc import Callable

from kernelpath import words
from kernelpath.cli.common import Failure, errors, warn
from kernelpath.course import delivery, progress, registry
from kernelpath.course.progress import Progress, Record
from kernelpath.course.registry import ExerciseRef
from kernelpath.verdict import Report


def records() -> list[tuple[ExerciseRef, Record]]:
    """Return every exercise in the order of the syllabus, with its saved record."""
    saved = Progress(registry.root(), warn).records()
    return [(item, saved.get(item.path_id, progress.EMPTY_RECORD)) for item in registry.exercises()]


def next_item() -> ExerciseRef | None:
    """Return the first exercise of the syllabus that has not been passed."""
    return next((item for item, record in records() if not record.passed), None)


def require_next_item() -> ExerciseRef:
    """Return the next exercise. Raises Failure if every exercise has been passed."""
    item = next_item()
    if item is None:
        raise Failure("every exercise is passed; name one to grade it again, or give --all")
    return item


def has_passed(item: ExerciseRef) -> bool:
    """Return whether an exercise has been passed before."""
    return dict(records())[item].passed is not None


def save(item: ExerciseRef, change: Callable[[Record], Record]) -> None:
    """Replace the record of an exercise by the result of `change`."""
    try:
        Progress(item.root, warn).update(item.path_id, change)
    except progress.NotSaved as error:
        warn(str(error))


def save_result(item: ExerciseRef, graded: Report) -> None:
    """Save a pass, and the report with the sources that were graded."""
    if graded.verdict.passed:
        save(item, lambda record: progress.with_report(record, graded))
        _reveal(item)
    try:
        Progress(item.root, warn).save_report(graded, item.files("phases"))
    except progress.NotSaved as error:
        warn(str(error))


def _reveal(item: ExerciseRef) -> None:
    try:
        for path in delivery.reveal(item):
            errors.print(f"{words.path(path, item.root)} is now in your folder", soft_wrap=True)
    except progress.NotSaved as error:
        warn(str(error))


def seconds_of_last(item: ExerciseRef) -> float | None:
    """Return the seconds of the last saved grading of the exercise; None before the first pass."""
    saved = Progress(item.root, lambda _: None).load_report(item.path_id)
    return saved.report.seconds if saved and saved.report.verdict.passed else None
