"""Group submissions to one exercise that agree beyond what everybody was given: for a teacher to read, no verdict.

Sources become tokens without comments and layout. Every passage of PASSAGE tokens is compared, with the names in it
numbered in their order, so that renaming changes nothing. This is the comparison of MOSS (Schleimer, Wilkerson and
Aiken, "Winnowing: Local Algorithms for Document Fingerprinting", SIGMOD 2003), of all passages rather than a sample,
since kernels are short. Passages of the stub or a hint do not count, nor do passages that many in the class wrote, each
in a submission of its own: submissions that are nearly the same text count once, so that a copy is found however many
learners handed it in.

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
from kernelpath.course.registry import ExerciseRef
from kernelpath.school.gradebook import neutralize
from kernelpath.school.handed_in import Entry

# The number of tokens in a passage.
PASSAGE = 16

# The passages that two submissions must share. With fewer, there are too few ways to write them.
MIN_PASSAGES = 40

# The share of the shorter submission's passages that two submissions must share.
#
# Measured by benchmarks/similarity.py over the course's honest submissions to one exercise, 1,362 pairs of which
# neither was made from the other. 1 of them agrees, 0.07% (at most 0.41%, by the 95% confidence interval): a class of
# 40, which has 780 pairs, may expect one false pair in two exercises. At 0.7 the rate is twice as high; at 0.8 no
# honest pair agrees. Of the reference kernels with other names, no comments and a new statement after every tenth line,
# 99% are found, and 82% with a statement after every fifth; at 0.8 these are 97% and 48%.
MIN_SHARE = 0.75

# The share of passages from which on two submissions count as the same text.
#
# This distinguishes copies from what many wrote independently. None of the 1,362 honest pairs reaches this share.
_SAME_TEXT_SHARE = 0.9

# A passage in more submissions than this, and in more than this share of them, is the exercise's own.
_COMMON_COUNT = 8
_COMMON_SHARE = 0.1

_MAX_BYTES = 1 << 18
_TOKEN_PATTERN = (
    r"""|(?P<text>"(?:[^"\\\n]|\\.)*(?:"|$|\\\Z)|'(?:[^'\\\n]|\\.)*(?:'|$|\\\Z))|[^\W\d]\w*|\d[\w.]*|->|::|\S"""
)

# The token patterns by the suffix of a file.
#
# No alternative fails after it has looked ahead, so the time is linear in the length. In Python, a string in three
# quotes is skipped, as most are docstrings.
_TOKEN = {
    ".cu": re.compile(r"(?P<skip>\s+|//[^\n]*|/\*.*?(?:\*/|\Z))" + _TOKEN_PATTERN, re.S | re.M),
    ".py": re.compile(r"(?P<skip>\s+|\#[^\n]*|\"{3}.*?(?:\"{3}|\Z)|'{3}.*?(?:'{3}|\Z))" + _TOKEN_PATTERN, re.S | re.M),
}
_TYPES = ("auto", "bool", "char", "double", "float", "int", "long", "short", "struct", "unsigned", "void")
_KEYWORDS = {*keyword.kwlist, *_TYPES, "const", "constexpr", "do"}
_CODE_BLOCK = re.compile(r"^```[^\n]*\n(.*?)^```", re.S | re.M)


@dataclass(frozen=True)
class Pair:
    """Two learners whose submissions to one exercise agree.

    Attributes:
        passages: The number of shared passages.
        share: The share of the shorter submission's passages, 0 to 1.
    """

    exercise: str
    learners: tuple[str, str]
    passages: int
    share: float


@dataclass(frozen=True)
class Group:
    """Learners whose submissions to one exercise agree, each with at least one other of them.

    Attributes:
        closest: For each learner, in order, the pair with the submission that agrees most.
    """

    exercise: str
    closest: Mapping[str, Pair]

    @property
    def learners(self) -> tuple[str, ...]:
        return tuple(self.closest)


def find_groups(entries: Iterable[Entry]) -> list[Group]:
    """Return the groups of a class, by exercise, the closest first."""
    return [group for pairs_of_exercise in _pairs_by_exercise(entries) for group in _connect(pairs_of_exercise)]


def find_pairs(entries: Iterable[Entry]) -> list[Pair]:
    """Return the pairs that agree, by exercise, the closest first."""
    return [pair for pairs_of_exercise in _pairs_by_exercise(entries) for pair in pairs_of_exercise]


