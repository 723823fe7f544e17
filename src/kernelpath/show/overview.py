"""Renders many things at once for a terminal: the syllabus, progress, a table of reports, a class."""

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
from kernelpath.course.progress import Record, Score
from kernelpath.course.registry import Item
from kernelpath.show import view
from kernelpath.verdict import Report, Verdict

if TYPE_CHECKING:
    from kernelpath.school.exams import ExamOutcome
    from kernelpath.school.gradebook import Grade
    from kernelpath.school.similarity import Group


def syllabus(console: Console, records: Sequence[tuple[Item, Record]]) -> None:
    """One row an exercise with its title."""
    rows = rows_of("", "week", "name", "lane", "title")
    for item, record in records:
        rows.add_row(_mark(record), f"{item.week:4d}", item.name, words.LANES[item.lane], item.title)
    wide = Console(file=console.file, width=view.WIDE)  # a file or a pipe has no edge at which to cut
    (console if console.is_terminal else wide).print(rows)


def progress(console: Console, records: Sequence[tuple[Item, Record]], scores: Sequence[Score] = ()) -> None:
    """One row an exercise with what was reached, the sum, and a line for each checkpoint that was tried."""
    rows = rows_of("", "week", "name", "passed", "hints", "stars", "best time")
    for item, record in records:
        best = ", ".join(f"{words.seconds(value)} on {gpu}" for gpu, value in record.best_seconds.items())
        hints = str(record.hints) if record.hints else ""
        reached = words.stars(record.stars, item.stars) if record.passed else ""
        rows.add_row(_mark(record), f"{item.week:4d}", item.name, record.passed or "", hints, reached, best)
    console.print(rows)
    console.print(f"\n{_sum(records)}")
    for one in scores:
        ending = "passed" if one.passed else "not yet passed"
        console.print(f"checkpoint {one.checkpoint} {ending} with {one.score} of 100 points on {one.date}")


def row(console: Console, item: Item, report: Report, done: int, total: int) -> None:
    """One of many reports in a line, as soon as it is known. done: how many are, with this one."""
    count = f"{done:{len(str(total))}d}/{total}"
    ended = view.verdict(report.verdict)
    ended.pad_right(max(0, 12 - len(ended)))
    console.print(Text.assemble(f"{count}  {report.seconds:6.1f} s  ", ended, f"  {item.name}"), soft_wrap=True)


def _sum(records: Sequence[tuple[Item, Record]]) -> str:
    """How many exercises are passed, with how many stars of those that these exercises can give."""
    done = [(item, record) for item, record in records if record.passed]
    stars, most = sum(record.stars for _, record in done), sum(item.stars for item, _ in done)
    told = f"{len(done)} of {len(records)} passed"
    if not done:
        return told
    timed = any(record.best_seconds for _, record in done)
    if timed or stars != len(done) or most == stars:
        return f"{told}, with {stars} of {most} stars"
    return f"{told}, with {stars} of {stars} stars without a GPU; on a GPU these exercises give up to {most}"


def table(console: Console, graded: Sequence[tuple[Item, Report]]) -> None:
    """One row an exercise: verdict, stars, ratio to the baseline and time; then the sum and the causes.

    A narrow terminal has less columns: none is cut, and those go first that matter least.
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
        columns["ratio"] = [words.factor(found.speedup.median) if found else "" for found in measurements]
        columns["time"] = [words.seconds(found.seconds) if found else "" for found in measurements]
    columns["took"] = [f"{report.seconds:.1f} s" for _, report in graded]
    rows = _rows_with(columns)
    for heading in ("lane", "took"):
        if console.measure(rows, options=console.options.update(max_width=view.WIDE)).maximum > console.width:
            del columns[heading]
            rows = _rows_with(columns)
    console.print(rows)
    endings = Counter(one.verdict.value for _, one in graded)
    total = ", ".join(f"{count} {ending}" for ending, count in endings.items())
    console.print(f"\n{total} on {graded[0][1].device}")
    for item, one in graded:
        if not one.verdict.passed:
            console.print(Text.assemble((item.name, "bold"), f": {one.cause or one.verdict.meaning}"))


def _rows_with(columns: Mapping[str, Sequence[RenderableType]]) -> Table:
    rows = rows_of(*columns)
    for cells in zip(*columns.values(), strict=True):
        rows.add_row(*cells)
    return rows


def school(console: Console, grades: Sequence[Grade]) -> None:
    """Print a row for each exercise: how many handed it in, how many passed, and how the others ended."""
    rows = rows_of("exercise", "handed in", "passing", "others")
    for exercise in dict.fromkeys(one.exercise for one in grades):
        reports = [one.report for one in grades if one.exercise == exercise]
        endings = Counter(report.verdict for report in reports if report is not None)
        others = ", ".join(f"{count} {ending.value}" for ending, count in endings.most_common() if not ending.passed)
        rows.add_row(exercise.partition("/")[2], str(endings.total()), str(endings[Verdict.PASSED]), others)
    console.print(rows)
    console.print(f"\n{words.count(len({one.learner for one in grades}), 'learner')}")


def similar(console: Console, found: Sequence[Group], folder: Path) -> None:
    """Say where to read of submissions that agree; nothing where none do."""
    if found:
        told = "1 group of submissions agrees" if len(found) == 1 else f"{len(found)} groups of submissions agree"
        console.print(
            f"\n{told} beyond the stub: {folder / 'similar.csv'}. Read them before you judge.", soft_wrap=True
        )


def exams(console: Console, outcomes: Sequence[ExamOutcome]) -> None:
    """One row a learner: the points by part, and why there are none."""
    rows = rows_of("learner", *_POINTS, "written")
    for outcome in outcomes:
        found = outcome.certificate
        points = [f"{found.score}", *map(str, found.points.values())] if found else ["0", *[""] * 4]
        rows.add_row(words.escaped(outcome.learner), *points, found.written_points if found else "")
    console.print(rows)
    passed = [outcome for outcome in outcomes if outcome.certificate and outcome.certificate.passed]
    console.print(f"\n{len(passed)} of {len(outcomes)} passed")
    for outcome in outcomes:
        if outcome.certificate is None:
            console.print(f"{words.escaped(outcome.learner)}: {outcome.cause}", soft_wrap=True)


@contextmanager
def bar(console: Console) -> Iterator[Callable[[Grade, int, int], None]]:
    """A progress bar on a terminal; yields what to call after each grade, with how many of how many are done."""
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
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as shown:
        task = shown.add_task("grading", total=None)

        def tell(graded: Grade, done: int, of: int) -> None:
            shown.update(task, description=words.escaped(graded.learner), completed=done, total=of)

        yield tell


def _mark(record: Record) -> Text:
    return Text("✓", "green") if record.passed else Text(" ")


_POINTS = ("score", "exercises", "questions", "reading", "deliverable")


def rows_of(*headings: str) -> Table:
    """An empty table without lines, numbers to the right; only prose is wrapped."""
    rows = Table(box=None, pad_edge=False, header_style="bold")
    for heading in headings:
        numeric = heading in ("week", "hints", "ratio", "time", "took", "handed in", "passing", *_POINTS)
        wraps = heading in ("title", "best time", "others", "learner")
        rows.add_column(heading, justify="right" if numeric else "left", no_wrap=not wraps, overflow="fold")
    return rows
