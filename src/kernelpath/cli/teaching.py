"""Implement dev gradescope, classroom and summary, for teachers whose class hands in elsewhere."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import click

from kernelpath.cli.common import NOT_YET, PASSED, Failure, errors, out
from kernelpath.course import places, registry
from kernelpath.course.registry import ExerciseRef
from kernelpath.files import write_atomically
from kernelpath.show import view
from kernelpath.verdict import ValidationError

_torch_index_option = click.option(
    "--torch-index",
    "extra_index",
    metavar="URL",
    default="",
    help="The index of PyTorch's CPU wheels, which pip uses in addition to its own.",
)


@click.command("gradescope")
@click.argument("what", metavar="WEEK|NAME...", nargs=-1, required=True)
@click.option("--out", "to", type=click.Path(path_type=Path), help="The zip. [gradescope-WEEK....zip]")
@_torch_index_option
def gradescope(what: tuple[str, ...], to: Path | None, extra_index: str) -> int:
    """Write an autograder for Gradescope.

    It is a zip that grades the exercises of weeks, or single exercises.
    """
    from kernelpath.dev.gradescope import GIGABYTES, InvalidIndex, PackingError, pack

    items = _find_exercises(what)
    to = to or Path(f"gradescope-{'-'.join(what)}.zip")
    with _report_written(to, items, PackingError, InvalidIndex), errors.status("building the wheel"):
        pack(items, to, items[0].root, extra_index)
    container = f"a container with {GIGABYTES} GB of memory"
    view.step(
        out, f"upload it as the assignment's autograder, with Ubuntu 22.04 or newer as the base image and {container}"
    )
    return PASSED


@click.command("classroom")
@click.argument("what", metavar="WEEK|NAME...", nargs=-1, required=True)
@click.option("--course", metavar="OWNER/REPO[@REF]", required=True, help="The repository of the course that grades.")
@click.option("--out", "to", type=click.Path(path_type=Path), default="classroom.yml", show_default=True)
@_torch_index_option
def classroom(what: tuple[str, ...], course: str, to: Path, extra_index: str) -> int:
    """Write a workflow for GitHub Actions.

    It grades the exercises of weeks, or single exercises, after each push.
    """
    from kernelpath.dev.gradescope import InvalidIndex
    from kernelpath.dev.workflow import InvalidRepository, workflow

    # Exercises are looked up before the file is opened, so that a mistyped NAME leaves an old workflow as it is.
    items = _find_exercises(what)
    with _report_written(to, items, InvalidRepository, InvalidIndex):
        write_atomically(to, workflow(items, course, extra_index))
    view.step(out, "commit it to the assignment's template repository as .github/workflows/classroom.yml")
    return PASSED


@click.command("summary")
@click.argument("folder", metavar="GRADES", type=click.Path(path_type=Path))
def summary(folder: Path) -> int:
    """Print what `kp grade` wrote to a folder as Markdown. Exit status 1 unless everything passed."""
    from kernelpath.school import gradebook
    from kernelpath.school.gradebook import format_markdown

    try:
        grades = gradebook.read_all(folder)
    except (OSError, ValidationError) as error:
        raise Failure(f"{folder} holds no grades of this version of kernelpath; kp grade writes them") from error
    sys.stdout.write(format_markdown(grades))
    return PASSED if all(grade.report and grade.report.verdict.passed for grade in grades) else NOT_YET


@contextlib.contextmanager
def _report_written(to: Path, items: Sequence[ExerciseRef], *expected_errors: type[Exception]) -> Iterator[None]:
    """Write `to` inside the context, then print so. Raises Failure.

    Args:
        expected_errors: Further exceptions that keep the file from being written.
    """
    try:
        yield
    except expected_errors as error:
        raise Failure(str(error)) from error
    except OSError as error:
        raise Failure(f"cannot write {to}: {error.strerror}; give --out a path that can be written") from error
    out.print(f"wrote {to}: {', '.join(item.name for item in items)}", soft_wrap=True)


@places.allow_package_course()
def _find_exercises(selection: Sequence[str]) -> list[ExerciseRef]:
    """Return the exercises of weeks, by their numbers, and of names. Raises Failure for a week without exercises."""
    # A dictionary keeps the order, and drops an exercise that is named twice or together with its week.
    items: dict[ExerciseRef, None] = {}
    for week_or_name in selection:
        if week_or_name.isdecimal():
            of_week = [item for item in registry.exercises() if item.week == int(week_or_name)]
            if not of_week:
                raise Failure(f"week {week_or_name} has no exercises; kp list shows those that there are")
            items.update(dict.fromkeys(of_week))
        else:
            items[registry.find(week_or_name)] = None
    return list(items)
