"""Implement `kp dev`, for contributors."""

from __future__ import annotations

import click
from rich.text import Text

from kernelpath import words
from kernelpath.cli import teaching
from kernelpath.cli.common import NOT_YET, PASSED, Failure, errors, names_argument, out
from kernelpath.cli.grading import importing
from kernelpath.course import places, registry
from kernelpath.course.registry import ExerciseRef, Lane
from kernelpath.show import view


@click.group()
def dev() -> None:
    """For contributors."""


@dev.command("check")
@click.argument("names", metavar="[NAME…]", nargs=-1)
@click.option("--quick", is_flag=True, help="Only what needs no grading.")
def check(names: tuple[str, ...], quick: bool) -> int:
    """Check the invariants that hold the course together.

    With a NAME, those of that exercise alone.
    """
    # The references compute on small tensors, where torch's threads would spin most of the time.
    with importing():
        from kernelpath.dev import invariants

    items = [registry.find(name) for name in names]
    finding_count = 0
    for invariant in invariants.QUICK if quick else invariants.ALL:
        of_item = invariants.ITEM_CHECKS.get(invariant)
        if items and of_item is None:
            continue
        name = invariant.__name__.replace("_", " ")
        with errors.status(name):
            if items and of_item is not None:
                findings = [finding for item in items for finding in of_item(item)]
            else:
                findings = list(invariant(places.checkout()))
        finding_count += len(findings)
        out.print(Text.assemble(("FAIL ", "red") if findings else ("ok   ", "green"), name))
        for finding in findings:
            out.print(f"     {finding}", soft_wrap=True)  # some are text to copy
    return NOT_YET if finding_count else PASSED


@dev.command("new")
@click.argument("name", metavar="NAME")
@click.option("--problem", required=True, help="The operator: a module of course/problems.")
@click.option("--lane", type=click.Choice(["cuda", "triton", "cute", "python"]), required=True)
@click.option("--week", type=int, help="[that of the last exercise]")
@click.option("--letter", help="Its place in the week. [the next free one]")
def new(name: str, problem: str, lane: Lane, week: int | None, letter: str | None) -> int:
    """Draft the files of a new exercise.

    They are the declaration, the lesson, the stub, the solution and a notebook cell.
    """
    from kernelpath.dev import draft

    try:
        written = draft.draft(name, problem, lane, week, letter)
    except draft.DraftError as error:
        raise Failure(str(error)) from error
    for path in written:
        out.print(f"wrote {words.path(path, places.checkout())}", soft_wrap=True)
    view.step(out, f"kp dev check {name} names what is still to be written; kp dev check, what that changes elsewhere")
    return PASSED


@dev.command("tables")
def tables() -> int:
    """Regenerate the tables of the documents, and the figures in texts."""
    from kernelpath.show import docs, figures

    root = places.checkout()
    try:
        changed = {*docs.rewrite(root), *figures.rewrite(root)}
    except figures.FigureError as error:
        raise Failure(f"{error}. Do: kp dev check --quick names the text") from error
    for name in sorted(changed):
        out.print(f"rewrote {name}")
    return PASSED


@dev.command("cards")
@names_argument
def cards(items: tuple[ExerciseRef, ...]) -> int:
    """Compile the reference kernels for every architecture.

    Record the reason for each kernel that does not compile.
    """
    from kernelpath.dev import cards as compiled

    selected = items or tuple(item for item in registry.exercises() if registry.load(item).runs_on_gpu)
    for item in selected:
        with errors.status(item.name):
            obstacles = compiled.record(item)
        summary = "; ".join(f"{arch} {reason}" for arch, reason in obstacles.items())
        out.print(f"{item.name}: {summary or 'compiles for all of them'}", soft_wrap=True)
    view.step(out, "kp dev tables")
    return PASSED


@dev.command("spills")
@names_argument
def spills(items: tuple[ExerciseRef, ...]) -> int:
    """Compile answers and reference kernels, and list those that spill.

    ptxas must find registers for everything, in every kernel that is launched, with the compilers that are installed
    and for the architecture that the exercise declares.
    """
    from kernelpath.dev import spills as compiled

    status = PASSED
    for item in items or registry.exercises():
        exercise = registry.load(item)
        if not exercise.is_kernel:
            continue
        with errors.status(item.name):
            spill_messages = compiled.spills(item)
        mark = Text("ok  ", "green")
        if spill_messages:
            mark = Text("why ", "yellow") if exercise.spills else Text("FAIL", "red")
        out.print(
            Text.assemble(mark, f" {item.name}", f": {exercise.spills}" if spill_messages and exercise.spills else "")
        )
        for message in spill_messages:
            out.print(f"     {message}", soft_wrap=True)
        if spill_messages and not exercise.spills:
            status = NOT_YET
    return status


for _verb in (teaching.gradescope, teaching.classroom, teaching.summary):
    dev.add_command(_verb)
