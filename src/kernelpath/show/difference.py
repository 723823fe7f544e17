"""Print the differences of two sources, side by side if the terminal is wide enough, else one below the other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import zip_longest

from rich.console import Console
from rich.table import Table
from rich.text import Text

# The terminal width from which on two sources are shown side by side.
MIN_SIDE_BY_SIDE_WIDTH = 120

_CONTEXT = 2
_STYLES = {"-": "red", "+": "green", " ": "dim"}


@dataclass(frozen=True)
class LinePair:
    """A line of the learner's source and a line of the other source, either of which may be absent.

    Each has its number, from 1, and its text.
    """

    yours: tuple[int, str] | None
    theirs: tuple[int, str] | None
    same: bool = False


def hunks(yours: str, theirs: str) -> Iterator[list[LinePair]]:
    """Yield the places where two texts differ, with two lines of context around each."""
    left = yours.splitlines()
    right = theirs.splitlines()
    # difflib's heuristic for junk would not match lines that are frequent in a long file, such as closing braces.
    matcher = SequenceMatcher(None, left, right, autojunk=False)
    for group in matcher.get_grouped_opcodes(_CONTEXT):
        rows: list[LinePair] = []
        for kind, left_start, left_end, right_start, right_end in group:
            left_lines = _numbered(left, left_start, left_end)
            right_lines = _numbered(right, right_start, right_end)
            rows += [LinePair(*pair, same=kind == "equal") for pair in zip_longest(left_lines, right_lines)]
        yield rows


def _numbered(lines: Sequence[str], first: int, last: int) -> list[tuple[int, str]]:
    return [(number + 1, lines[number]) for number in range(first, last)]


def show(console: Console, names: tuple[str, str], sources: tuple[str, str]) -> None:
    """Print the differences of two sources with these names. Signs repeat in black and white what colors show."""
    groups = list(hunks(*sources))
    if not groups:
        console.print(Text(f"{names[0]} and {names[1]} are the same", "dim"), soft_wrap=True)
        return
    if console.width >= MIN_SIDE_BY_SIDE_WIDTH:
        _print_side_by_side(console, names, groups)
        return
    for name, style in zip(names, ("red", "green"), strict=True):
        console.print(Text(f"{'-' if style == 'red' else '+'} {name}", f"bold {style}"), soft_wrap=True)
    for rows in groups:
        console.print(Text("···", "dim"))
        _print_unified(console, rows)


def _print_side_by_side(console: Console, names: tuple[str, str], groups: Sequence[Sequence[LinePair]]) -> None:
    grid = Table(box=None, pad_edge=False, expand=True, padding=(0, 1))
    for name, style in zip(names, ("red", "green"), strict=True):
        grid.add_column(Text(name, f"bold {style}"), ratio=1, overflow="fold")
    for rows in groups:
        grid.add_row(Text("···", "dim"), Text("···", "dim"))
        for row in rows:
            signs = (" ", " ") if row.same else ("-", "+")
            grid.add_row(*(_line(sign, side) for sign, side in zip(signs, (row.yours, row.theirs), strict=True)))
    console.print(grid)


def _print_unified(console: Console, rows: Sequence[LinePair]) -> None:
    """Print lines that differ together: all of yours, then all of theirs."""
    yours: list[Text] = []
    theirs: list[Text] = []
    for row in rows:
        if row.same:
            console.print(*_pop_lines(yours, theirs), _line(" ", row.theirs), sep="\n", soft_wrap=True)
            continue
        yours += [_line("-", row.yours)] if row.yours else []
        theirs += [_line("+", row.theirs)] if row.theirs else []
    if remaining := _pop_lines(yours, theirs):
        console.print(*remaining, sep="\n", soft_wrap=True)


def _pop_lines(*line_lists: list[Text]) -> list[Text]:
    popped = [line for lines in line_lists for line in lines]
    for lines in line_lists:
        lines.clear()
    return popped


def _line(sign: str, side: tuple[int, str] | None) -> Text:
    return Text(f"{sign} {side[0]:4d}  {side[1]}" if side else "", _STYLES[sign])
