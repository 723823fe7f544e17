"""Renders for a terminal. A report is one line a case, the verdict with its cause and source line, one next step."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from kernelpath.course.problem import arguments
from kernelpath.course.progress import Record, Score
from kernelpath.course.registry import Item
from kernelpath.verdict import Interval, LineTraffic, Measurement, Report, Verdict

if TYPE_CHECKING:
    from kernelpath.doctor import Finding
    from kernelpath.exam.checkpoint import Asked, Certificate, Exam, Sheet
    from kernelpath.school.classroom import Grade

LANES = {"cuda": "CUDA C++", "triton": "Triton", "cute": "CuTe DSL", "python": "Python"}

_UNDECIDED = (Verdict.NOT_STARTED, Verdict.UNAVAILABLE, Verdict.INCONCLUSIVE)
_WIDE = 200
_TRAFFIC_SHOWN = 4
_WORTH_SHOWING = 1.05
_PRINTED_LINES = 6
_KEYS_SHOWN = 10


def report(console: Console, item: Item, graded: Report, *, explain: str = "", next_step: bool = True) -> None:
    """Print all of a report. `explain` is shown after a pass; `next_step` is left out where another report follows."""
    console.print(_header(item, graded))
    blocks: tuple[RenderableType | None, ...] = (
        _cases(graded),
        _printed(graded),
        _memory(graded.traffic),
        _measurement(graded.measurement),
        _ending(graded, item.stars),
        Text(explain) if graded.verdict.passed and explain else None,
    )
    for block in blocks:
        if block is not None:
            console.print()
            console.print(block)
    if graded.file:
        console.print(_blamed(graded, item.root), soft_wrap=True)
    if next_step:
        step(console, graded.next_step)


def step(console: Console, text: str) -> None:
    """Print the one next step."""
    console.print(Text.assemble("\n", ("next: ", "bold cyan"), text), soft_wrap=True)


def table(console: Console, graded: Sequence[tuple[Item, Report]]) -> None:
    """One row an exercise: verdict, stars, ratio to the baseline and time; then the sum and the causes."""
    rows = _table("week", "exercise", "lane", "verdict", "stars", "ratio", "time", "took")
    for item, one in graded:
        measured = one.measurement
        ratio = f"{measured.speedup.median:.2f}" if measured else ""
        time = seconds(measured.seconds) if measured else ""
        ended = (verdict(one.verdict), stars(one.stars, item.stars))
        rows.add_row(f"{item.week}", item.name, LANES[item.lane], *ended, ratio, time, f"{one.seconds:.1f} s")
    console.print(rows)
    endings = Counter(one.verdict.value for _, one in graded)
    total = ", ".join(f"{count} {ending}" for ending, count in endings.items())
    console.print(f"\n{total} on {graded[0][1].device}")
    for item, one in graded:
        if not one.verdict.passed:
            console.print(Text.assemble((item.name, "bold"), f": {one.cause or one.verdict.meaning}"))


def exam_parts(console: Console, exam: Exam, sheet: Sheet) -> None:
    """What the exam consists of, and how its points are made."""
    from kernelpath.exam.checkpoint import POINTS

    count, name = len(sheet.questions), exam.deliverable.name
    told = {
        "exercises": f"all {len(exam.items)} must pass",
        "questions": f"{exam.needed(count)} of {count} must be answered rightly",
        "deliverable": f"your {name} at {exam.declared.draws} drawn sizes; you write nothing more",
    }
    rows = Table.grid(padding=(0, 2))
    for part, points in POINTS.items():
        rows.add_row(f"  {part}", f"{points}", told[part])
    console.print(Text(f"checkpoint {exam.number}: 100 points", "bold"))
    console.print(rows)


def checkpoint(console: Console, exam: Exam, result: Certificate, sheet: Sheet) -> None:
    """The exam's parts with their verdicts, the score, and what is missing."""
    from kernelpath.exam.checkpoint import POINTS

    rows = _table("week", "exercise", "verdict", "stars", "ratio")
    for item, one in zip(exam.items, result.exercises, strict=True):
        ratio = f"{one.measurement.speedup.median:.2f}" if one.measurement else ""
        rows.add_row(f"{item.week}", item.name, verdict(one.verdict), stars(one.stars, item.stars), ratio)
    for one in result.deliverable:
        size = arguments(one.cases[-1].case) if one.cases else ""
        rows.add_row("", f"deliverable, {size}", verdict(one.verdict), "", "")
    console.print(rows)
    if not result.deliverable:
        console.print(f"deliverable: not run, {exam.deliverable.name} has not passed")
    right = sum(result.answers.values())
    told = f"\n{right} of {len(result.answers)} questions are answered rightly in {place(str(sheet.path), exam.root)}"
    console.print(told, soft_wrap=True)
    wrong = [key for key, fine in result.answers.items() if not fine]
    if wrong:
        more = f" and {len(wrong) - _KEYS_SHOWN} more" if wrong[_KEYS_SHOWN:] else ""
        console.print(f"not right yet: {', '.join(wrong[:_KEYS_SHOWN])}{more}")
    made = ", ".join(f"{part} {points} of {POINTS[part]}" for part, points in result.points.items())
    console.print(f"points: {made}", soft_wrap=True)
    style = "bold green" if result.passed else "bold yellow"
    ending = "passed" if result.passed else "not yet passed"
    about = f"checkpoint {exam.number} {ending} with {result.score} of 100 points"
    console.print(Text.assemble((about, style), (f"  {result.device}, seed {result.seed}", "dim")), soft_wrap=True)
    for sentence in result.missing:
        console.print(f"missing: {sentence}", soft_wrap=True)


