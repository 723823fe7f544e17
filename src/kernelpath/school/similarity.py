"""Groups of submissions to one exercise that agree beyond what everybody was given: for a teacher to read, no verdict.

Sources become tokens without comments and layout. Every passage of PASSAGE tokens is compared, with the names in it
numbered in their order, so that renaming changes nothing. It is the comparison that MOSS makes (Schleimer, Wilkerson
and Aiken, "Winnowing: Local Algorithms for Document Fingerprinting", SIGMOD 2003), of all passages rather than of a
sample, as kernels are short. What the stub or a hint holds does not count, nor does what many in the class wrote,
each in a submission of its own: submissions that are nearly one text count once, so that a copy that many handed in is
found, however many they are.

Two learners who wrote a short kernel in the obvious way agree, too: a group is a reason to read its submissions.
"""

from __future__ import annotations

import csv
import io
import keyword
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
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

LEAST_SHARE = 0.75
"""Of the passages of the shorter submission.

Measured by benchmarks/similarity.py over the course's honest submissions to one exercise, 1,200 pairs that were not
made from one another. 1 of them agrees, 0.08% (at most 0.46%, by the 95% confidence interval): a class of 40, which
has 780 pairs, may expect two false pairs in three exercises. At 0.7 the rate is twice as high; at 0.8 no honest pair
agrees. Of the reference kernels with other names, no comments and a new statement after every tenth line, 100% are
found, and 78% with a statement after every fifth; at 0.8 these are 97% and 41%.
"""

_NEARLY_ONE_TEXT = 0.9
"""The share of passages from which on two submissions count as one, when what many wrote is told from copies.

None of the 1,200 honest pairs reaches this share.
"""

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


@dataclass(frozen=True)
class Group:
    """Learners whose submissions to one exercise agree, each with at least one other of them.

    closest: for each learner, in order, the pair with the submission that agrees most.
    """

    exercise: str
    closest: Mapping[str, Pair]

    @property
    def learners(self) -> tuple[str, ...]:
        return tuple(self.closest)


def groups(entries: Iterable[Entry]) -> list[Group]:
    """Return the groups of a class, by exercise, the closest first."""
    return [group for pairs_of_exercise in _pairs_by_exercise(entries) for group in _connected(pairs_of_exercise)]


def pairs(entries: Iterable[Entry]) -> list[Pair]:
    """Return the pairs that agree, by exercise, the closest first."""
    return [pair for pairs_of_exercise in _pairs_by_exercise(entries) for pair in pairs_of_exercise]


def write(folder: Path, groups_of_class: Iterable[Group]) -> None:
    """Write similar.csv, a row for each learner of each group. Raises OSError."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(("exercise", "group", "learners", "learner", "closest", "share", "passages"))
    for number, group in enumerate(groups_of_class, start=1):
        for learner, pair in group.closest.items():
            other = next(name for name in pair.learners if name != learner)
            row = (group.exercise, number, len(group.closest), learner, other, f"{pair.share:.2f}", pair.passages)
            writer.writerow(map(inert, row))
    files.write_atomically(folder / "similar.csv", text.getvalue())


def _pairs_by_exercise(entries: Iterable[Entry]) -> Iterator[list[Pair]]:
    submissions: dict[Item, dict[str, set[int]]] = defaultdict(dict)
    for entry in entries:
        if entry.file is not None:
            submissions[entry.item][entry.learner] = passages_of(files.submitted(entry.file))
    for item, own in submissions.items():
        provided = passages_provided(item)
        passages = {learner: passages - provided for learner, passages in own.items()}
        yield [pair for pair in compare(item.stem, passages) if agrees(pair)]


def agrees(pair: Pair) -> bool:
    return pair.passages >= LEAST_PASSAGES and pair.share >= LEAST_SHARE


def compare(exercise: str, passages: Mapping[str, set[int]]) -> list[Pair]:
    """Compare every two submissions, the closest pair first. passages: by learner, without what everybody was given."""
    everything = list(_every_pair(exercise, passages))
    copies = [pair for pair in everything if pair.passages >= LEAST_PASSAGES and pair.share >= _NEARLY_ONE_TEXT]
    texts = {learner: learner for learner in passages}
    for group in _connected(copies):
        texts |= dict.fromkeys(group.learners, group.learners[0])
    texts_with: dict[int, set[str]] = defaultdict(set)
    for learner, own in passages.items():
        for passage in own:
            texts_with[passage].add(texts[learner])
    most = max(_COMMON, _COMMON_SHARE * len(passages))
    common = {passage for passage, holders in texts_with.items() if len(holders) > most}
    if common:
        everything = list(_every_pair(exercise, {learner: own - common for learner, own in passages.items()}))
    return sorted(everything, key=lambda pair: (-pair.share, -pair.passages, pair.learners))


def _every_pair(exercise: str, passages: Mapping[str, set[int]]) -> Iterator[Pair]:
    for (learner, own), (other, others) in combinations(passages.items(), 2):
        shared = len(own & others)
        if shared:
            yield Pair(exercise, (learner, other), shared, shared / min(len(own), len(others)))


def _connected(agreeing: Sequence[Pair]) -> list[Group]:
    """Return the groups that the pairs connect. agreeing: sorted, the closest pair first."""
    group_of: dict[str, set[str]] = {}
    closest: dict[str, Pair] = {}
    for pair in agreeing:
        joined: set[str] = set().union(*(group_of.get(learner, {learner}) for learner in pair.learners))
        group_of |= dict.fromkeys(joined, joined)
        for learner in pair.learners:
            closest.setdefault(learner, pair)
    members = {id(joined): joined for joined in group_of.values()}  # each once, in the order of its closest pair
    return [
        Group(closest[min(joined)].exercise, {learner: closest[learner] for learner in sorted(joined)})
        for joined in members.values()
    ]


def passages_provided(item: Item) -> set[int]:
    """The passages of the stub and of the code in the lesson."""
    texts = [(path.suffix, files.source_text(path)) for path in item.files("phases")]
    if not any(stubs.is_open(text) for _, text in texts):  # solved by whoever grades
        with suppress(stubs.NoStub):
            texts = [(path.suffix, text) for path, text in stubs.pristine(item).items()]
    with suppress(OSError):
        lesson = item.lesson.read_text(encoding="utf-8")
        texts += [(suffix, code) for code in _FENCED.findall(lesson) for suffix in _TOKEN]
    return {passage for suffix, text in texts for passage in passages_in(suffix, text)}


def passages_of(paths: Iterable[Path]) -> set[int]:
    """Those of the files that can be read and are not too long to be somebody's own."""
    found: set[int] = set()
    for path in paths:
        with suppress(OSError):
            if path.stat().st_size <= _MOST_BYTES:
                found.update(passages_in(path.suffix, files.source_text(path)))
    return found


def passages_in(suffix: str, text: str) -> Iterator[int]:
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
