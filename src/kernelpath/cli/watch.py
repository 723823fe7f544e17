"""watch: grades a file whenever it is saved. Polls, which works on every file system that an editor may save to."""

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
from kernelpath.cli.record import passed, remember, unfinished
from kernelpath.course.registry import Item
from kernelpath.verdict import Report

if TYPE_CHECKING:
    from kernelpath.grading.grade import Device

POLL_SECONDS = 0.05


def saves(paths: Sequence[Path]) -> Iterator[None]:
    """Yield at once, and then after every change of one of the files. A file that is gone counts once it is back."""
    seen: list[tuple[int, int]] | None = None
    while True:
        now = _stamps(paths)
        if now is not None and now != seen:
            seen = now
            yield
        else:
            time.sleep(POLL_SECONDS)


def _stamps(paths: Sequence[Path]) -> list[tuple[int, int]] | None:
    try:
        return [(status.st_mtime_ns, status.st_size) for status in map(Path.stat, paths)]
    except FileNotFoundError:
        return None


@click.command()
@optional_name_argument
@device_option
@seed_option
def watch(item: Item | None, device: Device, seed: int | None) -> int:
    """Grade an exercise whenever you save it.

    Without a NAME: the next one. Ctrl-C ends.
    """
    item = item or unfinished()
    with errors.status(f"{item.name}: starting"):
        grading.start_workers()
        from kernelpath.grading import grade
    try:
        with grade.Session(item, item.stub, device=device, warm=True) as check_now:
            for _ in saves(item.files("phases")):
                _show_again(item, check_now(seed=seed))
    except grade.Usage as error:
        raise Failure(str(error)) from error
    return PASSED


def _show_again(item: Item, graded: Report) -> None:
    if out.is_terminal:
        out.clear()
    command = f"kp check {item.name}"
    at_once = graded.next_step.replace(f", then {command}", " and save it")
    replay = command + " --" in graded.next_step
    told = graded if replay else dataclasses.replace(graded, next_step=at_once)
    grading.show(item, told, first=not passed(item))
    remember(item, graded)
    out.print(Text("\nwatching; Ctrl-C ends", "dim"))