def question(console: Console, asked: Asked, position: str) -> None:
    """A question with its choices."""
    console.print(Text(f"\n{position}, {asked.place}", "dim"))
    console.print(Text(asked.question.ask, "bold"))
    for letter, choice in asked.lettered:
        console.print(f"  {letter}) {choice}")


def answered(console: Console, asked: Asked, right: bool) -> None:
    """Whether the answer is right. The why gives the answer away, so it waits until then."""
    if right:
        console.print(Text.assemble(("right. ", "green"), asked.question.why))
        return
    console.print(Text("not yet; kept, and asked again next time", "yellow"))
    if asked.notebook:
        console.print(f"read {asked.place}, in {asked.notebook}", soft_wrap=True)


def school(console: Console, grades: Sequence[Grade]) -> None:
    """One row an exercise: how many learners handed it in and how many passed, and how the others ended."""
    rows = _table("exercise", "learners", "handed in", "passing", "others")
    for exercise in dict.fromkeys(one.exercise for one in grades):
        reports = [one.report for one in grades if one.exercise == exercise]
        endings = Counter(report.verdict for report in reports if report is not None)
        others = ", ".join(f"{count} {ending.value}" for ending, count in endings.most_common() if not ending.passed)
        counts = (len(reports), endings.total(), endings[Verdict.PASSED])
        rows.add_row(exercise.partition("/")[2], *map(str, counts), others)
    console.print(rows)


