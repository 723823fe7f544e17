"""grade: a class."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kernelpath.cli.common import NOT_YET, PASSED, Failure, device_option, errors, names_argument, out
from kernelpath.cli.grading import importing
from kernelpath.course import registry
from kernelpath.course.registry import Item
from kernelpath.show import overview, view

if TYPE_CHECKING:
    from kernelpath.grading.grade import Device


@click.command("grade")
@click.argument("folder", metavar="DIR", type=click.Path(exists=True, file_okay=False, path_type=Path))
@names_argument
@click.option("--out", "to", type=click.Path(path_type=Path), help="Where the grades go. [DIR-grades]")
@device_option
@click.option("--seed", type=int, default=0, show_default=True, help="Draws sizes and inputs, the same for all.")
@click.option("--jobs", type=click.IntRange(1), help="How many at a time without a GPU. [one for each processor]")
def grade_(folder: Path, items: tuple[Item, ...], to: Path | None, device: Device, seed: int, jobs: int | None) -> int:
    """Grade a class: DIR holds a folder for each learner.

    Without a NAME: every exercise that anybody handed in. Writes grades.csv, grades.json and a results.json for
    Gradescope for each learner. A second run does only what changed.

    Exit status 0: everything was graded, whether passed or not. 1: something could not be graded.
    """
    folder = folder.resolve()
    to = to or folder.with_name(f"{folder.name}-grades")
    with errors.status("starting"), importing():
        from kernelpath.grading.grade import Usage
        from kernelpath.school import classroom, handed_in
        from kernelpath.school.gradebook import UNFINISHED
    chosen = items or handed_in.default_items(folder)
    if not chosen:
        raise Failure(f"nobody in {folder} has a file named like {registry.exercises()[0].solution.name}; name a NAME")
    again = f"kp grade {shlex.quote(str(folder))}"
    try:
        with overview.bar(errors) as tell:
            grades = classroom.grade_class(folder, to, chosen, device=device, seed=seed, jobs=jobs, tell=tell)
    except Usage as error:
        raise Failure(str(error)) from error
    except OSError as error:
        if isinstance(error, classroom.NotWritten):
            overview.school(out, error.grades)
        raise Failure(
            f"cannot write {error.filename or to}: {error.strerror}; when it can be written, {again}"
        ) from error
    except KeyboardInterrupt:
        errors.print(f"\nwhat is graded is kept; go on with {again}", soft_wrap=True)
        raise
    overview.school(out, grades)
    ungraded = [one for one in grades if one.key == UNFINISHED]
    view.step(out, f"{again}, once more" if ungraded else f"read {to / 'grades.csv'}")
    return NOT_YET if ungraded else PASSED
