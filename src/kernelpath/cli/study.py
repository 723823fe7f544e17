"""Implement solution, bench and report, from which learners learn besides the verdict."""

from __future__ import annotations

from pathlib import Path

import click
from rich.text import Text

from kernelpath import words
from kernelpath.cli import grading
from kernelpath.cli.common import (
    NOT_YET,
    PASSED,
    Failure,
    errors,
    json_option,
    name_argument,
    out,
    seed_option,
    warn,
)
from kernelpath.cli.profiling import show_lines
from kernelpath.cli.record import has_passed, records, save_result
from kernelpath.course import lesson, progress, registry, stubs
from kernelpath.course.progress import Progress
from kernelpath.course.registry import Item, Tree
from kernelpath.files import source_text, write_atomically
from kernelpath.show import difference, view


@click.command()
@name_argument
@click.option("--peek", is_flag=True, help="Show the answer before you have passed.")
@click.option(
    "--expert", is_flag=True, help="Show the reference kernel, where it is longer and faster than the answer."
)
def solution(item: Item, peek: bool, expert: bool) -> int:
    """Compare your kernel with the answer to the exercise.

    Shows both sources, their counters, and what an expert would do next. If there is a GPU, both are timed.
    """
    if not item.files("solutions"):
        raise Failure(f"the solution of {item.name} is withheld: there is no {words.path(item.solution, item.course)}")
    if not (peek or has_passed(item)):
        out.print(f"{item.name} is not passed yet; --peek shows its solution all the same.")
        view.step(out, f"kp hint {item.name}")
        return NOT_YET
    tree: Tree = "expert" if expert else "solutions"
    shown = item.submission(tree)
    title = "reference" if shown == item.reference else "answer"
    for file in item.files(tree):
        own_file = stubs.stub_of(item, file)
        names = (words.path(own_file, item.root), words.path(file, item.course))
        difference.show(out, names, (source_text(own_file) if own_file.is_file() else "", source_text(file)))
        out.print()
    with errors.status(f"{item.name}: starting"):
        grading.start_workers()
        from kernelpath.grading import devices
    if registry.load(item).is_kernel:
        _show_counters(item, "yours", item.stub)
        _show_counters(item, title, shown)
    out.print(Text(f"{lesson.read(item.lesson).explain}\n"))
    if shown != item.reference:
        out.print("This exercise has a separate reference kernel, which is longer and faster.")
        view.step(out, f"kp solution {item.name} --expert")
    if devices.resolve("auto") != "cuda":
        out.print(Text("not timed: this machine has no GPU", "dim"))
        return PASSED
    # A report compares with the reference kernel, so only an answer that is not the reference is timed by itself.
    for submission in [item.stub] if shown == item.reference else [item.stub, shown]:
        graded = grading.grade(grading.GradingRequest(item, submission, device="cuda"), item.name)
        grading.show(item, graded, first=False)
    return PASSED


def _show_counters(item: Item, title: str, file: Path) -> None:
    """Print the memory traffic of a submission's heaviest launch, line by line, counted on the PTX machine."""
    from kernelpath.grading import grade

    job = grade.Job.create(item, file, device="cpu")
    with errors.status(f"{item.name}: counting {title}"), grade.Session(job) as session:
        try:
            heaviest = session.heaviest_launch()
        except (grade.NothingToDraw, grade.Usage) as error:
            out.print(Text(f"{title}: no counters: {error}\n", "dim"), soft_wrap=True)
            return
    show_lines(title, heaviest, file.with_name(Path(heaviest.file).name))


@click.command()
@name_argument
@click.option(
    "--picture",
    type=click.Path(path_type=Path),
    metavar="PATH",
    help="The file for the roofline. [.kernelpath/NAME.png]",
)
@seed_option
@json_option
def bench(item: Item, picture: Path | None, seed: int | None, json_to: str | None) -> int:
    """Measure on the GPU and draw the roofline."""
    grading.check_json_target(json_to)
    first = not has_passed(item)
    graded = grading.grade(grading.GradingRequest(item, item.stub, device="cuda", seed=seed, bench=True), item.name)
    save_result(item, graded)
    if json_to is not None:
        grading.write_json(json_to, [graded], single=True)
    if json_to != "-":
        grading.show(item, graded, first=first)
    if graded.measurement is not None:
        from kernelpath.show import timed

        path = picture or progress.folder(item.root) / f"{item.name}.png"
        write_atomically(path, timed.png(timed.draw(graded.measurement)))
        errors.print(f"roofline: {words.path(path, item.root)}")
    return PASSED if graded.verdict.passed else NOT_YET


@click.command()
@click.option("--out", "to", type=click.Path(path_type=Path), help="The file for the page. [.kernelpath/report.html]")
def report(to: Path | None) -> int:
    """Write the web page of your progress.

    Verdicts, times and traffic as of the last kp check of each exercise. One file; it needs no network.
    """
    from kernelpath.show import report as web

    root = registry.root()
    page = web.page(root, records(), Progress(root, warn))
    to = to or progress.folder(root) / "report.html"
    write_atomically(to, page)
    view.step(out, f"open {words.path(to, root)} in a browser")
    return PASSED
