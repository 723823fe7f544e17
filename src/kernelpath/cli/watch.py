"""Implement `kp watch`: grade a file whenever it is saved, by polling, which works on every file system."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.text import Text

from kernelpath.cli import grading
from kernelpath.cli.common import PASSED, Failure, device_option, errors, optional_name_argument, out, seed_option
from kernelpath.cli.record import has_passed, require_next_item, save_result
from kernelpath.course.registry import ExerciseRef
from kernelpath.verdict import Report

if TYPE_CHECKING:
    from kernelpath.grading.grade import Device

POLL_SECONDS = 0.05


def wait_for_saves(paths: Sequence[Path]) -> Iterator[None]:
    """Yield at once, and then after every change of one of the files. A deleted file counts once it is back."""
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
    edit = graded.next_step.removesuffix(f", then kp check {item.name}")
    next_step = graded.next_step if edit == graded.next_step else f"{edit} and save it"
    shown_report = dataclasses.replace(graded, next_step=next_step)
    grading.show(item, shown_report, first=not has_passed(item))
    save_result(item, graded)
    out.print(Text("\nwatching; Ctrl-C ends", "dim"))
