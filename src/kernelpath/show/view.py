"""Renders for a terminal. A report is one line per case, the verdict with its cause and source line, one next step."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from kernelpath import words
from kernelpath.course.registry import Item
from kernelpath.line_counters import WASTE
from kernelpath.show import network
from kernelpath.verdict import Measurement, NetworkTraffic, Report, Verdict

if TYPE_CHECKING:
    from kernelpath.doctor import Diagnosis

WIDE = 200
"""Columns from which on there is room for two things side by side; also taken without a terminal."""

_UNDECIDED = (Verdict.NOT_STARTED, Verdict.UNAVAILABLE, Verdict.INCONCLUSIVE)
_STYLES = {"good": "green", "warn": "yellow", "bad": "red"}
_TRAFFIC_SHOWN = 4
_PRINTED_LINES = 6


def report(console: Console, item: Item, graded: Report, *, explain: str = "", next_step: bool = True) -> None:
    """Print all of a report. `explain` is shown after a pass; `next_step` is left out where another report follows."""
    console.print(_header(item, graded))
    blocks: tuple[RenderableType | None, ...] = (
        _cases(graded),
        _printed(graded),
        _memory(graded),
        network_table(graded.network),
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


def page(item: Item, graded: Report, *, explain: str = "") -> str:
    """The same report as HTML, for a cell of a notebook."""
    from kernelpath.show import templates

    told, cut = printed(graded)
    return templates.render(
        "graded.html",
        item=item,
        about=about(item, graded),
        report=graded,
        compiling=compiling(graded),
        mood=mood,
        passed=Verdict.PASSED,
        printed=told,
        cut=cut,
        wasteful=wasteful(graded),
        network=network,
        measured=measurement(graded.measurement) if graded.measurement else [],
        explain=explain if graded.verdict.passed else "",
        blamed=blamed(graded, item.root),
    )


def step(console: Console, text: str) -> None:
    """Print the one next step. A command that does not fit behind what is to be done first has a line of its own."""
    before, then, command = words.shown(text).rpartition(", then kp ")
    if then and len("next: ") + len(text) > console.width:
        text = f"{before}, then\n      kp {command}"
    console.print(Text.assemble("\n", ("next: ", "bold cyan"), words.shown(text)), soft_wrap=True)


def findings(console: Console, found: Sequence[Diagnosis]) -> None:
    """What the doctor found: one line a thing, and under it what to do about it. Nothing is wrapped: it is copied."""
    width = max(len(one.what) for one in found)
    for one in found:
        works = ("yes", "green") if one.works else ("no ", "yellow")
        console.print(Text.assemble(works, f"  {one.what:{width}}  {one.detail}"), soft_wrap=True)
        if one.remedy:
            console.print(Text.assemble("     ", ("do: ", "cyan"), one.remedy), soft_wrap=True)


def verdict(value: Verdict) -> Text:
    return Text(value.value, f"bold {_STYLES[mood(value)]}")


def mood(value: Verdict) -> Literal["good", "warn", "bad"]:
    """What a verdict means to the learner; pages have a class of that name."""
    return "good" if value.passed else "warn" if value in _UNDECIDED else "bad"


def about(item: Item, graded: Report) -> str:
    """Where an exercise belongs, the seed, and what graded it; where no kernel is launched, no machine for kernels."""
    place = f"week {item.week}, {words.LANES[item.lane]}, seed {graded.seed}"
    return f"{place}, {graded.device}" if item.launches else place


def _header(item: Item, graded: Report) -> Text:
    """A line with the name, which fits in 80 columns, one with the title, and one with the device."""
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
    took = compiling(graded)
    others = [case for case in graded.cases if case.verdict not in (Verdict.PASSED, graded.verdict)]
    causes = [Text(f"{case.verdict.value} at {words.case(case.case)}: {case.cause}") for case in others]
    return Group(rows, *([Text(took, "dim")] if took else []), *causes)


def compiling(graded: Report) -> str:
    """What the compiler took of the cases' time; nothing where it was asked for nothing."""
    return f"compiling took {words.seconds(graded.compile_seconds)} of these times" if graded.compile_seconds else ""


