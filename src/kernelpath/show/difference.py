"""Two sources and what differs: side by side where the terminal has the room, else one below the other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import zip_longest

from rich.console import Console
from rich.table import Table
from rich.text import Text

WIDE = 120
"""Columns from which on two sources stand side by side."""

_CONTEXT = 2
_STYLES = {"-": "red", "+": "green", " ": "dim"}


@dataclass(frozen=True)
class Row:
    """A line of yours beside one of theirs; either may be absent. Each has its number, from 1, and its text."""

    yours: tuple[int, str] | None
    theirs: tuple[int, str] | None
    same: bool = False


def hunks(yours: str, theirs: str) -> Iterator[list[Row]]:
    """The places where two texts differ, with two lines of context around each."""
    left, right = yours.splitlines(), theirs.splitlines()
    matcher = SequenceMatcher(None, left, right, autojunk=False)
    for group in matcher.get_grouped_opcodes(_CONTEXT):
        rows: list[Row] = []
        for kind, a, b, c, d in group:
            ours, others = _numbered(left, a, b), _numbered(right, c, d)
            rows += [Row(*pair, same=kind == "equal") for pair in zip_longest(ours, others)]
        yield rows


def _numbered(lines: Sequence[str], first: int, last: int) -> list[tuple[int, str]]:
    return [(number + 1, lines[number]) for number in range(first, last)]


def show(console: Console, names: tuple[str, str], sources: tuple[str, str]) -> None:
    """Print what differs. names: of the two sources. Signs say in black and white what colors say, too."""
    found = list(hunks(*sources))
    if not found:
        console.print(Text(f"{names[0]} and {names[1]} are the same", "dim"), soft_wrap=True)
        return
    if console.width >= WIDE:
        _beside(console, names, found)
        return
    for name, style in zip(names, ("red", "green"), strict=True):
        console.print(Text(f"{'-' if style == 'red' else '+'} {name}", f"bold {style}"), soft_wrap=True)
    for rows in found:
        console.print(Text("···", "dim"))
        _below(console, rows)


def _beside(console: Console, names: tuple[str, str], found: Sequence[Sequence[Row]]) -> None:
    grid = Table(box=None, pad_edge=False, expand=True, padding=(0, 1))
    for name, style in zip(names, ("red", "green"), strict=True):
        grid.add_column(Text(name, f"bold {style}"), ratio=1, overflow="fold")
    for rows in found:
        grid.add_row(Text("···", "dim"), Text("···", "dim"))
        for row in rows:
            signs = (" ", " ") if row.same else ("-", "+")
            grid.add_row(*(_line(sign, side) for sign, side in zip(signs, (row.yours, row.theirs), strict=True)))
    console.print(grid)


def _below(console: Console, rows: Sequence[Row]) -> None:
    """Lines that differ together: all of yours, then all of theirs."""
    yours: list[Text] = []
    theirs: list[Text] = []
    for row in rows:
        if row.same:
            console.print(*_flushed(yours, theirs), _line(" ", row.theirs), sep="\n", soft_wrap=True)
            continue
        yours += [_line("-", row.yours)] if row.yours else []
        theirs += [_line("+", row.theirs)] if row.theirs else []
    if rest := _flushed(yours, theirs):
        console.print(*rest, sep="\n", soft_wrap=True)


def _flushed(*kept: list[Text]) -> list[Text]:
    flushed = [line for lines in kept for line in lines]
    for lines in kept:
        lines.clear()
    return flushed


def _line(sign: str, side: tuple[int, str] | None) -> Text:
    return Text(f"{sign} {side[0]:4d}  {side[1]}" if side else "", _STYLES[sign])
