"""Implement `kp grade`: grade a class."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kernelpath import words
from kernelpath.cli.common import NOT_YET, PASSED, Failure, device_option, errors, names_argument, out, warn
from kernelpath.cli.grading import importing
from kernelpath.course import registry
from kernelpath.course.registry import ExerciseRef
from kernelpath.files import write_atomically
from kernelpath.host_info import HostInfo
from kernelpath.show import overview, view

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from kernelpath.grading.devices import Device, OneDevice
    from kernelpath.school.classroom import Engine
    from kernelpath.school.gradebook import Grade
    from kernelpath.school.policy import Policy


# The number of warnings of one kind that are printed.
_MAX_WARNINGS = 20


@click.command("grade")
@click.argument("folder", metavar="DIR", type=click.Path(exists=True, file_okay=False, path_type=Path))
@names_argument
@click.option("--out", "to", type=click.Path(path_type=Path), help="The folder for the grades. [DIR-grades]")
@click.option(
    "--policy",
    "policy_file",
    metavar="FILE",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Points, deadlines and late days, as TOML. [a point for each star]",
)
@click.option("--checkpoint", "number", metavar="N", type=click.IntRange(1), help="Grade the exam of phase N.")
@device_option
@click.option("--secret", default="", help="Repeat a run: the secret in its grades.json. [that in --out, or a new one]")
@click.option("--seed", type=int, help="Instead of a secret: the same sizes and inputs for everybody.")
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
    items: tuple[ExerciseRef, ...],
    to: Path | None,
    policy_file: Path | None,
    number: int | None,
    device: Device,
    secret: str,
    seed: int | None,
    jobs: int | None,
    address: str | None,
) -> int:
    """Grade a class: DIR holds a folder for each learner.

    A learner's folder is a course folder or has bare files, found by their names. A file that is still the stub is not
    handed in.

    Without a NAME: every exercise that a learner submitted or that the policy names. Writes class.html, an overview of
    the class; learners.csv, a row for each learner with the total points; points.csv, the reason for each missing
    point; grades.csv, grades.json, and for each learner a results.json for Gradescope. A second run grades only the
    changed files. similar.csv lists groups of submissions that agree beyond the stub, for you to read; no grade
    depends on it.

    With --checkpoint: every learner's exam, under the name of the folder. Writes checkpointN.csv with the points, a
    certificate for each learner, and checkpointN-written.csv. Enter marks for the written answers there, and run the
    command again.

    Sizes and inputs are derived from a secret of the run, and differ for each learner and submission. grades.json
    stores the secret.

    Exit status 0: everything was graded, whether passed or not. 1: something could not be graded.
    """
    folder = folder.resolve()
    # Beside the class, not inside it: a folder inside would be taken for a learner's.
    to = to or folder.with_name(f"{folder.name}-grades")
    with errors.status("starting"), importing():
        from kernelpath.grading import devices
        from kernelpath.grading.grade import Usage
        from kernelpath.school import classroom, cluster
        from kernelpath.school.gradebook import UNFINISHED
    options: dict[str, Any] = {"device": device, "secret": secret, "seed": seed, "jobs": jobs}
    options["engine"] = cluster.engine_at(address) if address else classroom.this_machine
    command = f"kp grade {shlex.quote(str(folder))}" + (f" --checkpoint {number}" if number else "")
    command += f" --policy {shlex.quote(str(policy_file))}" if policy_file else ""
    command += f" --ray {shlex.quote(address)}" if address else ""
    try:
        if number:
            if items or policy_file:
                raise click.UsageError("--checkpoint grades all of the exam: leave the NAMEs and --policy out.")
            with overview.bar(errors) as on_graded:
                return _exams(folder, to, number, command, on_graded=on_graded, **options)
        policy = _read_policy(policy_file)
        skipped = _warn_of_skipped(folder, policy_file)
        selected = _select_exercises(folder, items, policy)
        if not address and devices.resolve(device) == "cpu":
            _warn_of_memory_shortage()
        # The device decides how many stars there are, and is known only after the engine has chosen it.
        engine = _DeviceRecorder(options.pop("engine"))
        with overview.bar(errors) as on_graded:
            grades = classroom.grade_class(folder, to, selected, on_graded=on_graded, engine=engine, **options)
        overview.school(out, grades)
        _write_summaries(folder, to, selected, grades, policy, engine.device, skipped)
    except Usage as error:
        raise Failure(str(error)) from error
    except OSError as error:
        # The gradings may have taken hours: print what they found, even though it could not be written.
        if isinstance(error, classroom.ResultsNotWritten):
            overview.school(out, error.grades)
        raise Failure(
            f"cannot write {error.filename or to}: {error.strerror}; when it can be written, {command}"
        ) from error
    except KeyboardInterrupt:
        errors.print(f"\nwhat is graded is kept; go on with {command}", soft_wrap=True)
        raise
    ungraded = [grade for grade in grades if grade.key == UNFINISHED]
    view.step(out, f"{command} again" if ungraded else f"open {to / 'class.html'}")
    return NOT_YET if ungraded else PASSED


class _DeviceRecorder:
    """An engine that records on which device it grades."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.device: OneDevice = "cpu"

    def __call__(self, device: Device, jobs: int | None) -> tuple[OneDevice, Executor]:
        # The stars of an exercise depend on the device, which "auto" leaves open until now.
        self.device, executor = self._engine(device, jobs)
        return self.device, executor


