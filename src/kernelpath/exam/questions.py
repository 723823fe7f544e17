"""A phase's exam, and the paper that one learner gets: the name decides its numbers, its kernels and its twist."""

from __future__ import annotations

import json
import math
import random
import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Protocol

from kernelpath.course import registry
from kernelpath.course.checkpoint import Checkpoint, Posed, Twist
from kernelpath.course.registry import DELIVERABLE, Deliverable, Item
from kernelpath.exam import NotValid, reading
from kernelpath.exam.reading import Ran
from kernelpath.grading.ground_truth import derive_seed

LETTERS = "abcdefgh"
PARTS = ("questions", "reading")
"""What is asked, and marked by a program."""

_MOST_NAME = 100
_THOUSANDS = re.compile(r"[+-]?[1-9][0-9]{0,2}([,_ ][0-9]{3})+(\.[0-9]+)?")


class Answer(Protocol):
    """What an answer has to be. wanted: what one looks like, in words."""

    @property
    def wanted(self) -> str: ...

    def right(self, text: str) -> bool | None:
        """Whether an answer is right; None if the text is no answer at all."""


@dataclass(frozen=True)
class Letter:
    """One of so many choices."""

    choices: int
    correct: int

    @property
    def wanted(self) -> str:
        return f"a letter, a to {LETTERS[self.choices - 1]}"

    def right(self, text: str) -> bool | None:
        letter = text.strip().lower().rstrip(").")
        place = LETTERS[: self.choices].find(letter) if len(letter) == 1 else -1
        return None if place < 0 else place == self.correct


@dataclass(frozen=True)
class Number:
    """A number. tolerance: relative."""

    correct: float
    tolerance: float
    wanted: str = "a number, such as 1800 or 2^20"

    def right(self, text: str) -> bool | None:
        meant = _number(text)
        return None if meant is None else self._is(meant)

    def in_another_unit(self, text: str) -> bool:
        """Whether an answer is wrong by a power of 1000, or of 1024, alone."""
        meant = _number(text)
        factors = [factor**power for factor in (1000.0, 1024.0) for power in (-3, -2, -1, 1, 2, 3)]
        if not meant or self._is(meant):
            return False
        return any(self._is(meant * factor) for factor in factors)

    def _is(self, number: float) -> bool:
        return abs(number - self.correct) <= max(self.tolerance, 1e-9) * abs(self.correct)


@dataclass(frozen=True)
class Place:
    """A fault and its lines, in any order; a line that races with itself may be named once or twice."""

    kind: str
    lines: frozenset[int]
    wanted: str = f"{', '.join(reading.KINDS.values())}: one of them and then the lines, such as race 9 12"

    def right(self, text: str) -> bool | None:
        kind, *numbers = re.sub(r"[,;:]|\band\b|\blines?\b", " ", text.lower()).split() or [""]
        if kind not in reading.KINDS.values() or not numbers or not all(re.fullmatch(r"\d{1,4}", n) for n in numbers):
            return None
        return (kind, frozenset(map(int, numbers))) == (self.kind, self.lines)


@dataclass(frozen=True)
class Asked:
    """A question as one learner sees it.

    key: its name in the answer sheet. notebook: what prepares it, relative to the checkout, and the title of its
    section; empty for a question that no notebook prepares.
    listing: what is to be read, laid out. why: shown after a right answer.
    """

    part: str
    key: str
    week: int
    notebook: str
    section: str
    ask: str
    answer: Answer
    why: str
    choices: tuple[str, ...] = ()
    listing: str = ""

    @property
    def place(self) -> str:
        """Where in the course it belongs, in words."""
        return f"week {self.week}, {self.key}" if self.week else self.key

    @property
    def prepared(self) -> str:
        """Where to read what it asks; empty for a reading task."""
        section = f', section "{self.section}"' if self.section else ""
        return f"week {self.week}{section}, {self.notebook}" if self.notebook else ""

    @property
    def wanted(self) -> str:
        return self.answer.wanted

    @property
    def lettered(self) -> list[tuple[str, str]]:
        """The choices with the letters that answer them."""
        return list(zip(LETTERS, self.choices, strict=False))

    def understands(self, text: str) -> bool:
        """Whether the text is an answer at all, right or wrong."""
        return self.answer.right(text) is not None

    def right(self, text: str) -> bool:
        return bool(self.answer.right(text))


@dataclass(frozen=True)
class Exam:
    """The exam of phase `number` of the checkout at `root`."""

    root: Path
    number: int
    phase: str
    declared: Checkpoint
    items: tuple[Item, ...]

    @property
    def folder(self) -> Path:
        """Where the learner works, and where the answer sheet lies."""
        return self.root / "phases" / self.phase

    @property
    def pool(self) -> reading.Pool:
        """The kernels to be read, which run when they are first asked for."""
        return reading.pool(registry.course(self.root) / "checks" / self.phase / "reading")

    def paper(self, name: str) -> Paper:
        """The learner's own. Raises NotValid for a name that is empty, too long, or has no letters."""
        shown = " ".join(unicodedata.normalize("NFC", name).split())
        if len(shown) > _MOST_NAME or not shown.isprintable() or not words_of(shown):
            what = f"1 to {_MOST_NAME} printable characters, and letters among them"
            raise NotValid(f"a name has {what}; give yours with --name")
        return Paper(self, shown)

    def needed(self, questions: int) -> int:
        """How many of that many questions have to be answered correctly."""
        return math.ceil(self.declared.pass_mark * questions)


