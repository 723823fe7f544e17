"""Format numbers, places and cases the same way in terminals, pages, pictures, tables and verdicts."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

# The language of each lane.
LANES = {"cuda": "CUDA C++", "triton": "Triton", "cute": "CuTe DSL", "pallas": "Pallas", "python": "Python"}

_TIMES = (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6))


def seconds(value: float) -> str:
    """Return a duration with three digits in a suitable unit: "1.28 ms"."""
    value = float(f"{value:.3g}")
    unit, scale = next((unit_and_scale for unit_and_scale in _TIMES if value >= unit_and_scale[1]), ("ns", 1e-9))
    return f"{number(value / scale, 3)} {unit}"


def number(value: float, digits: int = 4) -> str:
    """Return a whole number in full, "1,048,576", and any other number with `digits` digits."""
    is_whole = isinstance(value, int) or abs(value) >= 10.0**digits
    return f"{value:,.0f}" if is_whole and abs(value) < 1e15 else f"{value:,.{digits}g}"


def count(quantity: int, noun: str) -> str:
    """Return a count with its noun: "1 sector", "1,024 sectors"."""
    return f"{quantity:,} {noun}" if quantity == 1 else f"{quantity:,} {noun}s"


# Matches a plural noun at the start of a unit, perhaps after another word: "divergent branches".
_PLURAL = re.compile(r"\A(?!trillion |times )((?:\w+ )?)(?!times\b)(\w{3,}?)(?:(?<=[cs][hs])e)?(?<!s)s\b")


# The unit of a speedup, perhaps with its object: "× faster than eager".
FASTER = "× faster"


def measured(value: float, unit: str) -> str:
    """Return a number and its unit, which is given in the plural: "4 wavefronts per load", "1 wavefront per load".

    A speedup below 1 is a slowdown: "1.25× slower than eager" for 0.8 and the unit "× faster than eager".
    """
    if unit.startswith(FASTER):
        return _speedup(value, unit.removeprefix(FASTER))
    singular = _PLURAL.sub(r"\1\2", unit)
    return f"{number(value)} {singular if value == 1 else unit}"


def _speedup(ratio: float, rest: str) -> str:
    if number(ratio) == "1":
        return f"no difference in speed{rest.replace(' than', ' from', 1)}"
    return f"{number(ratio)}{FASTER}{rest}" if ratio > 1 or ratio <= 0 else f"{number(1 / ratio)}× slower{rest}"


def share(value: float, decimals: int = 0) -> str:
    """Return a fraction as a percentage: "94%"."""
    return f"{value:.{decimals}%}"


def bandwidth(rate: float) -> str:
    """Return bytes per second: "4,400 GB/s"."""
    return f"{rate / 1e9:,.0f} GB/s"


def arithmetic(rate: float) -> str:
    """Return operations per second: "51.2 TFLOP/s"."""
    return f"{rate / 1e12:,.1f} TFLOP/s"


def ratio(median: float, low: float, high: float) -> str:
    """Return a ratio with its confidence interval: "3.670 (3.610 to 3.720)"."""
    return f"{exact(median)} ({span(low, high)})"


def exact(value: float) -> str:
    """Return a ratio with all measured digits: "3.670"."""
    return f"{value:.3f}"


def span(low: float, high: float) -> str:
    """Return a confidence interval: "3.610 to 3.720"."""
    return f"{exact(low)} to {exact(high)}"


def factor(value: float) -> str:
    """Return a short ratio: "3.67"."""
    return f"{value:.2f}"


def case(arguments: Mapping[str, Any]) -> str:
    """Return the arguments of a case: "rows=33 columns=1000"."""
    return " ".join(f"{name}={value}" for name, value in arguments.items())


def line(line_number: int, file: str = "") -> str:
    """Return a line of a source file: "line 14 of softmax.cu", or "line 14" without a file."""
    return f"line {line_number} of {Path(file).name}" if file else f"line {line_number}"


def path(file: str | Path, root: Path) -> str:
    """Return a path as a learner would type it: relative to the checkout at `root` if it is inside."""
    return str(Path(file).relative_to(root)) if Path(file).is_relative_to(root) else str(file)


def per_request(cost: float, unit: str, minimum: float) -> str:
    """Return the cost of each request of a warp: "32 sectors per request, its bytes fit in 4".

    The minimum does not say whether the lanes should request these bytes: one address for all of them needs one sector.
    """
    cost_text = f"{cost:.3g}"
    return f"{cost_text} {unit if cost_text == '1' else unit + 's'} per request, its bytes fit in {minimum:.3g}"


def taking_turns(atomics: float) -> str:
    """Return the cost of an atomic request with contention: "32 same-address atomics per request, which take turns"."""
    return f"{atomics:.3g} same-address atomics per request, which take turns"


def stars(reached: int, maximum: int = 3) -> str:
    """Return the stars reached, out of the maximum: "★★☆"."""
    return "★" * reached + "☆" * (maximum - reached)


# The characters that are shown of a text that a submission may have written.
MOST_CHARACTERS = 4000

# Matches characters that move a cursor, change a color or the writing direction, or cannot be encoded.
#
# Tab and new line are not matched.
_UNSEEN = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff"
    r"\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\U000e0000-\U000e007f]"
)


_EXPRESSION = re.compile(r"<!--= .*?-->")


def without_expressions(text: str) -> str:
    """Return Markdown without the comments that `show.figures` evaluates, for terminals and pages."""
    return _EXPRESSION.sub("", text)


def escaped(text: str) -> str:
    """Return a text that somebody else chose, with the characters of _UNSEEN as Python writes them: "\\x1b"."""
    return _UNSEEN.sub(lambda match: ascii(match[0])[1:-1], text)


def shown(text: str, max_characters: int = MOST_CHARACTERS) -> str:
    """Return a text that a submission may have written for a terminal or a page: cut in the middle, all characters
    visible.
    """
    if len(text) > max_characters:
        space = "\n" if "\n" in text else " "
        text = f"{text[: max_characters // 2]}{space}[…]{space}{text[-max_characters // 2 :]}"
    return _UNSEEN.sub("\N{REPLACEMENT CHARACTER}", text)
