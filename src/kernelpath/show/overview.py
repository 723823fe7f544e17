"""Render tables for a terminal: the syllabus, progress, several reports, a class."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from kernelpath import words
from kernelpath.course.progress import CheckpointScore, Record
from kernelpath.course.registry import ExerciseRef
from kernelpath.show import view
from kernelpath.verdict import Report, Verdict

if TYPE_CHECKING:
    from kernelpath.school.exams import ExamOutcome
    from kernelpath.school.gradebook import Grade
    from kernelpath.school.similarity import Group


def syllabus(console: Console, records: Sequence[tuple[ExerciseRef, Record]]) -> None:
    """Print a row for each exercise with its title, and the electives below the others."""
    rows = create_table("", "week", "name", "lane", "title")
    for item, record in _announce_electives(rows, records):
        rows.add_row(_mark(record), f"{item.week:4d}", item.name, words.LANES[item.lane], item.title)
    wide = Console(file=console.file, width=view.WIDE_COLUMNS)  # a file or a pipe has no edge at which to cut
    (console if console.is_terminal else wide).print(rows)


def progress(
    console: Console, records: Sequence[tuple[ExerciseRef, Record]], scores: Sequence[CheckpointScore] = ()
) -> None:
    """Print a row for each exercise with its best results, the sum, and a line for each checkpoint that was tried."""
    rows = create_table("", "week", "name", "passed", "hints", "stars", "best time")
    for item, record in _announce_electives(rows, records):
        best = ", ".join(f"{words.seconds(value)} on {gpu}" for gpu, value in record.best_seconds.items())
        hints = str(record.hints) if record.hints else ""
        reached = words.stars(record.stars, item.stars) if record.passed else ""
        rows.add_row(_mark(record), f"{item.week:4d}", item.name, record.passed or "", hints, reached, best)
    console.print(rows)
    core = [(item, record) for item, record in records if not item.is_elective]
    console.print(f"\n{_summarize_progress(core)}")
    electives = [(item, record) for item, record in records if item.is_elective]
    if any(record.passed for _, record in electives):
        console.print(f"electives: {_summarize_progress(electives)}")
    for score in scores:
        outcome = "passed" if score.passed else "not yet passed"
        console.print(f"checkpoint {score.checkpoint} {outcome} with {score.score} of 100 points on {score.date}")


def _announce_electives(
    rows: Table, records: Sequence[tuple[ExerciseRef, Record]]
) -> Iterator[tuple[ExerciseRef, Record]]:
    """Yield the records, and add a heading to the table before the first elective."""
    announced = False
    for item, record in records:
        if item.is_elective and not announced:
            rows.add_row()
            rows.add_row("", "", Text("electives", "bold"))
            announced = True
        yield item, record


def row(console: Console, item: ExerciseRef, report: Report, done: int, total: int) -> None:
    """Print one of many reports as a line, as soon as it is finished.

    Args:
        done: The number of finished reports, with this one.
    """
    count = f"{done:{len(str(total))}d}/{total}"
    verdict = view.verdict(report.verdict)
    # Aligned for the common verdicts; a longer one shifts the name in its own line only.
    verdict.pad_right(max(0, 12 - len(verdict)))
    console.print(Text.assemble(f"{count}  {report.seconds:6.1f} s  ", verdict, f"  {item.name}"), soft_wrap=True)


def _summarize_progress(records: Sequence[tuple[ExerciseRef, Record]]) -> str:
    """Format the number of exercises that are passed, and their stars out of the possible stars."""
    passed_records = [(item, record) for item, record in records if record.passed]
    stars = sum(record.stars for _, record in passed_records)
    max_stars = sum(item.stars for item, _ in passed_records)
    passed = f"{len(passed_records)} of {len(records)} passed"
    if not passed_records:
        return passed
    timed = any(record.best_seconds for _, record in passed_records)
    # Without a GPU each pass gives one star. "21 of 63 stars" would blame the learner for the missing GPU.
    if timed or stars != len(passed_records) or max_stars == stars:
        return f"{passed}, with {stars} of {max_stars} stars"
    return f"{passed}, with {stars} of {stars} stars without a GPU; on a GPU these exercises give up to {max_stars}"


def table(console: Console, graded: Sequence[tuple[ExerciseRef, Report]]) -> None:
    """Print a row for each exercise with verdict, stars, ratio to the baseline and time; then the sum and the causes.

    A narrow terminal has fewer columns: no column is cut, and the least important columns are left out first.
    """
    columns: dict[str, list[RenderableType]] = {
        "week": [f"{item.week}" for item, _ in graded],
        "exercise": [item.name for item, _ in graded],
        "lane": [words.LANES[item.lane] for item, _ in graded],
        "verdict": [view.verdict(report.verdict) for _, report in graded],
        "stars": [words.stars(report.stars, item.stars) for item, report in graded],
    }
    if any(report.measurement for _, report in graded):
        measurements = [report.measurement for _, report in graded]
        columns["ratio"] = [
            words.factor(measurement.speedup.median) if measurement else "" for measurement in measurements
        ]
        columns["time"] = [words.seconds(measurement.seconds) if measurement else "" for measurement in measurements]
    columns["took"] = [f"{report.seconds:.1f} s" for _, report in graded]
    rows = _fill_table(columns)
    # In the order in which they can be missed.
    for heading in ("lane", "took"):
        if console.measure(rows, options=console.options.update(max_width=view.WIDE_COLUMNS)).maximum > console.width:
            del columns[heading]
            rows = _fill_table(columns)
    console.print(rows)
    counts = Counter(report.verdict.value for _, report in graded)
    total = ", ".join(f"{count} {verdict_name}" for verdict_name, count in counts.items())
    console.print(f"\n{total} on {graded[0][1].device}")
    for item, report in graded:
        if not report.verdict.passed:
            console.print(Text.assemble((item.name, "bold"), f": {report.cause or report.verdict.meaning}"))


def _fill_table(columns: Mapping[str, Sequence[RenderableType]]) -> Table:
    rows = create_table(*columns)
    for cells in zip(*columns.values(), strict=True):
        rows.add_row(*cells)
    return rows


def school(console: Console, grades: Sequence[Grade]) -> None:
    """Print a row for each exercise: how many handed it in, how many passed, and how the others ended."""
    rows = create_table("exercise", "handed in", "passing", "others")
    for exercise in dict.fromkeys(grade.exercise for grade in grades):
        exercise_grades = [grade for grade in grades if grade.exercise == exercise]
        # A learner without a file for this exercise has a grade without a report.
        counts = Counter(grade.report.verdict for grade in exercise_grades if grade.report is not None)
        others = Counter(
            grade.status
            for grade in exercise_grades
            if grade.unchanged or (grade.report is not None and not grade.report.verdict.passed)
        )
        other_verdicts = ", ".join(f"{count} {status}" for status, count in others.most_common())
        rows.add_row(exercise.partition("/")[2], str(counts.total()), str(counts[Verdict.PASSED]), other_verdicts)
    console.print(rows)
    console.print(f"\n{words.count(len({grade.learner for grade in grades}), 'learner')}")


def similar(console: Console, groups: Sequence[Group], folder: Path) -> None:
    """Print where to read about submissions that agree, if there are any."""
    if groups:
        summary = "1 group of submissions agrees" if len(groups) == 1 else f"{len(groups)} groups of submissions agree"
        console.print(
            f"\n{summary} beyond the stub: {folder / 'similar.csv'}. Read them before you judge.", soft_wrap=True
        )


def exams(console: Console, outcomes: Sequence[ExamOutcome]) -> None:
    """Print a row for each learner with the points by part, and the reason where there are none."""
    rows = create_table("learner", *_POINT_COLUMNS, "written")
    for outcome in outcomes:
        certificate = outcome.certificate
        points = [f"{certificate.score}", *map(str, certificate.points.values())] if certificate else ["0", *[""] * 4]
        rows.add_row(words.escaped(outcome.learner), *points, certificate.written_points if certificate else "")
    console.print(rows)
    passed = [outcome for outcome in outcomes if outcome.certificate and outcome.certificate.passed]
    console.print(f"\n{len(passed)} of {len(outcomes)} passed")
    for outcome in outcomes:
        if outcome.certificate is None:
            console.print(f"{words.escaped(outcome.learner)}: {outcome.cause}", soft_wrap=True)


@contextmanager
def bar(console: Console) -> Iterator[Callable[[Grade, int, int], None]]:
    """Show a progress bar on a terminal.

    Yield a function to call after each grade with the numbers done and in total.
    """
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    times = (TimeElapsedColumn(), TextColumn("left"), TimeRemainingColumn())
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), *times)
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("grading", total=None)

        def update(graded: Grade, done: int, total: int) -> None:
            progress.update(task, description=words.escaped(graded.learner), completed=done, total=total)

        yield update


def _mark(record: Record) -> Text:
    return Text("✓", "green") if record.passed else Text(" ")


_POINT_COLUMNS = ("score", "exercises", "questions", "reading", "deliverable")


def create_table(*headings: str) -> Table:
    """Create an empty table without lines, with numbers on the right. Only prose is wrapped."""
    rows = Table(box=None, pad_edge=False, header_style="bold")
    for heading in headings:
        numeric = heading in ("week", "hints", "ratio", "time", "took", "handed in", "passing", *_POINT_COLUMNS)
        wraps = heading in ("title", "best time", "others", "learner")
        rows.add_column(heading, justify="right" if numeric else "left", no_wrap=not wraps, overflow="fold")
    return rows
