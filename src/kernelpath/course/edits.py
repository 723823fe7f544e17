"""Count the statements by which a program differs from another one, whatever the layout of its lines."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeGuard

from kernelpath.files import blank_comments

# The table of a submission that names the faults. It is not part of the program.
CAUSES = "CAUSES"

# Matches the comment in front of each kernel of a file, with its name.
_SECTION = re.compile(r"(?://|#) -{4,} (\w+)")

# Matches behind the end of a statement. Neither `{}` nor the last semicolon of a text of inline assembly ends one.
_END = re.compile(r"(?<=\{)(?!\})|(?<=\})(?<!\{\})|(?<=;)(?!\\*[n\"'\\])")

# The pairs of statements that are compared, at most.
_MAX_PAIRS = 4_000_000


class Unreadable(Exception):
    """A program has a syntax error, or is far longer than the program that it is compared with."""


@dataclass(frozen=True)
class Statement:
    """A statement of a program.

    Attributes:
        text: The statement without blanks.
        section: The name in the last section comment before it; empty before the first one.
        line: Its line.
    """

    text: str
    section: str
    line: int


def is_causes_table(node: ast.stmt) -> TypeGuard[ast.Assign | ast.AnnAssign]:
    """Return whether a statement assigns the table of faults."""
    return isinstance(node, (ast.Assign, ast.AnnAssign)) and CAUSES in ast.unparse(node).partition("=")[0]


def split_statements(source: str, suffix: str) -> list[Statement]:
    """Return the statements of a program. A compound statement counts as its header and the statements of its body.

    Whatever a statement contains counts as well: the body of a lambda, the statements of a macro, and the instructions
    of inline assembly. Otherwise one statement could hold a whole kernel.

    Args:
        source: The program.
        suffix: ".py" or ".cu".

    Raises:
        Unreadable: The program has a syntax error.
    """
    sections = {
        number: match[1] for number, text in enumerate(source.splitlines(), 1) if (match := _SECTION.match(text))
    }
    pieces = _split_python(source) if suffix == ".py" else _split_cuda(source)
    statements = []
    for line, text in pieces:
        start = max((start for start in sections if start < line), default=0)
        section = sections.get(start, "")
        statements.append(Statement("".join(text.split()), section, line))
    return statements


def _split_python(source: str) -> list[tuple[int, str]]:
    """Return the lines that ast.unparse writes: a line per statement, without comments and docstrings."""
    try:
        module = ast.parse(source)
        pieces = []
        for node in module.body:
            if is_causes_table(node):
                continue
            for inner in ast.walk(node):
                body = getattr(inner, "body", None)
                if isinstance(body, list):
                    inner.body = [child for child in body if not _is_text(child)] or [ast.Pass()]  # type: ignore[attr-defined]
            if not _is_text(node):
                lines = ast.unparse(node).splitlines()
                pieces += [(node.lineno, piece) for text in lines for piece in _END.split(text) if piece.strip()]
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise Unreadable(f"it cannot be parsed: {error}") from None
    return pieces


def _is_text(node: ast.stmt) -> bool:
    """Return whether a statement is a docstring."""
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def _split_cuda(source: str) -> list[tuple[int, str]]:
    """Return what ends at a semicolon or a brace, and the lines of the preprocessor up to these."""
    pieces = []
    piece, start = "", 0
    for line, text in enumerate(blank_comments(source).splitlines(), 1):
        if not piece.strip():
            start = line
        is_directive = not piece.strip() and text.lstrip().startswith("#")
        *ended, rest = _END.split(f"{piece}{text} ")
        pieces += [(line if index else start, text) for index, text in enumerate(ended) if text.strip()]
        if ended:
            start = line
        piece = rest
        if is_directive and rest.strip():
            pieces.append((line, rest))
            piece = ""
    if piece.strip():
        pieces.append((start, piece))
    return pieces


def count_changes(before: Sequence[Statement], after: Sequence[Statement]) -> Counter[str]:
    """Return the fewest statements to change, to add or to remove, by the section of the first program.

    Raises:
        Unreadable: The second program is too long to be compared.
    """
    old, new = list(before), list(after)
    # Equal ends cost nothing to skip, and the table has the product of both lengths as its size.
    while old and new and old[-1].text == new[-1].text:
        old.pop()
        new.pop()
    common = 0
    while common < min(len(old), len(new)) and old[common].text == new[common].text:
        common += 1
    # Statements that are added in front of everything else belong to the section that ends there.
    section_before = old[common - 1].section if common else ""
    old, new = old[common:], new[common:]
    if len(old) * len(new) > _MAX_PAIRS:
        raise Unreadable("it is too long to be compared")
    # Levenshtein's distance: distances[i][j] turns the first i statements of `old` into the first j of `new`.
    distances = [list(range(len(new) + 1))]
    for i, statement in enumerate(old, 1):
        row = [i]
        for j, candidate in enumerate(new, 1):
            kept = distances[-1][j - 1] + (statement.text != candidate.text)
            row.append(min(kept, distances[-1][j] + 1, row[-1] + 1))
        distances.append(row)
    changes: Counter[str] = Counter()
    i, j = len(old), len(new)
    # Backwards through the table, along the cheapest edits, to attribute each to a section.
    while i or j:
        section = old[i - 1].section if i else section_before
        differs = not (i and j) or old[i - 1].text != new[j - 1].text
        if i and j and distances[i][j] == distances[i - 1][j - 1] + differs:
            i, j = i - 1, j - 1
            changes[section] += differs
        elif j and distances[i][j] == distances[i][j - 1] + 1:
            changes[section] += 1
            j -= 1
        else:
            changes[section] += 1
            i -= 1
    return +changes
