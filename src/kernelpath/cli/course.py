"""Implement next, list, hint, reset and progress, which answer at once, without torch."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import click
from rich.text import Text

from kernelpath import words
from kernelpath.cli import record
from kernelpath.cli.common import PASSED, Failure, name_argument, optional_name_argument, out, warn
from kernelpath.course import delivery, lesson, registry
from kernelpath.course.progress import Progress
from kernelpath.course.registry import ExerciseRef
from kernelpath.files import write_atomically
from kernelpath.show import overview, view


@click.command("next")
def next_() -> int:
    """Show what to read, edit and type next."""
    return show_next()


def show_next() -> int:
    """Print what to do next, as `kp` does without a command."""
    items = registry.exercises()
    item = record.next_item()
    if item is None:
        out.print(f"All {len(items)} exercises are passed.")
        view.step(out, "kp progress")
        return PASSED
    out.print(Text.assemble((item.name, "bold"), f"  {item.title}"))
    kind = "elective" if item.is_elective else "exercise"
    # Electives are numbered by themselves, because nobody has to do all of them.
    same_kind = [candidate for candidate in items if candidate.is_elective == item.is_elective]
    place = f"{kind} {same_kind.index(item) + 1} of {len(same_kind)}"
    out.print(Text(f"week {item.week}, {words.LANES[item.lane]}, {place}\n", "dim"))
    # Week 0 has no exercise, so its notebook is shown with the first exercise of the course.
    earlier = _prerequisites(item) if item == items[0] else []
    for position, notebook in enumerate(filter(None, [*earlier, item.notebook])):
        out.print(f"{'' if position else 'read':6s}{words.path(notebook, item.root)}", soft_wrap=True)
    if item.notebook:
        out.print(Text(f"      open it with: {delivery.OPEN_NOTEBOOKS}", "dim"))
    for position, path in enumerate(item.files("phases")):
        out.print(f"{'' if position else 'edit':6s}{words.path(path, item.root)}", soft_wrap=True)
    view.step(out, f"kp watch {item.name}")
    return PASSED


def _prerequisites(first: ExerciseRef) -> list[Path]:
    """Return the notebooks of the weeks before the first exercise."""
    notebooks = sorted((first.root / "notebooks").glob("*/week*.ipynb"), key=lambda path: path.name)
    return [path for path in notebooks if path.name < f"week{first.week:02d}"]


@click.command("list")
def list_() -> int:
    """List all exercises in syllabus order, and the electives after them."""
    overview.syllabus(out, record.records())
    return PASSED


@click.command()
@optional_name_argument
@click.argument("level", type=click.IntRange(1, 3), required=False)
def hint(item: ExerciseRef | None, level: int | None) -> int:
    """Show a hint.

    The next one that you have not seen, or the one of LEVEL 1, 2 or 3. After a pass all of them, and none is counted.
    Without a NAME: for the next exercise.
    """
    item = item or record.require_next_item()
    hints = lesson.read(item.lesson).hints
    saved = dict(record.records())[item]
    if saved.passed:
        for number in [level] if level else range(1, len(hints) + 1):
            _show_hint(hints, number)
        view.step(out, f"kp solution {item.name}")
        return PASSED
    if level is None and saved.hints == len(hints):
        out.print(f"There are only {len(hints)} hints; this is the last one again.")
    # A LEVEL that was given may skip hints; those before it then count as seen.
    level = level or min(saved.hints + 1, len(hints))
    _show_hint(hints, level)
    if level > saved.hints:
        record.save(item, lambda previous: dataclasses.replace(previous, hints=level))
    view.step(out, f"kp check {item.name}")
    return PASSED


def _show_hint(hints: Sequence[str], number: int) -> None:
    out.print(Text.assemble((f"hint {number} of {len(hints)}: ", "bold"), hints[number - 1]))


@click.command()
@name_argument
def reset(item: ExerciseRef) -> int:
    """Restore the stub; your files are kept."""
    from kernelpath.course import stubs

    texts = stubs.pristine(item)
    # Nothing is written, and no backup is made, where nothing would change.
    if all(path.is_file() and path.read_bytes() == text.encode() for path, text in texts.items()):
        out.print(f"{item.name} is the stub already")
        view.step(out, f"kp watch {item.name}")
        return PASSED
    try:
        backup_folder = stubs.back_up(item)
        for path, text in texts.items():
            write_atomically(path, text)
    except OSError as error:
        raise Failure(f"{item.name} is not reset: {error.strerror}: {error.filename}; make it writable") from error
    if backup_folder is not None:
        out.print(f"your files are kept in {words.path(backup_folder, item.root)}")
    out.print(f"{item.name} is the stub again")
    view.step(out, f"kp watch {item.name}")
    return PASSED


@click.command("progress")
def progress_() -> int:
    """Show what you have passed, with stars and times."""
    overview.progress(out, record.records(), Progress(registry.root(), warn).scores())
    item = record.next_item()
    view.step(out, f"kp watch {item.name}" if item else "kp report")
    return PASSED
