"""Show a ladder: the first step whole, and of each further step the lines that differ from the step before."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from difflib import unified_diff

from rich.console import Console
from rich.text import Text

from kernelpath.course.ladder import LadderStep

_CONTEXT = 2
_STYLES = {"-": "red", "+": "green", " ": "", "@": "dim"}

# What a page shows between two places that differ.
_GAP = ("@", "···")


@dataclass(frozen=True)
class Rung:
    """A step as it is shown.

    Attributes:
        lines: Signs and texts: " " for a line of both steps, "-" and "+" for one of the step before and of this one,
            "@" between two places.
    """

    step: LadderStep
    lines: tuple[tuple[str, str], ...]


def rungs(steps: Iterable[LadderStep]) -> Iterator[Rung]:
    """Yield the steps as they are shown."""
    previous: LadderStep | None = None
    for step in steps:
        source = step.source.splitlines()
        if previous is None:
            yield Rung(step, tuple((" ", line) for line in source))
        else:
            # The first line is the idea, which stands above the lines.
            yield Rung(step, tuple(_differing_lines(previous.source.splitlines()[1:], source[1:])))
        previous = step


def _differing_lines(before: list[str], after: list[str]) -> Iterator[tuple[str, str]]:
    lines = unified_diff(before, after, n=_CONTEXT, lineterm="")
    for number, line in enumerate(lines):
        if number < 2:
            continue  # the names of the files
        if line.startswith("@@"):
            if number > 2:
                yield _GAP
            continue
        yield line[0], line[1:]


def write(console: Console, shown_rungs: Iterable[Rung]) -> None:
    """Print the steps. Signs repeat in black and white what colors show."""
    for rung in shown_rungs:
        console.print(Text(f"{rung.step.number} · {rung.step.idea}", "bold"), soft_wrap=True)
        console.print(Text(rung.step.path.name, "dim"), soft_wrap=True)
        for sign, line in rung.lines:
            console.print(Text(f"{' ' if sign == '@' else sign} {line}".rstrip(), _STYLES[sign]), soft_wrap=True)
        console.print()