def printed(graded: Report) -> tuple[str, str]:
    """The first and the last lines that the submission printed, each once (a case repeats what the one before said),
    and how much was left out."""
    lines = graded.printed.rstrip().splitlines()
    shown = list(dict.fromkeys(lines))
    if len(shown) > 2 * _PRINTED_LINES:
        shown = [*shown[:_PRINTED_LINES], "[…]", *shown[-_PRINTED_LINES:]]
    cut = f" {words.count(len(lines), 'line')}; --json - gives all" if len(shown) < len(lines) else ""
    return "\n".join(shown), cut


def _printed(graded: Report) -> RenderableType | None:
    shown, cut = printed(graded)
    return Text.assemble((f"it printed{cut}:\n", "dim"), shown) if shown else None


def wasteful(graded: Report) -> list[str]:
    """The lines of the source that waste most, worst first, each with its cost.

    Where the submission passed, a lane that works alone is no waste: its request cannot move less than a sector.
    """
    harmless = graded.verdict.passed
    found = [line for line in graded.traffic if line.waste > WASTE and not (harmless and line.at_the_least)]
    found.sort(key=lambda line: line.waste, reverse=True)
    return [
        f"{words.line(one.line, one.file)}, {one.access} {one.memory}: {one.cost}" for one in found[:_TRAFFIC_SHOWN]
    ]


def _memory(graded: Report) -> RenderableType | None:
    worst = wasteful(graded)
    if not worst:
        return None
    return Group(Text("memory, counted on the PTX machine:", "dim"), *(Text(f"  {line}") for line in worst))


def network_table(traffic: Sequence[NetworkTraffic]) -> RenderableType | None:
    """What ranks exchanged; None without ranks."""
    if not traffic:
        return None
    table = Table(box=None, pad_edge=False, header_style="dim")
    for heading in network.headings(traffic):
        table.add_column(heading, justify="left" if heading == "case" else "right", no_wrap=heading != "case")
    for row in network.rows(traffic):
        table.add_row(*row)
    return Group(Text(network.INTRODUCTION, "dim"), table)


def measurement(measured: Measurement) -> list[tuple[str, str]]:
    """What the clock said: a name and a sentence each."""
    rows = [
        ("timed", f"{words.case(measured.case)}; {measured.rounds} {measured.method}"),
        ("yours", f"{words.seconds(measured.seconds)}, {words.bandwidth(measured.bytes_per_second)}"),
        (
            "measured ceiling",
            f"{words.share(measured.share_of_light, 1)} of it ({words.seconds(measured.light_seconds)})",
        ),
        ("baseline", f"{words.seconds(measured.baseline_seconds)}, yours is {measured.speedup} times as fast"),
    ]
    if measured.of_reference is not None and measured.reference_seconds is not None:
        found = f"{words.seconds(measured.reference_seconds)}, yours is {measured.of_reference} times as fast"
        rows.append(("reference", found))
    if measured.telemetry:
        rows.append(("GPU", ", ".join(f"{name} {value:.0f}" for name, value in measured.telemetry.items())))
    return rows


def _measurement(measured: Measurement | None) -> RenderableType | None:
    if measured is None:
        return None
    rows = Table.grid(padding=(0, 2))
    rows.add_column(style="dim")
    for row in measurement(measured):
        rows.add_row(*row)
    return rows


def _ending(graded: Report, most: int) -> RenderableType:
    lines = Text.assemble(verdict(graded.verdict), f"  {graded.cause or graded.verdict.meaning}")
    if graded.stars:
        lines.append(f"  {words.stars(graded.stars, most)}", "yellow")
    for reason in graded.not_measured:
        lines.append(f"\nnot measured: {reason}", "dim")
    return lines


def blamed(graded: Report, root: Path) -> tuple[str, str]:
    """The place in the source that the verdict names, and its line; empty where it names no place."""
    if not graded.file:
        return "", ""
    where = words.shown(words.path(graded.file, root)) + (f":{graded.line}" if graded.line else "")
    return where, _source_line(graded, root)


def _blamed(graded: Report, root: Path) -> Text:
    where, line = blamed(graded, root)
    return Text.assemble((f"  --> {where}", "cyan"), f"\n{line}" if line else "")


def _source_line(graded: Report, root: Path) -> str:
    try:
        text = (root / graded.file).read_text(encoding="utf-8", errors="replace").splitlines()[graded.line - 1]
    except (OSError, IndexError):
        return ""
    return f"{graded.line:5d} | {words.shown(text)}" if graded.line > 0 else ""
