"""Implement `kp check`, which grades files once, and `kp watch`, which polls a file and grades whenever it is saved."""

from __future__ import annotations

import contextlib
import dataclasses
import shlex
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.text import Text

from kernelpath import words
from kernelpath.cli import grading
from kernelpath.cli.common import (
    NOT_YET,
    PASSED,
    Failure,
    arch_option,
    device_option,
    errors,
    jobs_option,
    json_option,
    names_argument,
    optional_name_argument,
    out,
    seed_option,
    tree_option,
)
from kernelpath.cli.record import has_passed, require_next_item, save_result, seconds_of_last
from kernelpath.course import registry
from kernelpath.course.registry import ExerciseRef, Tree
from kernelpath.show import overview, view
from kernelpath.verdict import Report, Verdict

if TYPE_CHECKING:
    from kernelpath.grading.grade import Device


GradedExercises = list[tuple[ExerciseRef, Report]]


@click.command()
@names_argument
@click.option("--all", "everything", is_flag=True, help="Grade all exercises of a tree.")
@tree_option
@click.option("--file", "path", type=click.Path(path_type=Path), help="Grade this file as the exercise NAME.")
@click.option("--trace", "recording", type=click.Path(path_type=Path), help="Grade on the recording in this folder.")
@device_option
@arch_option
@seed_option
@jobs_option
@json_option
def check(
    items: tuple[ExerciseRef, ...],
    everything: bool,
    tree: Tree,
    path: Path | None,
    recording: Path | None,
    device: Device,
    arch: str | None,
    seed: int | None,
    jobs: int | None,
    json_to: str | None,
) -> int:
    """Grade exercises. Without a NAME: the next one.

    Each result is printed as soon as it is available. Several exercises end with a table. The JSON is one report for
    one exercise, otherwise a list in the order of the NAMEs.
    """
    _validate_arguments(items, everything, path)
    if recording is not None and len(items) != 1:
        raise click.UsageError("--trace needs exactly one NAME.")
    grading.check_json_target(json_to)
    # A NAME that is given twice is graded once.
    items = _items_of(tree) if everything else tuple(dict.fromkeys(items)) or (require_next_item(),)
    # stdout then holds the JSON alone.
    quiet = json_to == "-"
    requests = [
        grading.GradingRequest(
            item,
            _python_file(path) if path else item.submission(tree),
            device=device,
            seed=seed,
            recording=recording,
            arch=arch,
            command=_command(item, path, tree, recording, arch),
            last_seconds=seconds_of_last(item) if tree == "phases" else None,
        )
        for item in items
    ]
    reports: dict[int, Report] = {}
    # Closing the generator ends the gradings that still run, also after an exception or Ctrl-C.
    with contextlib.closing(grading.grade_several(requests, jobs)) as numbered_reports:
        for index, report in numbered_reports:
            item = items[index]
            first = not has_passed(item)
            reports[index] = report
            # Only the learner's own files count as progress.
            if path is None and recording is None and tree == "phases":
                save_result(item, report)
            if everything and not quiet:
                _show_row(item, report, len(reports), len(items))
            elif not quiet:
                if len(reports) > 1:
                    out.print()
                grading.show(item, report, first=first, next_step=len(items) == 1)
    in_order: GradedExercises = [(item, reports[index]) for index, item in enumerate(items)]
    if not quiet and (everything or len(items) > 1):
        _print_summary(in_order, tree)
    if json_to is not None:
        grading.write_json(json_to, [report for _, report in in_order], single=not everything and len(items) == 1)
    return _exit_status(in_order, everything)


def _items_of(tree: Tree) -> tuple[ExerciseRef, ...]:
    """Return the exercises that --all grades: in the tree of expert kernels, those that have one."""
    items = tuple(item for item in registry.exercises() if tree != "expert" or item.has_expert)
    if not items:
        raise Failure("no exercise has an expert kernel; --tree solutions grades the answers")
    return items


def _show_row(item: ExerciseRef, report: Report, done: int, total: int) -> None:
    """Print a line, and the report of a failing submission below it. An exercise that is not started has no report."""
    overview.row(out, item, report, done, total)
    if not _acceptable(report) and report.verdict is not Verdict.NOT_STARTED:
        out.print()
        grading.show(item, report, first=False, next_step=False)
        out.print()


