"""solution, profile, bench and report: what a learner can learn from besides the verdict."""

from __future__ import annotations

import dataclasses
import io
from pathlib import Path
from typing import TYPE_CHECKING, Any

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
    optional_name_argument,
    out,
    seed_option,
    tree_option,
    warn,
)
from kernelpath.cli.record import passed, records, remember
from kernelpath.course import lesson, progress, registry, stubs
from kernelpath.course.progress import Progress
from kernelpath.course.registry import Item, Tree
from kernelpath.files import source_text, write_atomically
from kernelpath.show import difference, view
from kernelpath.show import source as annotated

if TYPE_CHECKING:
    from kernelpath.course.spec import Exercise
    from kernelpath.device.messages import Drawn


@click.command()
@name_argument
@click.option("--peek", is_flag=True, help="Show it before you have passed.")
def solution(item: Item, peek: bool) -> int:
    """Compare your kernel with the reference kernel.

    Shows both sources, their counters, and what an expert would do next. If there is a GPU, both are timed in one run.
    """
    if not item.files("solutions"):
        raise Failure(f"the solution of {item.name} is withheld: there is no {words.path(item.solution, item.course)}")
    if not (peek or passed(item)):
        out.print(f"{item.name} is not passed yet; --peek shows its solution all the same.")
        view.step(out, f"kp hint {item.name}")
        return NOT_YET
    for reference in item.files("solutions"):
        yours = stubs.stub_of(item, reference)
        names = (words.path(yours, item.root), words.path(reference, item.course))
        difference.show(out, names, (source_text(yours) if yours.is_file() else "", source_text(reference)))
        out.print()
    with errors.status(f"{item.name}: starting"):
        grading.start_workers()
        from kernelpath.grading import devices
    if registry.load(item).is_kernel:
        for title, file in (("yours", item.stub), ("reference", item.solution)):
            _show_counters(item, title, file)
    out.print(Text(f"{lesson.read(item.lesson).explain}\n"))
    if devices.resolve("auto") != "cuda":
        out.print(Text("not timed: this machine has no GPU", "dim"))
        return PASSED
    graded = grading.grade(item, item.stub, item.name, device="cuda")
    grading.show(item, graded, first=False)
    return PASSED


def _show_counters(item: Item, title: str, file: Path) -> None:
    """What the heaviest launch of a submission asked of memory, line by line, counted on the PTX machine."""
    from kernelpath.grading import grade

    with errors.status(f"{item.name}: counting {title}"), grade.Session(item, file, device="cpu") as session:
        try:
            heaviest = session.heaviest()
        except (grade.NotDrawn, grade.Usage) as error:
            out.print(Text(f"{title}: no counters: {error}\n", "dim"), soft_wrap=True)
            return
    _show_lines(title, heaviest, file.with_name(Path(heaviest.file).name))


def _show_lines(title: str, heaviest: Drawn, source: Path) -> None:
    asked = [line for line in annotated.of_launch(heaviest, source_text(source)) if line.costs or line.active]
    lines = [dataclasses.replace(line, text=line.text.strip()) for line in asked]
    executed = words.count(heaviest.totals.warp_instructions, "warp instruction")
    out.print(Text.assemble((title, "bold"), f": {source.name}, largest case, {executed}"))
    out.print(annotated.table(lines))
    out.print()


@click.command()
@optional_name_argument
@tree_option
@click.option("--picture", type=click.Path(path_type=Path), help="The file for the PNG. [.kernelpath/NAME-memory.png]")
@click.option(
    "--record", "program", type=click.Path(path_type=Path), help="Record step() of this Python file on a GPU."
)
@click.option("--out", "folder", type=click.Path(path_type=Path), help="The folder for it. [.kernelpath/recording]")
@click.option("--sass", is_flag=True, help="Show the PTX and the SASS of each line in place of its counters.")
@click.option("--pipeline", is_flag=True, help="Show the copies, waits and products of each warp of the first block.")
def profile(
    item: Item | None,
    tree: Tree,
    picture: Path | None,
    program: Path | None,
    folder: Path | None,
    sass: bool,
    pipeline: bool,
) -> int:
    """Show the source with its counters.

    The picture adds the addresses of one warp and the banks of shared memory.

    --sass shows what the compilers made of the heaviest kernel, and its registers: for the PTX machine's GPU.

    --pipeline shows in which order the warps of the first block copy, wait and multiply, and who waits for whom.

    --record writes a recording as the exercise `profile` reads it: torch.profiler's trace and ncu's counters.
    """
    if (item is None) == (program is None) or (folder is not None and program is None):
        raise click.UsageError("give either NAME or --record FILE; --out goes with --record")
    if sass and (item is None or picture is not None):
        raise click.UsageError("--sass goes with NAME alone")
    if pipeline and (item is None or sass):
        raise click.UsageError("--pipeline goes with NAME and --picture")
    if program is not None:
        return _record(program, folder)
    assert item is not None
    exercise = registry.load(item)
    if exercise.kind == "distributed" and not sass:
        return _show_ranks(item, exercise, tree, picture)
    if not exercise.is_kernel:
        raise Failure(_without_kernel(item, exercise))
    grading.start_workers()
    from kernelpath.grading import grade

    with errors.status(item.name), grade.Session(item, item.submission(tree), device="cpu") as session:
        try:
            heaviest = session.heaviest(recorded=pipeline)
        except grade.NotDrawn as error:
            return _not_drawn(item, tree, str(error))
        except grade.Usage as error:
            raise Failure(str(error)) from error
    if sass:
        return _show_assembly(heaviest, item.submission(tree).with_name(Path(heaviest.file).name))
    source = item.submission(tree).with_name(Path(heaviest.file).name)
    if pipeline:
        return _show_pipeline(item, heaviest, source, picture)
    from kernelpath.show.picture import draw

    figure = draw(heaviest, source_text(source), f"{item.name}: {source.name}")
    path = picture or progress.folder(item.root) / f"{item.name}-memory.png"
    _show_lines(item.name, heaviest, source)
    return _keep(item, figure, path)