def write(folder: Path, groups_of_class: Iterable[Group]) -> None:
    """Write similar.csv, a row for each learner of each group. Raises OSError."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(("exercise", "group", "learners", "learner", "closest", "share", "passages"))
    for number, group in enumerate(groups_of_class, start=1):
        for learner, pair in group.closest.items():
            closest_learner = next(name for name in pair.learners if name != learner)
            row = (
                group.exercise,
                number,
                len(group.closest),
                learner,
                closest_learner,
                f"{pair.share:.2f}",
                pair.passages,
            )
            writer.writerow(map(neutralize, row))
    files.write_atomically(folder / "similar.csv", text.getvalue())


def _pairs_by_exercise(entries: Iterable[Entry]) -> Iterator[list[Pair]]:
    submissions: dict[ExerciseRef, dict[str, set[int]]] = defaultdict(dict)
    for entry in entries:
        if entry.file is not None:
            submissions[entry.item][entry.learner] = passages_of_files(files.submitted(entry.file))
    for item, by_learner in submissions.items():
        provided = provided_passages(item)
        passages = {learner: passages - provided for learner, passages in by_learner.items()}
        yield [pair for pair in compare(item.path_id, passages) if agrees(pair)]


def agrees(pair: Pair) -> bool:
    return pair.passages >= MIN_PASSAGES and pair.share >= MIN_SHARE


def compare(exercise: str, passages: Mapping[str, set[int]]) -> list[Pair]:
    """Compare every two submissions and return the pairs, the closest first.

    Args:
        passages: The passages by learner, without those that everybody was given.
    """
    all_pairs = list(_all_pairs(exercise, passages))
    copies = [pair for pair in all_pairs if pair.passages >= MIN_PASSAGES and pair.share >= _SAME_TEXT_SHARE]
    # Copies of one text count once, so that a passage that only they contain does not become common.
    texts = {learner: learner for learner in passages}
    for group in _connect(copies):
        texts |= dict.fromkeys(group.learners, group.learners[0])
    texts_with: dict[int, set[str]] = defaultdict(set)
    for learner, own_passages in passages.items():
        for passage in own_passages:
            texts_with[passage].add(texts[learner])
    max_holders = max(_COMMON_COUNT, _COMMON_SHARE * len(passages))
    common = {passage for passage, holders in texts_with.items() if len(holders) > max_holders}
    if common:
        all_pairs = list(
            _all_pairs(exercise, {learner: own_passages - common for learner, own_passages in passages.items()})
        )
    return sorted(all_pairs, key=lambda pair: (-pair.share, -pair.passages, pair.learners))


def _all_pairs(exercise: str, passages: Mapping[str, set[int]]) -> Iterator[Pair]:
    for (learner, own_passages), (other_learner, other_passages) in combinations(passages.items(), 2):
        # The share is that of the shorter submission: what a learner adds to a copy does not lower it.
        shared = len(own_passages & other_passages)
        if shared:
            yield Pair(exercise, (learner, other_learner), shared, shared / min(len(own_passages), len(other_passages)))


def _connect(pairs: Sequence[Pair]) -> list[Group]:
    """Return the connected components of a graph whose edges are the pairs, sorted with the closest pair first."""
    group_of: dict[str, set[str]] = {}
    closest: dict[str, Pair] = {}
    for pair in pairs:
        component: set[str] = set().union(*(group_of.get(learner, {learner}) for learner in pair.learners))
        group_of |= dict.fromkeys(component, component)
        for learner in pair.learners:
            closest.setdefault(learner, pair)
    members = {
        id(component): component for component in group_of.values()
    }  # each component once, in the order of its closest pair
    return [
        Group(closest[min(component)].exercise, {learner: closest[learner] for learner in sorted(component)})
        for component in members.values()
    ]


def provided_passages(item: ExerciseRef) -> set[int]:
    """Return the passages of the stub and of the code in the lesson."""
    texts = [(Path(name).suffix, text) for name, text in stubs.provided(item).items()]
    with suppress(OSError):
        lesson = item.lesson.read_text(encoding="utf-8")
        texts += [(suffix, code) for code in _CODE_BLOCK.findall(lesson) for suffix in _TOKEN]
    return {passage for suffix, text in texts for passage in passages_of_text(suffix, text)}


def passages_of_files(paths: Iterable[Path]) -> set[int]:
    """Return the passages of the readable files, except files that are too long to be somebody's own."""
    passages: set[int] = set()
    for path in paths:
        with suppress(OSError):
            if path.stat().st_size <= _MAX_BYTES:
                passages.update(passages_of_text(path.suffix, files.source_text(path)))
    return passages


def passages_of_text(suffix: str, text: str) -> Iterator[int]:
    """Yield a hash of each passage of a file; nothing for a file of another type."""
    tokens = list(_tokens(_TOKEN[suffix], text)) if suffix in _TOKEN else []
    for start in range(len(tokens) - PASSAGE + 1):
        # A name counts as the place at which it first occurs in the passage, so renaming changes nothing.
        names: dict[str, int] = {}
        passage = tokens[start : start + PASSAGE]
        # Python hashes texts differently in each process, so passages are compared within a process only.
        yield hash(tuple(names.setdefault(token, len(names)) if is_name else token for token, is_name in passage))


def _tokens(pattern: re.Pattern[str], text: str) -> Iterator[tuple[str, bool]]:
    """Yield each token, and whether it is a name that a learner may choose: not a keyword, nor a member's name."""
    previous = ""
    for match in pattern.finditer(text):
        if match["skip"] is not None:
            continue
        token = '"' if match["text"] is not None else match[0]
        yield token, token.isidentifier() and token not in _KEYWORDS and previous not in (".", "->", "::")
        previous = token
