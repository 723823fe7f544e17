"""Render reports for a terminal: a line per case, the verdict with its cause and source line, and one next step."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from kernelpath import words
from kernelpath.course.registry import ExerciseRef
from kernelpath.line_counters import WASTE, CallCounts
from kernelpath.show import datasheet, network
from kernelpath.verdict import Measurement, NetworkTraffic, Report, Verdict

if TYPE_CHECKING:
    from kernelpath.doctor import Diagnosis


# The terminal width from which on two tables fit side by side; also the width without a terminal.
WIDE_COLUMNS = 200

_UNDECIDED = (Verdict.NOT_STARTED, Verdict.UNAVAILABLE, Verdict.INCONCLUSIVE)
_STYLES = {"good": "green", "warn": "yellow", "bad": "red"}
_MAX_TRAFFIC_LINES = 4
_MAX_PRINTED_LINES = 6


# A notebook folds the explanation away. A terminal can only warn about it.
_EXPLANATION_TITLE = "What an expert would do next (it answers some predictions that follow in the notebook)"


def report(console: Console, item: ExerciseRef, graded: Report, *, explain: str = "", next_step: bool = True) -> None:
    """Print a whole report.

    Args:
        explain: Printed after a pass.
        next_step: Print the next step; False if another report follows.
    """
    console.print(_header(item, graded))
    blocks: tuple[RenderableType | None, ...] = (
        _cases(graded),
        _printed(graded),
        _memory(graded),
        network_table(graded.network),
        _measurement(graded),
        _format_verdict(graded, item.stars),
        _explanation(explain) if graded.verdict.passed and explain else None,
    )
    for block in blocks:
        if block is not None:
            console.print()
            console.print(block)
    if graded.file:
        console.print(_format_location(graded, item.root), soft_wrap=True)
    if next_step:
        step(console, graded.next_step)


def _explanation(explain: str) -> Text:
    return Text.assemble((_EXPLANATION_TITLE, "bold"), f"\n\n{explain}")


def page(item: ExerciseRef, graded: Report, *, explain: str = "", fold_times: bool = False) -> str:
    """Return the report as HTML for a cell of a notebook.

    Args:
        fold_times: Fold the measured times, which answer predictions of the notebook.
    """
    from kernelpath.show import templates

    printed_text, note = shorten_printed(graded)
    return templates.render(
        "graded.html",
        item=item,
        about=describe_context(item, graded),
        report=graded,
        compiling=describe_compiling(graded),
        mood=mood,
        passed=Verdict.PASSED,
        printed=printed_text,
        cut=note,
        wasteful=wasteful_lines(graded),
        network=network,
        measured=measurement(graded.measurement, graded.device) if graded.measurement else [],
        explain=explain if graded.verdict.passed else "",
        fold_times=fold_times,
        blamed=source_location(graded, item.root),
    )


def step(console: Console, text: str) -> None:
    """Print the next step. A long command that follows another action is printed on a line of its own."""
    # A command is copied from the terminal, so it must not be broken in the middle.
    action, separator, command = words.shown(text).rpartition(", then kp ")
    if separator and len("next: ") + len(text) > console.width:
        text = f"{action}, then\n      kp {command}"
    console.print(Text.assemble("\n", ("next: ", "bold cyan"), words.shown(text)), soft_wrap=True)


def findings(console: Console, findings: Sequence[Diagnosis]) -> None:
    """Print a line for each thing that the doctor checked, and what to do about it. Lines can be copied unwrapped."""
    width = max(len(finding.what) for finding in findings)
    for finding in findings:
        works = ("yes", "green") if finding.works else ("no ", "yellow")
        console.print(Text.assemble(works, f"  {finding.what:{width}}  {finding.detail}"), soft_wrap=True)
        if finding.remedy:
            console.print(Text.assemble("     ", ("do: ", "cyan"), finding.remedy), soft_wrap=True)


def verdict(value: Verdict) -> Text:
    return Text(value.value, f"bold {_STYLES[mood(value)]}")


def mood(value: Verdict) -> Literal["good", "warn", "bad"]:
    """Return the kind of a verdict, which pages use as a CSS class."""
    if value.passed:
        return "good"
    return "warn" if value in _UNDECIDED else "bad"


def describe_context(item: ExerciseRef, graded: Report) -> str:
    """Return an exercise's place in the course, the seed and, if it launches kernels, the device."""
    place = f"week {item.week}, {words.LANES[item.lane]}, seed {graded.seed}"
    return f"{place}, {graded.device}" if item.launches else place


def _header(item: ExerciseRef, graded: Report) -> Text:
    """Return a line with the name, which fits in 80 columns, a line with the title, and a line with the device."""
    place = f"  week {item.week}, {words.LANES[item.lane]}, seed {graded.seed}"
    device = f"\n{graded.device}" if item.launches else ""
    return Text.assemble((item.name, "bold"), (place, "dim"), f"\n{graded.title}", (device, "dim"))


