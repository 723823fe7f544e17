"""grade: a class."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kernelpath.cli.common import NOT_YET, PASSED, Failure, device_option, errors, names_argument, out, warn
from kernelpath.cli.grading import importing
from kernelpath.course import registry
from kernelpath.course.registry import Item
from kernelpath.files import write_atomically
from kernelpath.show import overview, view

if TYPE_CHECKING:
    from kernelpath.grading.grade import Device


@click.command("grade")
@click.argument("folder", metavar="DIR", type=click.Path(exists=True, file_okay=False, path_type=Path))
@names_argument
@click.option("--out", "to", type=click.Path(path_type=Path), help="The folder for the grades. [DIR-grades]")
@click.option("--checkpoint", "number", metavar="N", type=click.IntRange(1), help="Grade the exam of phase N.")
@device_option
@click.option("--secret", default="", help="Repeat a run: the secret in its grades.json. [that in --out, or a new one]")
@click.option("--seed", type=int, help="In place of a secret: the same sizes and inputs for everybody.")
@click.option("--jobs", type=click.IntRange(1), help="How many in parallel without a GPU. [as cores and memory allow]")
@click.option(
    "--ray",
    "address",
    metavar="[ADDRESS]",
    is_flag=False,
    flag_value="auto",
    help="Grade on the Ray cluster at ADDRESS, such as 10.0.0.5:6379. [the one that this machine belongs to]",
)
def grade_(
    folder: Path,
    items: tuple[Item, ...],
    to: Path | None,
    number: int | None,
    device: Device,
    secret: str,
    seed: int | None,
    jobs: int | None,
    address: str | None,
) -> int:
    """Grade a class: DIR holds a folder for each learner.

    Without a NAME: every exercise that anybody handed in. Writes grades.csv, grades.json and a results.json for
    Gradescope for each learner. A second run grades only what changed. similar.csv names pairs of submissions that
    agree beyond the stub, for you to read; no grade depends on it.

    With --checkpoint: everybody's exam, named by the folders. Writes checkpointN.csv with the points, a certificate for
    each learner, and checkpointN-written.csv: enter marks for the written answers there, and run it again.

    Sizes and inputs are drawn from a secret of the run, others for each learner and submission. grades.json keeps it.

    Exit status 0: everything was graded, whether passed or not. 1: something could not be graded.
    """
    folder = folder.resolve()
    to = to or folder.with_name(f"{folder.name}-grades")
    with errors.status("starting"), importing():
        from kernelpath.grading.grade import Usage
        from kernelpath.school import classroom, cluster, handed_in
        from kernelpath.school.gradebook import UNFINISHED
    options: dict[str, Any] = {"device": device, "secret": secret, "seed": seed, "jobs": jobs}
    options["engine"] = cluster.at(address) if address else classroom.this_machine
    again = f"kp grade {shlex.quote(str(folder))}" + (f" --checkpoint {number}" if number else "")
    again += f" --ray {shlex.quote(address)}" if address else ""
    try:
        if number:
            if items:
                raise click.UsageError("--checkpoint grades all exercises of the phase: leave the NAMEs out.")
            with overview.bar(errors) as tell:
                return _exams(folder, to, number, again, tell=tell, **options)
        chosen = items or handed_in.default_items(folder)
        if not chosen:
            name = registry.exercises()[0].solution.name
            raise Failure(f"nobody in {folder} has a file named like {name}; give the NAME of an exercise")
        with overview.bar(errors) as tell:
            grades = classroom.grade_class(folder, to, chosen, tell=tell, **options)
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
    _compare(folder, to, chosen)
    ungraded = [one for one in grades if one.key == UNFINISHED]
    view.step(out, f"{again}, once more" if ungraded else f"read {to / 'grades.csv'}")
    return NOT_YET if ungraded else PASSED


def _compare(folder: Path, to: Path, items: Sequence[Item]) -> None:
    """Write which submissions agree, and say where to read of them. Raises OSError."""
    from kernelpath.school import handed_in, similarity

    found = similarity.pairs(handed_in.entries(folder, items))
    similarity.write(to, found)
    overview.similar(out, found, to)


def _exams(folder: Path, to: Path, number: int, again: str, **options: Any) -> int:
    """The exams of a class, with a certificate for each learner. Raises Usage and OSError."""
    from kernelpath.exam import questions
    from kernelpath.exam.certificate import TEACHER
    from kernelpath.school import exams
    from kernelpath.school.gradebook import file_name
    from kernelpath.show import certificate

    exam = questions.find(number)
    sat, marks = exams.grade_exams(folder, to, exam, **options)
    (to / "certificates").mkdir(exist_ok=True)
    for one in sat:
        if one.certificate is not None:
            path = to / "certificates" / file_name(one.learner)
            write_atomically(path.with_name(f"{path.name}.json"), one.certificate.to_json())
            write_atomically(path.with_name(f"{path.name}.html"), certificate.page(one.certificate))
    overview.exams(out, sat)
    for sentence in marks.unclear:
        warn(sentence)
    written = to / f"checkpoint{number}-written.csv"
    unmarked = any(one.certificate and one.certificate.marked_by != TEACHER for one in sat)
    mark = f"mark the written answers in {written}, then {again}; the points are in"
    view.step(out, f"{mark if unmarked and exam.declared.prompts else 'read'} {to / f'checkpoint{number}.csv'}")
    return PASSED