_INSTEAD = {
    "lab": "kp check {name} shows what the simulated device did in each case",
    "trace": "kp check {name} compares what you read out of the recording",
    "distributed": "kp profile {name} draws what each rank does, over time",
}
"""What to see of an exercise without a kernel, by its kind."""


def _without_kernel(item: Item, exercise: Exercise) -> str:
    """Say that there is nothing to profile, and what to see instead."""
    instead = _INSTEAD.get(exercise.kind, "kp check {name} compares its result in each case").format(name=item.name)
    lesson_at = f", and {words.path(item.notebook, item.root)} is its lesson" if item.notebook else ""
    return f"{item.name} launches no kernel, so it has no counters, no pipeline and no SASS; {instead}{lesson_at}"


def _show_ranks(item: Item, exercise: Exercise, tree: Tree, picture: Path | None) -> int:
    """Draw what the ranks do, for the largest case of each algorithm."""
    grading.start_workers()
    from kernelpath.course.labs.fabric import timeline
    from kernelpath.grading import grade
    from kernelpath.grading.network import traffic
    from kernelpath.show import network, ranks

    cases = network.largest((case, exercise.compulsory_bytes(**case), case) for case in exercise.cases)
    with errors.status(item.name) as status, grade.Session(item, item.submission(tree), device="cpu") as session:
        try:
            logs = session.logs(cases, report_progress=lambda doing: status.update(f"{item.name}: {doing}"))
        except grade.NotDrawn as error:
            return _not_drawn(item, tree, str(error))
    links = exercise.network.links
    out.print(view.network_table([traffic(case, log, links) for case, log in zip(cases, logs, strict=True)]))
    timelines = {words.case(case): timeline(log, links) for case, log in zip(cases, logs, strict=True)}
    figure = ranks.draw(timelines)
    return _keep(item, figure, picture or progress.folder(item.root) / f"{item.name}-ranks.png")


def _not_drawn(item: Item, tree: Tree, reason: str) -> int:
    out.print(reason)
    view.step(out, f"kp check {item.name}" + (f" --tree {tree}" if tree != "phases" else ""))
    return NOT_YET


def _keep(item: Item, figure: Any, path: Path) -> int:
    """Write a figure to a file, and say where it is."""
    drawn = io.BytesIO()
    figure.savefig(drawn, format="png", dpi=120)
    write_atomically(path, drawn.getvalue())
    view.step(out, f"open {words.path(path, item.root)}")
    return PASSED


def _show_pipeline(item: Item, heaviest: Drawn, source: Path, picture: Path | None) -> int:
    from kernelpath.show import pipeline, pipeline_picture

    chart = pipeline.chart(heaviest.events)
    out.print(Text.assemble((source.name, "bold"), f", kernel {heaviest.kernel}"), soft_wrap=True)
    out.print(pipeline.text(chart))
    out.print()
    figure = pipeline_picture.draw(chart, f"{item.name}: {source.name}")
    return _keep(item, figure, picture or progress.folder(item.root) / f"{item.name}-pipeline.png")


def _show_assembly(heaviest: Drawn, source: Path) -> int:
    from kernelpath.show import assembly

    out.print(Text.assemble((source.name, "bold"), f", kernel {heaviest.kernel}"), soft_wrap=True)
    out.print(assembly.table(assembly.of_launch(heaviest, source_text(source))))
    return PASSED


def _record(program: Path, folder: Path | None) -> int:
    """Record a program's step, and say what is there and what is not."""
    if not program.is_file():
        raise Failure(f"there is no file {program}; give --record one that exists")
    folder = folder or progress.folder(registry.root()) / "recording"
    from kernelpath.work import recording

    with errors.status(program.name) as status:
        try:
            lacking = recording.record(program, folder, lambda doing: status.update(f"{program.name}: {doing}"))
        except recording.NotRecorded as error:
            raise Failure(f"{program.name} was not recorded: {error}") from error
    shown = words.path(folder, Path.cwd())
    out.print(f"{shown}/trace.json: open it at ui.perfetto.dev")
    if lacking:
        out.print(f"no counters: {lacking}", soft_wrap=True)
        return NOT_YET
    out.print(f"{shown}/ncu.csv: the counters of its kernels")
    view.step(out, f"kp check profile --trace {shown}")
    return PASSED


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
    first = not passed(item)
    graded = grading.grade(item, item.stub, item.name, device="cuda", seed=seed, bench=True)
    remember(item, graded)
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