def _read_policy(path: Path | None) -> Policy:
    """Read the teacher's policy, or return the default. Raises Failure."""
    from kernelpath.school.policy import Policy, PolicyError, read_policy

    try:
        return read_policy(path) if path else Policy()
    except PolicyError as error:
        raise Failure(str(error)) from error


def _warn_of_skipped(folder: Path, policy_file: Path | None) -> list[str]:
    """Print what is not graded on stderr, and return it."""
    from kernelpath.school.classroom import describe_skipped

    skipped = describe_skipped(folder, [policy_file] if policy_file else [])
    for sentence in skipped[:_MAX_WARNINGS]:
        warn(f"not graded: {sentence}")
    if len(skipped) > _MAX_WARNINGS:
        warn(f"not graded: {len(skipped) - _MAX_WARNINGS} more, which class.html names")
    return skipped


def _select_exercises(folder: Path, items: Sequence[ExerciseRef], policy: Policy) -> Sequence[ExerciseRef]:
    """Return the exercises to grade, in the order of the syllabus. Raises Failure if there are none."""
    from kernelpath.school import handed_in

    if items:
        return items
    selected = {*handed_in.submitted_items(folder), *policy.named}
    if not selected:
        name = registry.exercises()[0].solution.name
        raise Failure(f"nobody in {folder} has changed a stub, such as {name}; give the NAME of an exercise")
    return [item for item in registry.exercises() if item in selected]


def _warn_of_memory_shortage() -> None:
    shortage = HostInfo().memory_shortage
    if shortage:
        warn(shortage)


def _write_summaries(
    folder: Path,
    to: Path,
    items: Sequence[ExerciseRef],
    grades: Sequence[Grade],
    policy: Policy,
    device: OneDevice,
    skipped: Sequence[str],
) -> None:
    """Write the points, the groups of submissions that agree, and the page of the class. Raises OSError."""
    from kernelpath.school import classroom, handed_in, points, similarity
    from kernelpath.school.policy import unmatched
    from kernelpath.show import class_page

    entries = handed_in.all_entries(folder, items)
    most_stars = {item.path_id: classroom.max_stars(item, device) for item in items}
    learners = points.score_class(grades, entries, most_stars, policy)
    points.write(to, learners)
    groups = similarity.find_groups(entries)
    similarity.write(to, groups)
    untimed = points.learners_without_time(learners)
    unknown_learners = unmatched(policy, [learner.learner for learner in learners])
    write_atomically(to / "class.html", class_page.page(folder.name, items, learners, groups, skipped, untimed))
    if untimed:
        warn(f"no submission time, counted as on time: {_format_names(untimed)}")
    if unknown_learners:
        warn(f"the policy or its table of times names learners without a folder: {_format_names(unknown_learners)}")
    overview.similar(out, groups, to)


def _format_names(learners: Sequence[str]) -> str:
    names = ", ".join(words.escaped(learner) for learner in learners[:_MAX_WARNINGS])
    remaining = len(learners) - _MAX_WARNINGS
    return f"{names} and {remaining} more" if remaining > 0 else names


def _exams(folder: Path, out_folder: Path, number: int, command: str, **options: Any) -> int:
    """Grade the exams of a class, and write a certificate for each learner. Raises Usage and OSError."""
    from kernelpath.exam import questions
    from kernelpath.exam.certificate import TEACHER
    from kernelpath.school import exams
    from kernelpath.school.gradebook import file_name
    from kernelpath.show import certificate

    exam = questions.find_exam(number)
    outcomes, marks = exams.grade_exams(folder, out_folder, exam, **options)
    (out_folder / "certificates").mkdir(exist_ok=True)
    for outcome in outcomes:
        if outcome.certificate is not None:
            path = out_folder / "certificates" / file_name(outcome.learner)
            write_atomically(path.with_name(f"{path.name}.json"), outcome.certificate.to_json())
            write_atomically(path.with_name(f"{path.name}.html"), certificate.render_certificate(outcome.certificate))
    overview.exams(out, outcomes)
    for sentence in marks.unclear:
        warn(sentence)
    written = out_folder / f"checkpoint{number}-written.csv"
    unmarked = any(outcome.certificate and outcome.certificate.marked_by != TEACHER for outcome in outcomes)
    mark = f"mark the written answers in {written}, then {command}; the points are in"
    view.step(
        out, f"{mark if unmarked and exam.checkpoint.prompts else 'read'} {out_folder / f'checkpoint{number}.csv'}"
    )
    return PASSED
