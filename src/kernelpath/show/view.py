"""Renders for a terminal. A report is one line a case, the verdict with its cause and source line, one next step."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from kernelpath import words
from kernelpath.course.registry import Item
from kernelpath.verdict import WASTE, LineTraffic, Measurement, Report, Verdict

if TYPE_CHECKING:
    from kernelpath.doctor import Finding

LANES = {"cuda": "CUDA C++", "triton": "Triton", "cute": "CuTe DSL", "python": "Python"}

WIDE = 200
"""Columns from which on there is room for two things side by side, and of a terminal that is none."""

_UNDECIDED = (Verdict.NOT_STARTED, Verdict.UNAVAILABLE, Verdict.INCONCLUSIVE)
_TRAFFIC_SHOWN = 4
_PRINTED_LINES = 6


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
    """Print the one next step. A command that does not fit behind what is to be done first has a line of its own."""
    before, then, command = words.shown(text).rpartition(", then kp ")
    if then and len("next: ") + len(text) > console.width:
        text = f"{before}, then\n      kp {command}"
    console.print(Text.assemble("\n", ("next: ", "bold cyan"), words.shown(text)), soft_wrap=True)


def findings(console: Console, found: Sequence[Finding]) -> None:
    """What the doctor found: one line a thing, and under it what to do about it. Nothing is wrapped: it is copied."""
    width = max(len(one.what) for one in found)
    for one in found:
        works = ("yes", "green") if one.works else ("no ", "yellow")
        console.print(Text.assemble(works, f"  {one.what:{width}}  {one.detail}"), soft_wrap=True)
        if one.remedy:
            console.print(Text.assemble("     ", ("do: ", "cyan"), one.remedy), soft_wrap=True)


def verdict(value: Verdict) -> Text:
    style = "green" if value.passed else "yellow" if value in _UNDECIDED else "red"
    return Text(value.value, f"bold {style}")


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
        row: list[RenderableType] = [words.case(case.case), verdict(case.verdict), words.seconds(case.seconds)]
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
    cut = f" {words.count(len(lines), 'line')}; --json - gives all" if len(shown) < len(lines) else ""
    return Text.assemble((f"it printed{cut}:\n", "dim"), "\n".join(shown))


def _memory(traffic: Sequence[LineTraffic]) -> RenderableType | None:
    wasteful = [line for line in traffic if line.waste > WASTE]
    worst = sorted(wasteful, key=lambda line: line.waste, reverse=True)[:_TRAFFIC_SHOWN]
    if not worst:
        return None
    return Group(Text("memory, counted on the PTX machine:", "dim"), *map(_line_of_traffic, worst))


def _line_of_traffic(line: LineTraffic) -> Text:
    return Text(f"  {words.line(line.line, line.file)}, {line.access} {line.memory}: {line.cost}")


def _measurement(measured: Measurement | None) -> RenderableType | None:
    if measured is None:
        return None
    rows = Table.grid(padding=(0, 2))
    rows.add_column(style="dim")
    rows.add_column()
    rows.add_row("timed", f"{words.case(measured.case)}; {measured.rounds} {measured.method}")
    rows.add_row("yours", f"{words.seconds(measured.seconds)}, {words.bandwidth(measured.bytes_per_second)}")
    rows.add_row(
        "speed of light", f"{words.share(measured.share_of_light, 1)} of it ({words.seconds(measured.light_seconds)})"
    )
    rows.add_row("baseline", f"{words.seconds(measured.baseline_seconds)}, yours is {measured.speedup} times as fast")
    if measured.of_reference is not None and measured.reference_seconds is not None:
        found = f"{words.seconds(measured.reference_seconds)}, yours is {measured.of_reference} times as fast"
        rows.add_row("reference", found)
    if measured.telemetry:
        rows.add_row("GPU", ", ".join(f"{name} {value:.0f}" for name, value in measured.telemetry.items()))
    return rows


def _ending(graded: Report, most: int) -> RenderableType:
    lines = Text.assemble(verdict(graded.verdict), f"  {graded.cause or graded.verdict.meaning}")
    if graded.stars:
        lines.append(f"  {words.stars(graded.stars, most)}", "yellow")
    for reason in graded.not_measured:
        lines.append(f"\nnot measured: {reason}", "dim")
    return lines


def _blamed(graded: Report, root: Path) -> Text:
    """The place in the source and its line."""
    where = f"  --> {words.shown(words.path(graded.file, root))}" + (f":{graded.line}" if graded.line else "")
    return Text.assemble((where, "cyan"), _source_line(graded, root))


def _source_line(graded: Report, root: Path) -> str:
    try:
        text = (root / graded.file).read_text(encoding="utf-8", errors="replace").splitlines()[graded.line - 1]
    except (OSError, IndexError):
        return ""
    return f"\n{graded.line:5d} | {words.shown(text)}" if graded.line > 0 else ""