def _validate_arguments(items: Sequence[ExerciseRef], everything: bool, path: Path | None) -> None:
    if everything and (items or path):
        raise click.UsageError("--all grades every exercise: give neither NAME nor --file with it.")
    if path is not None and len(items) != 1:
        raise click.UsageError("--file needs exactly one NAME.")
    if path is not None and not _python_file(path).is_file():
        raise Failure(f"there is no file {_python_file(path)}; give --file one that exists")


def _python_file(path: Path) -> Path:
    """Return the file that defines the entry: a kernel's .cu stands for the .py beside it."""
    return path.with_suffix(".py") if path.suffix == ".cu" else path


def _command(item: ExerciseRef, path: Path | None, tree: Tree, recording: Path | None, arch: str | None) -> str:
    """Return the command that grades the same file again, on the same recording and architecture."""
    command = f"kp check {item.name}"
    if path is not None:
        command += f" --file {shlex.quote(words.path(path, Path.cwd()))}"
    elif tree != "phases":
        command += f" --tree {tree}"
    if recording is not None:
        command += f" --trace {shlex.quote(words.path(recording, Path.cwd()))}"
    if arch is not None:
        command += f" --arch {arch}"
    return command


def _print_summary(graded: GradedExercises, tree: Tree) -> None:
    """Print the table, the cause of each failure, and one next step."""
    out.print()
    overview.table(out, graded)
    failed = [item for item, report in graded if not _acceptable(report)]
    if failed:
        view.step(out, f"kp check {failed[0].name}" + (f" --tree {tree}" if tree != "phases" else ""))


def _acceptable(graded: Report) -> bool:
    return graded.verdict in (Verdict.PASSED, Verdict.UNAVAILABLE)


def _exit_status(graded: GradedExercises, everything: bool) -> int:
    """Return the exit status. With --all, exercises that this machine cannot run do not count as failures.

    At least one exercise must pass.
    """
    # Without this, a machine that can run nothing at all would report success.
    any_passed = any(report.verdict.passed for _, report in graded)
    all_acceptable = all(_acceptable(report) if everything else report.verdict.passed for _, report in graded)
    return PASSED if any_passed and all_acceptable else NOT_YET


POLL_SECONDS = 0.05


def wait_for_saves(paths: Sequence[Path]) -> Iterator[None]:
    """Yield at once, and then after every change of one of the files. A deleted file counts once it is back."""
    # Polling works on every file system, also where a container or a network folder reports no events.
    last_stamps: list[tuple[int, int]] | None = None
    while True:
        stamps = _file_stamps(paths)
        if stamps is not None and stamps != last_stamps:
            last_stamps = stamps
            yield
        else:
            time.sleep(POLL_SECONDS)


def _file_stamps(paths: Sequence[Path]) -> list[tuple[int, int]] | None:
    try:
        # The size reveals a change within the resolution of the clock.
        return [(status.st_mtime_ns, status.st_size) for status in map(Path.stat, paths)]
    except FileNotFoundError:
        return None


@click.command()
@optional_name_argument
@device_option
@seed_option
def watch(item: ExerciseRef | None, device: Device, seed: int | None) -> int:
    """Grade an exercise whenever you save it.

    Without a NAME: the next one. Ctrl-C ends.
    """
    item = item or require_next_item()
    with errors.status(f"{item.name}: starting"):
        grading.start_workers()
        from kernelpath.grading import grade
    try:
        with grade.Session(grade.Job.create(item, item.stub, device=device), warm=True) as check_now:
            for _ in wait_for_saves(item.files("phases")):
                _show_update(item, check_now(seed=seed))
    except grade.Usage as error:
        raise Failure(str(error)) from error
    return PASSED


def _show_update(item: ExerciseRef, graded: Report) -> None:
    if out.is_terminal:
        out.clear()
    # While `kp watch` runs, saving the file is what grades it again.
    edit = graded.next_step.removesuffix(f", then kp check {item.name}")
    next_step = graded.next_step if edit == graded.next_step else f"{edit} and save it"
    shown_report = dataclasses.replace(graded, next_step=next_step)
    grading.show(item, shown_report, first=not has_passed(item))
    save_result(item, graded)
    out.print(Text("\nwatching; Ctrl-C ends", "dim"))