@contextmanager
def bar(console: Console) -> Iterator[Callable[[Grade, int, int], None]]:
    """A progress bar on a terminal; yields what to call after each grade, with how many of how many are done."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as shown:
        task = shown.add_task("grading", total=None)

        def tell(graded: Grade, done: int, of: int) -> None:
            shown.update(task, description=graded.learner, completed=done, total=of)

        yield tell


def progress(console: Console, records: Sequence[tuple[Item, Record]], scores: Sequence[Score] = ()) -> None:
    """One row an exercise with what was reached, the sum, and a line for each checkpoint that was tried."""
    rows = _table("", "week", "name", "passed", "hints", "stars", "best time")
    for item, record in records:
        best = ", ".join(f"{seconds(value)} on {gpu}" for gpu, value in record.best_seconds.items())
        hints = str(record.hints) if record.hints else ""
        reached = stars(record.stars, item.stars) if record.passed else ""
        rows.add_row(mark(record), f"{item.week:4d}", item.name, record.passed or "", hints, reached, best)
    console.print(rows)
    passed = sum(record.passed is not None for _, record in records)
    total = sum(record.stars for _, record in records)
    console.print(f"\n{passed} of {len(records)} passed, {total} of {sum(item.stars for item, _ in records)} stars")
    for one in scores:
        ending = "passed" if one.passed else "not yet passed"
        console.print(f"checkpoint {one.checkpoint} {ending} with {one.score} of 100 points on {one.date}")


def syllabus(console: Console, records: Sequence[tuple[Item, Record]]) -> None:
    """One row an exercise with its title."""
    rows = _table("", "week", "name", "lane", "title")
    for item, record in records:
        title = Text(item.title, no_wrap=True, overflow="ellipsis")
        rows.add_row(mark(record), f"{item.week:4d}", item.name, LANES[item.lane], title)
    wide = Console(file=console.file, width=_WIDE)  # a file or a pipe has no edge at which to cut
    (console if console.is_terminal else wide).print(rows)


def findings(console: Console, found: Sequence[Finding]) -> None:
    """What the doctor found: one row a thing, and under it what to do about it."""
    rows = Table.grid(padding=(0, 2))
    for _ in range(3):
        rows.add_column(overflow="fold")  # a path is to be copied
    for one in found:
        rows.add_row(Text("yes", "green") if one.works else Text("no", "yellow"), one.what, one.detail)
        if one.remedy:
            rows.add_row("", "", Text.assemble(("do: ", "cyan"), one.remedy))
    console.print(rows)


def sources(console: Console, item: Item) -> None:
    """The reference beside the learner's files where the terminal is wide enough, else below them."""
    for reference in item.files("solutions"):
        yours = item.stub.with_suffix(reference.suffix)
        pair = [_source(path, item.root) for path in (yours, reference) if path.is_file()]
        if console.width >= _WIDE:
            grid = Table.grid(padding=(0, 2), expand=True)
            grid.add_row(*pair)
            console.print(grid)
        else:
            console.print(*pair, sep="\n", soft_wrap=True)


def mark(record: Record) -> Text:
    return Text("✓", "green") if record.passed else Text(" ")


def verdict(value: Verdict) -> Text:
    style = "green" if value.passed else "yellow" if value in _UNDECIDED else "red"
    return Text(value.value, f"bold {style}")


def stars(count: int, most: int = 3) -> str:
    return "★" * count + "☆" * (most - count)


def seconds(value: float) -> str:
    """A duration in the unit that a reader of timings expects."""
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if value >= scale:
            return f"{value / scale:.3g} {unit}"
    return f"{value / 1e-9:.3g} ns"


def place(file: str, root: Path) -> str:
    """A path as short as it is unambiguous: relative to the checkout where it lies inside."""
    path = Path(file)
    return str(path.relative_to(root)) if path.is_relative_to(root) else file


def _table(*headings: str) -> Table:
    rows = Table(box=None, pad_edge=False, header_style="bold")
    for heading in headings:
        numeric = heading in ("week", "hints", "ratio", "time", "took", "learners", "handed in", "passing")
        wraps = heading in ("title", "best time", "others")
        rows.add_column(heading, justify="right" if numeric else "left", no_wrap=not wraps)
    return rows


def _source(path: Path, root: Path) -> Text:
    from rich.syntax import Syntax

    highlighter = Syntax("", "c++" if path.suffix == ".cu" else "python", theme="ansi_light")
    title = (f"--- {place(str(path), root)}\n", "bold")
    return Text.assemble(title, highlighter.highlight(path.read_text(encoding="utf-8")))


def _header(item: Item, graded: Report) -> Text:
    about = f"week {item.week}, {LANES[item.lane]}, {graded.device}, seed {graded.seed}"
    return Text.assemble((item.name, "bold"), (f"  {about}", "dim"), f"\n{graded.title}")


