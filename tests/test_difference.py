"""Test the display of differences between two sources, in both layouts."""

from __future__ import annotations

import io

from rich.console import Console

from kernelpath.show import difference
from kernelpath.show.difference import LinePair

YOURS = "a\nb\nc\nd\ne\nf\ng\nh\n"
THEIRS = "a\nb\nc\nD\nDD\ne\nf\ng\nh\n"


def render_difference(width: int, theirs: str = THEIRS) -> list[str]:
    console = Console(file=io.StringIO(), width=width)
    difference.show(console, ("mine.py", "ours.py"), (YOURS, theirs))
    assert isinstance(console.file, io.StringIO)
    return [line.rstrip() for line in console.file.getvalue().splitlines()]


def test_a_hunk_has_line_numbers_and_two_lines_of_context() -> None:
    (rows,) = difference.hunks(YOURS, THEIRS)
    assert rows == [
        LinePair((2, "b"), (2, "b"), same=True),
        LinePair((3, "c"), (3, "c"), same=True),
        LinePair((4, "d"), (4, "D")),
        LinePair(None, (5, "DD")),
        LinePair((5, "e"), (6, "e"), same=True),
        LinePair((6, "f"), (7, "f"), same=True),
    ]


def test_at_80_columns_your_lines_precede_their_lines() -> None:
    changed_lines = [line for line in render_difference(80)[2:] if line[:1] in "+-"]
    assert changed_lines == ["-    4  d", "+    4  D", "+    5  DD"]


def test_at_120_columns_the_sources_are_side_by_side() -> None:
    lines = render_difference(120)
    row = next(line for line in lines if line.startswith("-    4  d"))
    assert row.split() == ["-", "4", "d", "+", "4", "D"]
    assert not any(line.startswith("+") for line in lines)


def test_a_long_line_is_not_truncated_at_80_columns() -> None:
    long = "D" * 100
    assert f"+    4  {long}" in render_difference(80, YOURS.replace("d", long))


def test_equal_sources_are_reported_as_equal() -> None:
    assert render_difference(80, YOURS) == ["mine.py and ours.py are the same"]
