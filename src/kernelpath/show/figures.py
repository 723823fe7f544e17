"""Keep the figures of texts equal to the measurements in results/.

A figure is a number with the expression that computes it, in a comment that neither Jupyter, nor the book, nor GitHub
shows:

    The gain is 3.0<!--= 100 * {week22/ladder/8192/tile order} / {week22/ladder/8192/overlapped store} - 100 | .1f -->%.

A path in braces names a number: a recording of notebooks.json and the keys of its value, or another file without
".json" and its keys. A step into a list is an index or, in a list of reports, the end of an exercise's name. A key may
contain slashes. "#0" is an object's first value, whatever its key is, and "#-1" its last. The expression has numbers,
+ - * / **, parentheses, min, max and abs. Behind the bar is a format of Python. `kp dev check` compares each number
with its expression; `kp dev tables` renews the numbers.
"""

from __future__ import annotations

import ast
import json
import operator
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernelpath.show import results

_COMMENT = re.compile(r"<!--= .*?-->")
_EXPRESSION = re.compile(r"<!--= (?P<expression>[^|<>]+?) \| (?P<format>[^|<>]+?) -->")
_NUMBER = re.compile(r"[^\s<>()\[\]|~≈$*\"\\]*\Z")
_MAX_DIGITS = 32  # of a number in front of a comment
_POSITION = re.compile(r"#(-?\d+)")
_PATH = re.compile(r"\{([^{}]+)\}")

# Matches the id of a cell as nbformat writes it: with an indentation of one space per level.
_CELL = re.compile(r'^   "id": "([^"]+)"', re.MULTILINE)