@dataclass(frozen=True)
class Paper:
    """The exam as one learner gets it."""

    exam: Exam
    name: str

    @cached_property
    def seed(self) -> int:
        """The same however the name is written."""
        return derive_seed(self.exam.number, "paper", " ".join(sorted(words_of(self.name))))

    @cached_property
    def twist(self) -> Twist:
        return random.Random(derive_seed(self.seed, "twist")).choice(self.exam.declared.twists)

    @property
    def item(self) -> Deliverable:
        """The deliverable as an exercise that can be graded."""
        return Deliverable(self.exam.root, f"{self.exam.phase}/{DELIVERABLE}:{self.twist.name}")

    @cached_property
    def asked(self) -> tuple[Asked, ...]:
        """The questions, week by week, then the reading tasks."""
        return (*(self._question(one) for one in self.exam.declared.questions), *self._faults(), *self._pictures())

    def of(self, part: str) -> list[Asked]:
        return [asked for asked in self.asked if asked.part == part]

    def require_files(self, folder: Path) -> None:
        """Raises NotValid where a file that is graded is not in `folder`."""
        exam = self.exam
        files = ((item, path) for item in exam.items for path in item.files("solutions"))
        names = {str(path.relative_to(item.solution.parent)): item.name for item, path in files}
        names |= {f"{DELIVERABLE}{suffix}": DELIVERABLE for suffix in self.twist.stub}
        if not (absent := [file for file in names if not (folder / file).is_file()]):
            return
        reset, other = f"kp reset {names[absent[0]]}", f"give --from a folder with all files of phases/{exam.phase}"
        remedy = f"{reset} restores the stub" if folder == exam.folder else other
        lacks = f"{len(absent)} of the exam's {len(names)} files, beginning with {absent[0]}"
        raise NotValid(f"{folder} lacks {lacks}; {remedy}")

    def _question(self, posed: Posed) -> Asked:
        seed = derive_seed(self.seed, posed.name)
        question = posed.drawn(seed)
        notebook = next((item.notebook for item in self.exam.items if item.week == posed.week), None)
        read = str(notebook.relative_to(self.exam.root)) if notebook else ""
        choices = list(question.choices)
        random.Random(seed).shuffle(choices)
        answer: Answer
        if isinstance(question.answer, str):
            answer = Letter(len(choices), choices.index(question.answer))
        else:
            answer = Number(question.answer, question.tolerance)
        return Asked(
            *("questions", posed.name, posed.week, read, _title(notebook, posed.read) if notebook else ""),
            *(question.ask, answer, question.why, tuple(choices)),
        )

    def _faults(self) -> Iterator[Asked]:
        count = self.exam.declared.faults
        found = self.exam.pool.draw_faults(count, derive_seed(self.seed, "faults")) if count else []
        for number, one in enumerate(found, start=1):
            ask = (
                "This launch has one fault. Name it and its line; for a race, name both lines, "
                "or the one line that races with itself."
            )
            answer = Place(one.kind, one.lines)
            yield Asked(
                "reading", f"fault_{number}", 0, "", "", ask, answer, one.said, listing=reading.listing(one.source)
            )

    def _pictures(self) -> Iterator[Asked]:
        count = self.exam.declared.pictures
        found = self.exam.pool.draw_pictures(count, derive_seed(self.seed, "pictures")) if count else []
        for number, (right, four) in enumerate(found, start=1):
            answer = Letter(len(four), four.index(right))
            why = f"the kernel is {right.path.stem}; kp profile shows such counters for your own"
            yield Asked("reading", f"picture_{number}", 0, "", "", PICTURE, answer, why, listing=_listed(right, four))


PICTURE = "Which of the four kernels produces these counters?"


def _listed(right: Ran, four: list[Ran]) -> str:
    kernels = [f"{letter})\n{reading.listing(one.source)}" for letter, one in zip(LETTERS, four, strict=False)]
    return "\n\n".join([reading.table(right.picture), *kernels])


def _title(notebook: Path, section: int) -> str:
    """The title of a section of a notebook, such as "3 · A tile for a block"; empty where there is no such section."""
    cells = json.loads(notebook.read_text("utf-8")).get("cells", []) if notebook.is_file() else []
    texts = ("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")
    found = (re.search(rf"^## ({section} · .+)$", text, re.MULTILINE) for text in texts)
    return next((one[1].replace("`", "") for one in found if one), "")


def words_of(name: str) -> set[str]:
    """The words of a name, however a learning platform writes it: without accents, capitals and marks."""
    plain = "".join(one for one in unicodedata.normalize("NFKD", name) if not unicodedata.combining(one))
    return set(re.findall(r"[^\W_]+", plain.casefold()))


def _number(text: str) -> float | None:
    """What a learner means by 1,800 or 1 800, 50%, 3e6, 2^20 or 2**20; None if it is not a number."""
    text = text.strip().removesuffix("%").rstrip()
    if _THOUSANDS.fullmatch(text):
        text = re.sub("[,_ ]", "", text)
    base, _, exponent = text.replace("**", "^").partition("^")
    try:
        number = float(base) ** float(exponent or 1)
    except (ValueError, ArithmeticError):
        return None
    return number if isinstance(number, float) and math.isfinite(number) else None


def find(number: int, at: Path | None = None) -> Exam:
    """The exam of a phase. Raises registry.LookupFailed for a phase without an exam, and spec.DeclarationError."""
    root = at or registry.root()
    items = tuple(item for item in registry.exercises(root) if item.phase.startswith(f"{number}_"))
    if not items:
        raise registry.LookupFailed(f"there is no phase {number}; kp list shows the exercises")
    return Exam(root, number, items[0].phase, registry.load_checkpoint(items[0].phase, root), items)