def _cases(graded: Report) -> Group | None:
    if not graded.cases:
        return None
    rows = Table.grid(padding=(0, 2))
    rows.add_column(overflow="fold")
    rows.add_column(no_wrap=True)
    rows.add_column(justify="right", no_wrap=True, style="dim")
    for case in graded.cases:
        rows.add_row(words.case(case.case), verdict(case.verdict), words.seconds(case.seconds))
    compile_note = describe_compiling(graded)
    failing_cases = [case for case in graded.cases if case.verdict not in (Verdict.PASSED, graded.verdict)]
    causes = [Text(f"{case.verdict.value} at {words.case(case.case)}: {case.cause}") for case in failing_cases]
    return Group(rows, *([Text(compile_note, "dim")] if compile_note else []), *causes)


def describe_compiling(graded: Report) -> str:
    """Return how much of the cases' time the compiler took, or "" if nothing was compiled."""
    return f"compiling took {words.seconds(graded.compile_seconds)} of these times" if graded.compile_seconds else ""


def shorten_printed(graded: Report) -> tuple[str, str]:
    """Return the first and last distinct lines that the submission printed, and how much was left out.

    A repeated line is kept once, since each case prints the same.
    """
    lines = graded.printed.rstrip().splitlines()
    kept_lines = list(dict.fromkeys(lines))
    # Both ends are kept: the first lines tell what began, the last ones how it ended.
    if len(kept_lines) > 2 * _MAX_PRINTED_LINES:
        kept_lines = [*kept_lines[:_MAX_PRINTED_LINES], "[…]", *kept_lines[-_MAX_PRINTED_LINES:]]
    note = f" {words.count(len(lines), 'line')}; --json - gives all" if len(kept_lines) < len(lines) else ""
    return "\n".join(kept_lines), note


def _printed(graded: Report) -> RenderableType | None:
    text, note = shorten_printed(graded)
    return Text.assemble((f"it printed{note}:\n", "dim"), text) if text else None


def wasteful_lines(graded: Report) -> list[str]:
    """Return the lines of the source with the most wasted traffic, worst first, each with its cost.

    If the submission passed, a single active lane is no waste: its request cannot move less than a sector.
    """
    has_passed = graded.verdict.passed
    lines = [line for line in graded.traffic if line.waste > WASTE and not (has_passed and line.at_the_least)]
    lines.sort(key=lambda line: line.waste, reverse=True)
    return [
        f"{words.line(line.line, line.file)}, {line.access} {line.memory}: {line.cost}"
        for line in lines[:_MAX_TRAFFIC_LINES]
    ]


def _memory(graded: Report) -> RenderableType | None:
    worst = wasteful_lines(graded)
    if not worst:
        return None
    return Group(Text("memory, counted on the PTX machine:", "dim"), *(Text(f"  {line}") for line in worst))


def network_table(traffic: Sequence[NetworkTraffic]) -> RenderableType | None:
    """Return a table of the ranks' traffic, or None without ranks."""
    if not traffic:
        return None
    table = Table(box=None, pad_edge=False, header_style="dim")
    for heading in network.headings(traffic):
        table.add_column(heading, justify="left" if heading == "case" else "right", no_wrap=heading != "case")
    for row in network.rows(traffic):
        table.add_row(*row)
    return Group(Text(network.INTRODUCTION, "dim"), table)


def measurement(measured: Measurement, device: str) -> list[tuple[str, str]]:
    """Return the rows of a measurement on a GPU: a name and a sentence each."""
    copy_share = datasheet.copy_share(measured)
    of_copy = "" if copy_share is None else f"; {words.share(copy_share, 1)} of a copy's bandwidth"
    rows = [
        ("timed", f"{words.case(measured.case)}; {measured.rounds} {measured.method}"),
        ("yours", f"{words.seconds(measured.seconds)}, {words.bandwidth(measured.bytes_per_second)}"),
        (
            "measured ceiling",
            f"{words.share(measured.share_of_light, 1)} of it ({words.seconds(measured.light_seconds)}){of_copy}",
        ),
    ]
    sheet = datasheet.find(device)
    if sheet is not None and (peak := datasheet.peak(measured, sheet)):
        rows.append(("theoretical peak", f"{words.share(peak[0], 1)} of the data sheet's {peak[1]}"))
    rows.append(("baseline", f"{words.seconds(measured.baseline_seconds)}, speedup {measured.speedup}"))
    if measured.of_reference is not None and measured.reference_seconds is not None:
        rows.append(("reference", f"{words.seconds(measured.reference_seconds)}, speedup {measured.of_reference}"))
    if measured.telemetry:
        rows.append(("GPU", ", ".join(f"{name} {value:.0f}" for name, value in measured.telemetry.items())))
    return rows


def _measurement(graded: Report) -> RenderableType | None:
    if graded.measurement is None:
        return None
    rows = Table.grid(padding=(0, 2))
    rows.add_column(style="dim")
    for row in measurement(graded.measurement, graded.device):
        rows.add_row(*row)
    return rows


