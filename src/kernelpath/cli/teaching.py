"""dev gradescope, classroom, summary: for teachers whose class hands in elsewhere."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import click

from kernelpath.cli.common import NOT_YET, PASSED, Failure, errors, out
from kernelpath.course import places, registry
from kernelpath.course.registry import Item
from kernelpath.files import write_atomically
from kernelpath.show import view
from kernelpath.verdict import ValidationError

_torch_index_option = click.option(
    "--torch-index",
    "extra_index",
    metavar="URL",
    default="",
    help="The index of PyTorch's wheels for CPUs, which pip asks besides its own.",
)


@click.command("gradescope")
@click.argument("what", metavar="WEEK|NAME...", nargs=-1, required=True)
@click.option("--out", "to", type=click.Path(path_type=Path), help="The zip. [gradescope-WEEK....zip]")
@_torch_index_option
def gradescope(what: tuple[str, ...], to: Path | None, extra_index: str) -> int:
    """Write an autograder for Gradescope.

    It is a zip that grades the exercises of weeks, or single exercises.
    """
    from kernelpath.dev.gradescope import GIGABYTES, NotAnIndex, NotPacked, pack

    items = _chosen(what)
    to = to or Path(f"gradescope-{'-'.join(what)}.zip")
    with _writing(to, items, NotPacked, NotAnIndex), errors.status("building the wheel"):
        pack(items, to, items[0].root, extra_index)
    container = f"a container with {GIGABYTES} GB of memory"
    view.step(
        out, f"upload it as the assignment's autograder, with Ubuntu 22.04 or newer as the base image and {container}"
    )
    return PASSED


@click.command("classroom")
@click.argument("what", metavar="WEEK|NAME...", nargs=-1, required=True)
@click.option("--course", metavar="OWNER/REPO[@REF]", required=True, help="Where the course is that grades.")
@click.option("--out", "to", type=click.Path(path_type=Path), default="classroom.yml", show_default=True)
@_torch_index_option
def classroom(what: tuple[str, ...], course: str, to: Path, extra_index: str) -> int:
    """Write a workflow for GitHub Actions.

    It grades the exercises of weeks, or single exercises, after each push.
    """
    from kernelpath.dev.gradescope import NotAnIndex
    from kernelpath.dev.workflow import NotARepository, workflow

    items = _chosen(what)
    with _writing(to, items, NotARepository, NotAnIndex):
        write_atomically(to, workflow(items, course, extra_index))
    view.step(out, "commit it to the assignment's template repository as .github/workflows/classroom.yml")
    return PASSED


@click.command("summary")
@click.argument("folder", metavar="GRADES", type=click.Path(path_type=Path))
def summary(folder: Path) -> int:
    """Print what `kp grade` wrote to a folder as Markdown. Exit status 1 unless everything passed."""
    from kernelpath.school import gradebook
    from kernelpath.school.summary import markdown

    try:
        grades = gradebook.saved(folder)
    except (OSError, ValidationError) as error:
        raise Failure(f"{folder} holds no grades of this version of kernelpath; kp grade writes them") from error
    sys.stdout.write(markdown(grades))
    return PASSED if all(one.report and one.report.verdict.passed for one in grades) else NOT_YET


@contextlib.contextmanager
def _writing(to: Path, items: Sequence[Item], *refused: type[Exception]) -> Iterator[None]:
    """Write `to` inside, then say so. refused: what else may keep it from being written. Raises Failure."""
    try:
        yield
    except refused as error:
        raise Failure(str(error)) from error
    except OSError as error:
        raise Failure(f"cannot write {to}: {error.strerror}; give --out a path that can be written") from error
    out.print(f"wrote {to}: {', '.join(item.name for item in items)}", soft_wrap=True)


@places.anywhere()
def _chosen(what: Sequence[str]) -> list[Item]:
    """The exercises of weeks, by their numbers, and of names. Raises Failure for a week without exercises."""
    found: dict[Item, None] = {}
    for one in what:
        if one.isdecimal():
            of_week = [item for item in registry.exercises() if item.week == int(one)]
            if not of_week:
                raise Failure(f"week {one} has no exercises; kp list shows those that there are")
            found.update(dict.fromkeys(of_week))
        else:
            found[registry.find(one)] = None
    return list(found)
