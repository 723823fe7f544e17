"""How numbers, places and cases are written, the same in terminals, pages, pictures, tables and verdicts."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

LANES = {"cuda": "CUDA C++", "triton": "Triton", "cute": "CuTe DSL", "pallas": "Pallas", "python": "Python"}
"""What each lane is written in."""

_TIMES = (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6))


def seconds(value: float) -> str:
    """A duration to three digits in the unit that a reader of timings expects: "1.28 ms"."""
    value = float(f"{value:.3g}")
    unit, scale = next((time for time in _TIMES if value >= time[1]), ("ns", 1e-9))
    return f"{number(value / scale, 3)} {unit}"


def number(value: float, digits: int = 4) -> str:
    """A whole number in full, "1,048,576", and another one to so many digits."""
    whole = isinstance(value, int) or abs(value) >= 10.0**digits
    return f"{value:,.0f}" if whole and abs(value) < 1e15 else f"{value:,.{digits}g}"


def count(things: int, noun: str) -> str:
    """A count with its noun: "1 sector", "1,024 sectors"."""
    return f"{things:,} {noun}" if things == 1 else f"{things:,} {noun}s"


_PLURAL = re.compile(r"\A(?!trillion |times )((?:\w+ )?)(?!times\b)(\w{3,}?)(?:(?<=[cs][hs])e)?(?<!s)s\b")
"""A noun in the plural that a unit begins with, perhaps after one other word: "divergent branches"."""


def measured(value: float, unit: str) -> str:
    """A number and its unit, which is given in the plural: "4 wavefronts per load", "1 wavefront per load"."""
    one = _PLURAL.sub(r"\1\2", unit)
    return f"{number(value)} {one if value == 1 else unit}"


def share(value: float, decimals: int = 0) -> str:
    """A share of 1 as a percentage: "94%"."""
    return f"{value:.{decimals}%}"


def bandwidth(rate: float) -> str:
    """Bytes per second: "4,400 GB/s"."""
    return f"{rate / 1e9:,.0f} GB/s"


def arithmetic(rate: float) -> str:
    """Operations per second: "51.2 TFLOP/s"."""
    return f"{rate / 1e12:,.1f} TFLOP/s"


def ratio(median: float, low: float, high: float) -> str:
    """A ratio with its confidence interval: "3.670 (3.610 to 3.720)"."""
    return f"{exact(median)} ({span(low, high)})"


def exact(value: float) -> str:
    """A ratio as it was measured: "3.670"."""
    return f"{value:.3f}"


def span(low: float, high: float) -> str:
    """A confidence interval: "3.610 to 3.720"."""
    return f"{exact(low)} to {exact(high)}"


def factor(value: float) -> str:
    """A ratio in short: "3.67"."""
    return f"{value:.2f}"


def case(arguments: Mapping[str, Any]) -> str:
    """The arguments of a case: "rows=33 columns=1000"."""
    return " ".join(f"{name}={value}" for name, value in arguments.items())


def line(of: int, file: str = "") -> str:
    """A line of a source file: "line 14 of softmax.cu", or "line 14" where the file goes without saying."""
    return f"line {of} of {Path(file).name}" if file else f"line {of}"


def path(file: str | Path, root: Path) -> str:
    """A path as a learner would type it: relative to the checkout at `root` if it lies inside."""
    return str(Path(file).relative_to(root)) if Path(file).is_relative_to(root) else str(file)


def per_request(found: float, unit: str, least: float) -> str:
    """What each request of a warp costs: "32 sectors per request, its bytes fit in 4".

    Whether the lanes should ask for these bytes is another matter: one address for all of them needs a single sector.
    """
    cost = f"{found:.3g}"
    return f"{cost} {unit if cost == '1' else unit + 's'} per request, its bytes fit in {least:.3g}"


def taking_turns(found: float) -> str:
    """What an atomic request costs when its lanes meet: "32 same-address atomics per request, which take turns"."""
    return f"{found:.3g} same-address atomics per request, which take turns"


def stars(reached: int, most: int = 3) -> str:
    """The stars reached, out of the most that there are: "★★☆"."""
    return "★" * reached + "☆" * (most - reached)


MOST_CHARACTERS = 4000
"""Of a text that a submission may have written."""

_UNSEEN = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff"
    r"\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\U000e0000-\U000e007f]"
)
"""What moves a cursor, changes a color or the direction of writing, or cannot be written; tab and new line stay."""


def escaped(text: str) -> str:
    """A text that somebody else chose, with what moves a cursor or cannot be written as Python writes it: "\\x1b"."""
    return _UNSEEN.sub(lambda found: ascii(found[0])[1:-1], text)


def shown(text: str, most: int = MOST_CHARACTERS) -> str:
    """A text that a submission may have written, as a terminal or page may show it: cut in the middle, all visible."""
    if len(text) > most:
        space = "\n" if "\n" in text else " "
        text = f"{text[: most // 2]}{space}[…]{space}{text[-most // 2 :]}"
    return _UNSEEN.sub("\N{REPLACEMENT CHARACTER}", text)