def _format_verdict(graded: Report, max_stars: int) -> RenderableType:
    lines = Text.assemble(verdict(graded.verdict), f"  {graded.cause or graded.verdict.meaning}")
    if graded.stars:
        lines.append(f"  {words.stars(graded.stars, max_stars)}", "yellow")
    for reason in graded.not_measured:
        lines.append(f"\nnot measured: {reason}", "dim")
    return lines


def source_location(graded: Report, root: Path) -> tuple[str, str]:
    """Return the place in the source that the verdict names, and the text of that line; empty strings without one."""
    if not graded.file:
        return "", ""
    location = words.shown(words.path(graded.file, root)) + (f":{graded.line}" if graded.line else "")
    return location, _source_line(graded, root)


def _format_location(graded: Report, root: Path) -> Text:
    location, line = source_location(graded, root)
    return Text.assemble((f"  --> {location}", "cyan"), f"\n{line}" if line else "")


def _source_line(graded: Report, root: Path) -> str:
    try:
        text = (root / graded.file).read_text(encoding="utf-8", errors="replace").splitlines()[graded.line - 1]
    except (OSError, IndexError):
        return ""
    return f"{graded.line:5d} | {words.shown(text)}" if graded.line > 0 else ""


Counter = Callable[[CallCounts], float]

# The counters of a call by their headings. Elements are those of the outputs, instructions those of warps.
COUNTERS: dict[str, Counter] = {
    "bytes per element": lambda counts: counts.bytes / counts.elements,
    "requests per 1000 elements": lambda counts: 1000 * counts.requests / counts.elements,
    "wavefronts per 1000 elements": lambda counts: 1000 * counts.wavefronts / counts.elements,
    "instructions per element": lambda counts: counts.instructions / counts.elements,
}

# What would be gained where a counter is the largest difference.
_GAINS = {
    "bytes per element": "a kernel that memory limits would take less time by that factor",
    "requests per 1000 elements": "wider accesses save instructions, and keep more bytes in flight",
    "wavefronts per 1000 elements": "more outputs per thread, wider reads, or no conflicts relieve shared memory",
    "instructions per element": "fewer of them leave the schedulers more time for the rest",
}

# The factor from which on a counter differs.
MIN_DIFFERENCE = 1.1


def counts_table(counts_by_label: Mapping[str, CallCounts]) -> Table:
    """Return a table with a row for each counter and a column for each kernel."""
    rows = Table(box=None, pad_edge=False, header_style="bold")
    rows.add_column("counted on the PTX machine")
    for label in counts_by_label:
        rows.add_column(label, justify="right")
    for heading, counter in COUNTERS.items():
        rows.add_row(heading, *(words.number(counter(counts), 3) for counts in counts_by_label.values()))
    return rows


def describe_gain(yours: CallCounts, reference: CallCounts) -> str:
    """Say in one sentence which counter separates two kernels most, and what would be gained there."""
    ratios = {
        heading: counter(yours) / counter(reference) for heading, counter in COUNTERS.items() if counter(reference)
    }
    heading = max(ratios, key=lambda heading: ratios[heading])
    # Differences below 10% come from tails and loop overhead, not from another algorithm.
    if ratios[heading] < MIN_DIFFERENCE:
        return (
            "By these counts there is nothing left to gain. What still separates the kernels is waiting, which only a "
            "GPU shows."
        )
    noun = heading.partition(" per ")[0]
    return f"Yours needs {ratios[heading]:.3g}× the {noun} of the reference: {_GAINS[heading]}."


ReportStep = Callable[[str], None]


@contextmanager
def show_working(console: Console, label: str, last_seconds: float | None = None) -> Iterator[ReportStep]:
    """Yield a function to call with the name of each step.

    Args:
        last_seconds: The seconds that the same work took the last time.
    """
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task(label)
        last_duration = f" (about {format_duration(last_seconds)} last time)" if last_seconds else ""

        def report_step(step: str) -> None:
            progress.update(task, description=f"{label}: {step}{last_duration}")

        yield report_step


class TaskSequence:
    """Count tasks that run one after another, and estimate the remaining time."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._done = 0
        self._start = time.monotonic()

    def next(self, name: str) -> str:
        """Return the label of the next task: "3 of 18, about 4 min left: transpose"."""
        # The mean of the finished tasks is a fair guess: exercises differ, but the error shrinks as the rest does.
        seconds_per_task = (time.monotonic() - self._start) / self._done if self._done else 0.0
        estimate = (
            f", about {format_duration(seconds_per_task * (self._count - self._done))} left" if self._done else ""
        )
        self._done += 1
        return f"{self._done} of {self._count}{estimate}: {name}" if self._count > 1 else name


def format_duration(seconds: float) -> str:
    """Format a duration roughly: "8 s", "4 min"."""
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"