def _cases(graded: Report) -> Table | None:
    if not graded.cases:
        return None
    rows = Table.grid(padding=(0, 2))
    rows.add_column(overflow="fold")
    rows.add_column(no_wrap=True)
    rows.add_column(justify="right", no_wrap=True, style="dim")
    for case in graded.cases:
        row: list[RenderableType] = [arguments(case.case), verdict(case.verdict), seconds(case.seconds)]
        if case.verdict not in (Verdict.PASSED, graded.verdict):
            row.append(Text(case.cause, no_wrap=True, overflow="ellipsis"))
        rows.add_row(*row)
    return rows


def _printed(graded: Report) -> RenderableType | None:
    """The first and the last lines that the submission printed, each once: a case repeats what the one before said."""
    lines = graded.printed.rstrip().splitlines()
    if not lines:
        return None
    shown = list(dict.fromkeys(lines))
    if len(shown) > 2 * _PRINTED_LINES:
        shown = [*shown[:_PRINTED_LINES], "[…]", *shown[-_PRINTED_LINES:]]
    cut = f" {len(lines):,} lines; --json - gives all" if len(shown) < len(lines) else ""
    return Text.assemble((f"it printed{cut}:\n", "dim"), "\n".join(shown))


def _memory(traffic: Sequence[LineTraffic]) -> RenderableType | None:
    wasteful = [line for line in traffic if _waste(line) > _WORTH_SHOWING]
    worst = sorted(wasteful, key=_waste, reverse=True)[:_TRAFFIC_SHOWN]
    if not worst:
        return None
    return Group(Text("memory, counted on the PTX machine:", "dim"), *map(_line_of_traffic, worst))


def _waste(line: LineTraffic) -> float:
    return max(line.sectors_over_ideal, 1.0 + line.bank_conflicts_per_request)


def _line_of_traffic(line: LineTraffic) -> Text:
    return Text(f"  {Path(line.file).name}, {line.place}: {line.cost}")


def _measurement(measured: Measurement | None) -> RenderableType | None:
    if measured is None:
        return None
    rows = Table.grid(padding=(0, 2))
    rows.add_column(style="dim")
    rows.add_column()
    rows.add_row("timed", f"{arguments(measured.case)}; {measured.rounds} {measured.method}")
    rows.add_row("yours", f"{seconds(measured.seconds)}, {measured.bytes_per_second / 1e9:,.0f} GB/s")
    rows.add_row("speed of light", f"{measured.share_of_light:.1%} of it ({seconds(measured.light_seconds)})")
    rows.add_row("baseline", f"{seconds(measured.baseline_seconds)}, yours is {_times(measured.speedup)} as fast")
    if measured.of_reference is not None and measured.reference_seconds is not None:
        ratio = _times(measured.of_reference)
        rows.add_row("reference", f"{seconds(measured.reference_seconds)}, yours is {ratio} as fast")
    if measured.telemetry:
        rows.add_row("GPU", ", ".join(f"{name} {value:.0f}" for name, value in measured.telemetry.items()))
    return rows


def _times(ratio: Interval) -> str:
    return f"{ratio.median:.3f} ({ratio.low:.3f} to {ratio.high:.3f}) times"


def _ending(graded: Report, most: int) -> RenderableType:
    lines = Text.assemble(verdict(graded.verdict), f"  {graded.cause or graded.verdict.meaning}")
    if graded.stars:
        lines.append(f"  {stars(graded.stars, most)}", "yellow")
    for reason in graded.not_measured:
        lines.append(f"\nnot measured: {reason}", "dim")
    return lines


def _blamed(graded: Report, root: Path) -> Text:
    """The place in the source and its line."""
    where = f"  --> {place(graded.file, root)}" + (f":{graded.line}" if graded.line else "")
    return Text.assemble((where, "cyan"), _source_line(graded, root))


def _source_line(graded: Report, root: Path) -> str:
    try:
        text = (root / graded.file).read_text(encoding="utf-8", errors="replace").splitlines()[graded.line - 1]
    except (OSError, IndexError):
        return ""
    return f"\n{graded.line:5d} | {text}" if graded.line > 0 else ""
