"""Implement solution, bench, report and book, from which learners learn besides the verdict."""

from __future__ import annotations

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
    errors,
    json_option,
    name_argument,
    out,
    seed_option,
    warn,
)
from kernelpath.cli.profiling import show_lines
from kernelpath.cli.record import has_passed, records, save_result
from kernelpath.course import ladder, lesson, places, progress, registry, stubs
from kernelpath.course.progress import Progress
from kernelpath.course.registry import ExerciseRef, Tree
from kernelpath.files import source_text, write_atomically
from kernelpath.line_counters import CallCounts
from kernelpath.show import difference, view
from kernelpath.show.book import FOLDER, executed_notebooks

if TYPE_CHECKING:
    from kernelpath.grading.launch_recording import CountedCall


@click.command()
@name_argument
@click.option("--peek", is_flag=True, help="Show the answer before you have passed.")
@click.option(
    "--expert", is_flag=True, help="Show the reference kernel, where it is longer and faster than the answer."
)
def solution(item: ExerciseRef, peek: bool, expert: bool) -> int:
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
        counted = {"yours": _show_counters(item, "yours", item.stub), title: _show_counters(item, title, shown)}
        if devices.resolve("auto") != "cuda":
            _compare_counts(item, counted)
    out.print(Text(f"{lesson.read(item.lesson).explain}\n"))
    if ladder.step_files(item):
        out.print(f"The steps from a simple kernel to this one are in {words.path(item.ladder, item.course)}.")
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


def _show_counters(item: ExerciseRef, title: str, file: Path) -> CallCounts | None:
    """Print the memory traffic of a submission's heaviest launch, line by line, counted on the PTX machine.

    Returns the counts of the call, or None if it fails.
    """
    recorded = _record_call(item, title, file)
    if recorded is None:
        return None
    show_lines(title, recorded.case, recorded.launch, file.with_name(Path(recorded.launch.file).name))
    return recorded.counts


def _record_call(item: ExerciseRef, title: str, file: Path) -> CountedCall | None:
    from kernelpath.grading import grade

    job = grade.Job.create(item, file, device="cpu")
    with errors.status(f"{item.name}: counting {title}"), grade.Session(job) as session:
        try:
            return session.record_call()
        except (grade.NothingToDraw, grade.Usage) as error:
            out.print(Text(f"{title}: no counters: {error}\n", "dim"), soft_wrap=True)
            return None


def _compare_counts(item: ExerciseRef, counted: dict[str, CallCounts | None]) -> None:
    """Print the counts of the learner's kernel, the answer and the reference kernel beside each other.

    Without a GPU no kernel has more than one star. The counts show what the second and the third would be for.
    """
    if item.has_expert and "reference" not in counted:
        recorded = _record_call(item, "reference", item.reference)
        counted["reference"] = recorded.counts if recorded else None
    by_label = {label: call_counts for label, call_counts in counted.items() if call_counts and call_counts.elements}
    # One column alone compares nothing.
    if len(by_label) < 2:
        return
    out.print(view.counts_table(by_label))
    if "yours" in by_label and "reference" in by_label:
        out.print(Text(f"\n{view.describe_gain(by_label['yours'], by_label['reference'])}"))
    out.print()


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
def bench(item: ExerciseRef, picture: Path | None, seed: int | None, json_to: str | None) -> int:
    """Measure on the GPU and draw the roofline."""
    grading.check_json_target(json_to)
    # Read before the result is saved: the explanation is shown at the first pass.
    first = not has_passed(item)
    graded = grading.grade(grading.GradingRequest(item, item.stub, device="cuda", seed=seed, bench=True), item.name)
    save_result(item, graded)
    if json_to is not None:
        grading.write_json(json_to, [graded], single=True)
    if json_to != "-":
        grading.show(item, graded, first=first)
    if graded.measurement is not None:
        from kernelpath.show import plots

        path = picture or progress.folder(item.root) / f"{item.name}.png"
        write_atomically(path, plots.png(plots.draw_measurement(graded.measurement)))
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


@click.command("book")
@click.option(
    "--out",
    "to",
    type=click.Path(file_okay=False, path_type=Path),
    help="A folder. [.kernelpath/book; outside of a course folder kernelpath-book]",
)
@click.option("--colab", metavar="OWNER/REPO[@BRANCH]", help="Where the pages will be on GitHub. [BRANCH: gh-pages]")
def book_(to: Path | None, colab: str | None) -> int:
    """Write the book as web pages.

    The notebooks with their outputs, with a syllabus and a glossary. The pages need no network. With --colab, each
    week's page has a link that opens its notebook in Colab; without, it says how to upload the notebook there.
    """
    from kernelpath.show import site
    from kernelpath.show.colab import Address

    root = places.find_course_folder() or Path.cwd()
    course = registry.course()
    if not executed_notebooks(course):
        raise Failure(f"there are no notebooks in {FOLDER}/; python -m kernelpath.show.execute writes them")
    try:
        address = Address.of(colab) if colab else None
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--colab") from error
    # Outside a course folder nothing may be written to .kernelpath, which marks one.
    default = progress.folder(root) / "book" if places.find_course_folder() else root / "kernelpath-book"
    with errors.status("book") as status:
        index = site.write(course, to or default, address, lambda page: status.update(f"book: {page}"))
    view.step(out, f"open {words.path(index, root)} in a browser")
    return PASSED
