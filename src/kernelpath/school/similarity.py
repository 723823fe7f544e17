"""Pairs of submissions to one exercise that agree beyond what everybody was given: for a teacher to read, no verdict.

Sources become tokens without comments and layout. Every passage of PASSAGE tokens is compared, with the names in it
numbered in their order, so that renaming changes nothing. It is the comparison that MOSS makes (Schleimer, Wilkerson
and Aiken, "Winnowing: Local Algorithms for Document Fingerprinting", SIGMOD 2003), of all passages rather than of a
sample, as kernels are short. What the stub or a hint holds does not count, nor does what many in the class wrote.

Two learners who wrote a short kernel in the obvious way agree, too: a pair is a reason to read both.
"""

from __future__ import annotations

import csv
import io
import keyword
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

from kernelpath import files
from kernelpath.course import stubs
from kernelpath.course.registry import Item
from kernelpath.school.gradebook import inert
from kernelpath.school.handed_in import Entry

PASSAGE = 16
"""Tokens."""

LEAST_PASSAGES = 40
"""That two submissions must share: with fewer, there are too few ways to write them."""

LEAST_SHARE = 0.8
"""Of the passages of the shorter submission."""

_COMMON, _COMMON_SHARE = 8, 0.1
"""A passage in more submissions than this, and in more than this share of them, is the exercise's own."""

_MOST_BYTES = 1 << 18
_REST = r"""|(?P<text>"(?:[^"\\\n]|\\.)*(?:"|$|\\\Z)|'(?:[^'\\\n]|\\.)*(?:'|$|\\\Z))|[^\W\d]\w*|\d[\w.]*|->|::|\S"""
_TOKEN = {
    ".cu": re.compile(r"(?P<skip>\s+|//[^\n]*|/\*.*?(?:\*/|\Z))" + _REST, re.S | re.M),
    ".py": re.compile(r"(?P<skip>\s+|\#[^\n]*|\"{3}.*?(?:\"{3}|\Z)|'{3}.*?(?:'{3}|\Z))" + _REST, re.S | re.M),
}
"""By the suffix of a file. No alternative fails after it has looked ahead, so the time is linear in the length.

In Python a string in three quotes is skipped, as most are docstrings.
"""
_TYPES = ("auto", "bool", "char", "double", "float", "int", "long", "short", "struct", "unsigned", "void")
_KEYWORDS = {*keyword.kwlist, *_TYPES, "const", "constexpr", "do"}
_FENCED = re.compile(r"^```[^\n]*\n(.*?)^```", re.S | re.M)


@dataclass(frozen=True)
class Pair:
    """Two learners whose submissions to one exercise agree. passages: shared; share: of the shorter one's, 0 to 1."""

    exercise: str
    learners: tuple[str, str]
    passages: int
    share: float


def pairs(entries: Iterable[Entry]) -> list[Pair]:
    """Those that agree, by exercise, the closest first."""
    handed_in: dict[Item, dict[str, set[int]]] = defaultdict(dict)
    for entry in entries:
        if entry.file is not None:
            handed_in[entry.item][entry.learner] = _passages_of(files.submitted(entry.file))
    return [pair for item, own in handed_in.items() for pair in _agreeing(item, own)]


def write(folder: Path, found: Iterable[Pair]) -> None:
    """Write similar.csv. Raises OSError."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(("exercise", "learner", "other", "share", "passages"))
    for one in found:
        writer.writerow(map(inert, (one.exercise, *one.learners, f"{one.share:.2f}", one.passages)))
    files.write_atomically(folder / "similar.csv", text.getvalue())


def _agreeing(item: Item, handed_in: dict[str, set[int]]) -> list[Pair]:
    given = _given(item)
    holders: dict[int, list[str]] = defaultdict(list)
    for learner, passages in handed_in.items():
        for passage in passages - given:
            holders[passage].append(learner)
    most = max(_COMMON, _COMMON_SHARE * len(handed_in))
    rare = [learners for learners in holders.values() if len(learners) <= most]
    length = Counter(learner for learners in rare for learner in learners)
    shared = Counter(pair for learners in rare for pair in combinations(learners, 2))
    found = [Pair(item.stem, (a, b), count, count / min(length[a], length[b])) for (a, b), count in shared.items()]
    agreeing = [one for one in found if one.passages >= LEAST_PASSAGES and one.share >= LEAST_SHARE]
    return sorted(agreeing, key=lambda one: (-one.share, -one.passages, one.learners))


def _given(item: Item) -> set[int]:
    """The passages of the stub and of the code in the lesson."""
    texts = [(path.suffix, files.source_text(path)) for path in item.files("phases")]
    if not any(stubs.is_open(text) for _, text in texts):  # solved by whoever grades
        with suppress(stubs.NoStub):
            texts = [(path.suffix, text) for path, text in stubs.pristine(item).items()]
    with suppress(OSError):
        lesson = item.lesson.read_text(encoding="utf-8")
        texts += [(suffix, code) for code in _FENCED.findall(lesson) for suffix in _TOKEN]
    return {passage for suffix, text in texts for passage in _passages(suffix, text)}


def _passages_of(paths: Iterable[Path]) -> set[int]:
    """Those of the files that can be read and are not too long to be somebody's own."""
    found: set[int] = set()
    for path in paths:
        with suppress(OSError):
            if path.stat().st_size <= _MOST_BYTES:
                found.update(_passages(path.suffix, files.source_text(path)))
    return found


def _passages(suffix: str, text: str) -> Iterator[int]:
    """A number for each passage of a file; none for a file of another kind."""
    tokens = list(_tokens(_TOKEN[suffix], text)) if suffix in _TOKEN else []
    for start in range(len(tokens) - PASSAGE + 1):
        names: dict[str, int] = {}
        passage = tokens[start : start + PASSAGE]
        yield hash(tuple(names.setdefault(one, len(names)) if is_name else one for one, is_name in passage))


def _tokens(kind: re.Pattern[str], text: str) -> Iterator[tuple[str, bool]]:
    """Each token, and whether it is a name that a learner may choose: not a keyword, nor a member's."""
    before = ""
    for found in kind.finditer(text):
        if found["skip"] is not None:
            continue
        token = '"' if found["text"] is not None else found[0]
        yield token, token.isidentifier() and token not in _KEYWORDS and before not in (".", "->", "::")
        before = token
