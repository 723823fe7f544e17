"""dev: for contributors."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import click
from rich.text import Text

from kernelpath import words
from kernelpath.cli.common import NOT_YET, PASSED, Failure, errors, out
from kernelpath.course import registry
from kernelpath.course.registry import Item, Lane
from kernelpath.files import write_atomically
from kernelpath.show import view
from kernelpath.verdict import ValidationError


@click.group()
def dev() -> None:
    """For contributors."""


@dev.command("check")
@click.option("--quick", is_flag=True, help="Only what needs no grading.")
def check(quick: bool) -> int:
    """Check the invariants that hold the course together."""
    from kernelpath.dev import invariants

    found = 0
    for invariant in invariants.QUICK if quick else invariants.ALL:
        name = invariant.__name__.replace("_", " ")
        with errors.status(name):
            findings = list(invariant(registry.root()))
        found += len(findings)
        out.print(Text.assemble(("FAIL ", "red") if findings else ("ok   ", "green"), name))
        for finding in findings:
            out.print(f"     {finding}")
    return NOT_YET if found else PASSED


@dev.command("new")
@click.argument("name", metavar="NAME")
@click.option("--problem", required=True, help="The operator: a module of course/problems.")
@click.option("--lane", type=click.Choice(["cuda", "triton", "cute", "python"]), required=True)
@click.option("--week", type=int, help="[that of the last exercise]")
@click.option("--letter", help="Its place in the week. [the next free one]")
def new(name: str, problem: str, lane: Lane, week: int | None, letter: str | None) -> int:
    """Draft the files of a new exercise: declaration, lesson, stub, solution and a notebook cell."""
    from kernelpath.dev import draft

    try:
        written = draft.draft(name, problem, lane, week, letter)
    except draft.NotDrafted as error:
        raise Failure(str(error)) from error
    for path in written:
        out.print(f"wrote {words.path(path, registry.root())}", soft_wrap=True)
    view.step(out, "kp dev check --quick names what is still to be written")
    return PASSED


@dev.command("tables")
def tables() -> int:
    """Regenerate the tables of the documents."""
    from kernelpath.show import docs

    for name in docs.rewrite(registry.root()):
        out.print(f"rewrote {name}")
    return PASSED


@dev.command("gradescope")
@click.argument("what", metavar="WEEK|NAME...", nargs=-1, required=True)
@click.option("--out", "to", type=click.Path(path_type=Path), help="The zip. [gradescope-WEEK....zip]")
def gradescope(what: tuple[str, ...], to: Path | None) -> int:
    """Write an autograder for Gradescope: a zip that grades the exercises of weeks, or single exercises."""
    from kernelpath.dev.gradescope import NotPacked, pack

    items = _chosen(what)
    to = to or Path(f"gradescope-{'-'.join(what)}.zip")
    try:
        with errors.status("building the wheel"):
            pack(items, to, registry.root())
    except NotPacked as error:
        raise Failure(str(error)) from error
    except OSError as error:
        raise Failure(f"cannot write {to}: {error.strerror}; give --out a path that can be written") from error
    out.print(f"wrote {to}: {', '.join(item.name for item in items)}", soft_wrap=True)
    view.step(out, "upload it as the assignment's autograder, with Ubuntu 22.04 or newer as the base image")
    return PASSED


@dev.command("classroom")
@click.argument("what", metavar="WEEK|NAME...", nargs=-1, required=True)
@click.option("--course", metavar="OWNER/REPO[@REF]", required=True, help="Where the course is that grades.")
@click.option("--out", "to", type=click.Path(path_type=Path), default="classroom.yml", show_default=True)
def classroom(what: tuple[str, ...], course: str, to: Path) -> int:
    """Write a GitHub Actions workflow that grades the exercises of weeks, or single exercises, after each push."""
    from kernelpath.dev.workflow import NotARepository, workflow

    items = _chosen(what)
    try:
        write_atomically(to, workflow(items, course))
    except NotARepository as error:
        raise Failure(str(error)) from error
    except OSError as error:
        raise Failure(f"cannot write {to}: {error.strerror}; give --out a path that can be written") from error
    out.print(f"wrote {to}: {', '.join(item.name for item in items)}", soft_wrap=True)
    view.step(out, "commit it to the assignment's template repository as .github/workflows/classroom.yml")
    return PASSED


@dev.command("summary")
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