_OPERATORS: Mapping[type, Callable[..., float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Pow: operator.pow,
    ast.USub: operator.neg,
}
_FUNCTIONS: Mapping[str, Callable[..., float]] = {"min": min, "max": max, "abs": abs}


class FigureError(ValueError):
    """An expression that cannot be evaluated. The message says why."""


class Measurements:
    """The numbers in results/ by their paths."""

    def __init__(self, root: Path) -> None:
        folder = root / results.FOLDER
        recordings = results.recordings(folder / results.RECORDINGS)
        self._values: dict[str, Any] = {key: recording.value for key, recording in recordings.items()}
        for path in sorted(folder.glob("*.json")):
            if path.name != results.RECORDINGS:
                self._values[path.stem] = json.loads(path.read_text(encoding="utf-8"))

    def number(self, path: str) -> float:
        """Return the number at a path. Raises FigureError."""
        value = _descend(self._values, path.split("/"), path)
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise FigureError(f"{path!r} is not a number")
        return value

    def evaluate(self, expression: str) -> float:
        """Return the value of an expression. Raises FigureError."""
        python = _PATH.sub(lambda match: repr(float(self.number(match[1]))), expression)
        try:
            return _evaluate(ast.parse(python, mode="eval").body)
        except (SyntaxError, ZeroDivisionError, OverflowError) as error:
            raise FigureError(f"{expression!r} cannot be evaluated: {error}") from error

    def format(self, expression: str, specification: str) -> str:
        """Return the value of an expression as text. Raises FigureError."""
        try:
            return format(self.evaluate(expression), specification)
        except ValueError as error:
            raise error if isinstance(error, FigureError) else FigureError(f"{specification!r} is no format") from error


def _descend(value: Any, steps: Sequence[str], path: str) -> Any:
    if not steps:
        return value
    if isinstance(value, list):
        return _descend(_element(value, steps[0], path), steps[1:], path)
    if isinstance(value, dict):
        for count in range(len(steps), 0, -1):  # a key may contain slashes: the longest match wins
            key = "/".join(steps[:count])
            if key in value:
                return _descend(value[key], steps[count:], path)
        if (position := _POSITION.fullmatch(steps[0])) and -len(value) <= int(position[1]) < len(value):
            return _descend(list(value.values())[int(position[1])], steps[1:], path)
    raise FigureError(f"results/ has no {path!r}: nothing is at {steps[0]!r}")


def _element(elements: list[Any], step: str, path: str) -> Any:
    if step.isdecimal() and int(step) < len(elements):
        return elements[int(step)]
    for element in elements:
        if isinstance(element, dict) and str(element.get("exercise", "")).endswith(step):
            return element
    raise FigureError(f"results/ has no {path!r}: nothing is at {step!r}")


def _evaluate(node: ast.expr) -> float:
    # The expression comes from a text. Unlike eval(), this can run nothing but arithmetic.
    match node:
        case ast.Constant(value=int() | float() as number):
            return number
        case ast.UnaryOp(op=operation, operand=operand) if type(operation) in _OPERATORS:
            return _OPERATORS[type(operation)](_evaluate(operand))
        case ast.BinOp(left=left, op=operation, right=right) if type(operation) in _OPERATORS:
            return _OPERATORS[type(operation)](_evaluate(left), _evaluate(right))
        case ast.Call(func=ast.Name(id=name), args=arguments, keywords=[]) if name in _FUNCTIONS:
            return _FUNCTIONS[name](*map(_evaluate, arguments))
    raise FigureError(f"{ast.unparse(node)!r} is not allowed in a figure")


@dataclass(frozen=True)
class _Figure:
    """A number in a text and the comment behind it, whose expression is None if the comment has another form."""

    number: str
    start: int
    comment: str
    expression: str | None
    format: str


def _find_figures(text: str) -> Iterator[_Figure]:
    for comment in _COMMENT.finditer(text):
        number = _NUMBER.search(text[max(0, comment.start() - _MAX_DIGITS) : comment.start()])
        assert number is not None, "the pattern matches the empty text"
        parts = _EXPRESSION.fullmatch(comment[0])
        yield _Figure(
            number[0],
            comment.start() - len(number[0]),
            comment[0],
            parts["expression"] if parts else None,
            parts["format"] if parts else "",
        )


def renew(text: str, measurements: Measurements) -> str:
    """Return the text with the current number in front of each expression. Raises FigureError."""
    pieces = []
    end = 0
    for figure in _find_figures(text):
        if figure.expression is not None:
            pieces += [text[end : figure.start], measurements.format(figure.expression, figure.format), figure.comment]
            end = figure.start + len(figure.number) + len(figure.comment)
    return "".join([*pieces, text[end:]])


def stale(root: Path) -> Iterator[str]:
    """Yield a sentence for each figure that differs from its expression, with its file and its cell or line."""
    measurements = Measurements(root)
    for path in _texts(root):
        text = path.read_text(encoding="utf-8")
        for figure in _find_figures(text):
            place = f"{path.relative_to(root)}{_place(path, text, figure.start)}"
            if figure.expression is None:
                yield f"{place}: {figure.comment} is not a figure; write NUMBER<!--= EXPRESSION | FORMAT -->"
                continue
            try:
                number = measurements.format(figure.expression, figure.format)
            except FigureError as error:
                yield f"{place}: {error}"
                continue
            if figure.number != number:
                yield f"{place} says {figure.number or 'nothing'} where results/ has {number}; kp dev tables"


def _place(path: Path, text: str, position: int) -> str:
    """Return the line of a Markdown file, or the cell of a notebook."""
    if path.suffix == ".ipynb":
        cells = _CELL.findall(text, 0, position)
        return f", cell {cells[-1]}" if cells else ""
    return f":{text.count(chr(10), 0, position) + 1}"


def rewrite(root: Path) -> list[str]:
    """Renew the figures of all texts and of the book; return the names of changed files. Raises FigureError."""
    measurements = Measurements(root)
    changed = []
    for path in (*_texts(root), *sorted(root.glob("book/*/*.ipynb"))):
        text = path.read_text(encoding="utf-8")
        renewed = renew(text, measurements)
        if renewed != text:
            path.write_text(renewed, encoding="utf-8")
            changed.append(str(path.relative_to(root)))
    return changed


def _texts(root: Path) -> list[Path]:
    patterns = ("*.md", "docs/*.md", "notebooks/*.md", "notebooks/*/*.ipynb", "checks/**/*.md")
    return sorted(path for pattern in patterns for path in root.glob(pattern))
