"""Implement `kp profile`: the counters of each line, the assembly, the pipeline of a kernel, and the work of ranks."""

from __future__ import annotations

import contextlib
import dataclasses
import io
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.text import Text

from kernelpath import words
from kernelpath.cli import grading
from kernelpath.cli.common import NOT_YET, PASSED, Failure, errors, optional_name_argument, out, tree_option
from kernelpath.course import progress, registry
from kernelpath.course.registry import ExerciseRef, Tree
from kernelpath.files import source_text, write_atomically
from kernelpath.show import source as annotated
from kernelpath.show import view

if TYPE_CHECKING:
    from kernelpath.course.problem import Case
    from kernelpath.course.spec import Exercise
    from kernelpath.device.messages import LaunchProfile


def show_lines(title: str, case: Case, heaviest: LaunchProfile, source: Path) -> None:
    """Print the lines of a source that accessed memory or diverged, with their counters in the largest case."""
    lines_with_costs = [
        line for line in annotated.of_launch(heaviest, source_text(source)) if line.costs or line.active_lanes
    ]
    lines = [dataclasses.replace(line, text=line.text.strip()) for line in lines_with_costs]
    executed = words.count(heaviest.totals.warp_instructions, "warp instruction")
    out.print(Text.assemble((title, "bold"), f": {source.name}, {executed}"))
    out.print(Text(f"largest case: {words.case(case)}", "dim"))
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
@click.option("--sass", is_flag=True, help="Show the PTX and the SASS of each line instead of its counters.")
@click.option("--pipeline", is_flag=True, help="Show the copies, waits, and MMAs of each warp of the first block.")
def profile(
    item: ExerciseRef | None,
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
        return _record_program(program, folder)
    assert item is not None
    exercise = registry.load(item)
    if exercise.kind == "distributed" and not sass:
        return _show_ranks(item, exercise, tree, picture)
    if not exercise.is_kernel:
        raise Failure(_explain_missing_kernel(item, exercise))
    grading.start_workers()
    from kernelpath.grading import grade

    if pipeline:
        return _show_pipeline(item, tree, picture)
    job = grade.Job.create(item, item.submission(tree), device="cpu")
    with errors.status(item.name), grade.Session(job) as session:
        try:
            heaviest = session.heaviest_launch()
        except grade.NothingToDraw as error:
            return _print_no_picture(item, tree, str(error))
        except grade.Usage as error:
            raise Failure(str(error)) from error
    if sass:
        return _show_assembly(heaviest, item.submission(tree).with_name(Path(heaviest.file).name))
    source = item.submission(tree).with_name(Path(heaviest.file).name)
    from kernelpath.show.warp import draw_launch

    figure = draw_launch(heaviest, source_text(source), f"{item.name}: {source.name}")
    path = picture or progress.folder(item.root) / f"{item.name}-memory.png"
    show_lines(item.name, job.exercise.largest, heaviest, source)
    return _write_picture(item, figure, path)


# The alternative for an exercise without a kernel, by its kind.
_ALTERNATIVES = {
    "lab": "kp check {name} shows what the simulated device did in each case",
    "trace": "kp check {name} compares what you read out of the recording",
    "distributed": "kp profile {name} draws what each rank does, over time",
}


def _explain_missing_kernel(item: ExerciseRef, exercise: Exercise) -> str:
    """Explain that there is nothing to profile, and what to look at instead."""
    alternative = _ALTERNATIVES.get(exercise.kind, "kp check {name} compares its result in each case").format(
        name=item.name
    )
    lesson_hint = f", and {words.path(item.notebook, item.root)} is its lesson" if item.notebook else ""
    return f"{item.name} launches no kernel, so it has no counters, no pipeline and no SASS; {alternative}{lesson_hint}"


def _show_ranks(item: ExerciseRef, exercise: Exercise, tree: Tree, picture: Path | None) -> int:
    """Draw what the ranks do, for the largest case of each algorithm."""
    grading.start_workers()
    from kernelpath.course.labs.fabric import timeline
    from kernelpath.grading import grade
    from kernelpath.grading.network import measure_traffic
    from kernelpath.show import network, ranks

    cases = network.largest((case, exercise.compulsory_bytes(**case), case) for case in exercise.cases)
    job = grade.Job.create(item, item.submission(tree), device="cpu")
    with errors.status(item.name) as status, grade.Session(job) as session:
        try:
            logs = session.logs(cases, report_progress=lambda step: status.update(f"{item.name}: {step}"))
        except grade.NothingToDraw as error:
            return _print_no_picture(item, tree, str(error))
    links = exercise.network.links
    out.print(view.network_table([measure_traffic(case, log, links) for case, log in zip(cases, logs, strict=True)]))
    timelines = {words.case(case): timeline(log, links) for case, log in zip(cases, logs, strict=True)}
    figure = ranks.draw(timelines)
    return _write_picture(item, figure, picture or progress.folder(item.root) / f"{item.name}-ranks.png")


def _print_no_picture(item: ExerciseRef, tree: Tree, reason: str) -> int:
    out.print(reason)
    view.step(out, f"kp check {item.name}" + (f" --tree {tree}" if tree != "phases" else ""))
    return NOT_YET


def _write_picture(item: ExerciseRef, figure: Any, path: Path) -> int:
    """Write a figure to a file, and print its path."""
    png = io.BytesIO()
    figure.savefig(png, format="png", dpi=120)
    write_atomically(path, png.getvalue())
    view.step(out, f"open {words.path(path, item.root)}")
    return PASSED


def _show_pipeline(item: ExerciseRef, tree: Tree, picture: Path | None) -> int:
    """Draw what the warps of a launch do; if a case fails, up to its fault."""
    from kernelpath.grading import grade
    from kernelpath.show import barriers, pipeline, pipeline_picture

    job = grade.Job.create(item, item.submission(tree), device="cpu")
    with errors.status(item.name) as status, grade.Session(job) as session:
        try:
            recorded = session.record_launch(report_progress=lambda step: status.update(f"{item.name}: {step}"))
        except grade.NothingToDraw as error:
            return _print_no_picture(item, tree, str(error))
    launch = recorded.launch
    finding = recorded.finding
    source = item.submission(tree).with_name(Path(launch.file).name)
    events = barriers.rename_barriers(launch.events, launch.barriers, source_text(source))
    chart = pipeline.chart(events, failed=finding is not None)
    if finding is not None:
        out.print(Text.assemble(view.verdict(finding.verdict), f"  {finding.cause}\n"))
    case = words.case(recorded.case)
    out.print(Text.assemble((source.name, "bold"), f", kernel {launch.kernel}, {case}"), soft_wrap=True)
    out.print(pipeline.text(chart))
    out.print()
    figure = pipeline_picture.draw(chart, f"{item.name}: {source.name}, {case}")
    exit_status = _write_picture(item, figure, picture or progress.folder(item.root) / f"{item.name}-pipeline.png")
    return exit_status if finding is None else NOT_YET


def _show_assembly(heaviest: LaunchProfile, source: Path) -> int:
    from kernelpath.show import assembly

    line_map = assembly.of_launch(heaviest, source_text(source))
    with out.pager() if out.is_terminal else contextlib.nullcontext():
        kernel = assembly.demangled(heaviest.kernel)
        out.print(Text.assemble((source.name, "bold"), f", kernel {kernel}"), soft_wrap=True)
        out.print(assembly.table(line_map))
    return PASSED


def _record_program(program: Path, folder: Path | None) -> int:
    """Record a program's step, and print what was written and what is missing."""
    if not program.is_file():
        raise Failure(f"there is no file {program}; give --record one that exists")
    folder = folder or progress.folder(registry.root()) / "recording"
    from kernelpath.work import recording

    with errors.status(program.name) as status:
        try:
            reason = recording.record_step(program, folder, lambda step: status.update(f"{program.name}: {step}"))
        except recording.RecordingFailed as error:
            raise Failure(f"{program.name} was not recorded: {error}") from error
    folder_path = words.path(folder, Path.cwd())
    out.print(f"{folder_path}/trace.json: open it at ui.perfetto.dev")
    if reason:
        out.print(f"no counters: {reason}", soft_wrap=True)
        return NOT_YET
    out.print(f"{folder_path}/ncu.csv: the counters of its kernels")
    view.step(out, f"kp check profile --trace {folder_path}")
    return PASSED
