"""A phase's exam as it is declared: its exercises, its deliverable, and its questions as one learner sees them."""

from __future__ import annotations

import hashlib
import math
import random
import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from kernelpath.course import lesson, registry
from kernelpath.course.lesson import Question
from kernelpath.course.registry import Item
from kernelpath.course.spec import Checkpoint
from kernelpath.exam import NotValid
from kernelpath.grading.truth import derive

LETTERS = "abcdefgh"

_THOUSANDS = re.compile(r"[+-]?[1-9][0-9]{0,2}([,_ ][0-9]{3})+(\.[0-9]+)?")


@dataclass(frozen=True)
class Asked:
    """A question as one learner sees it.

    week, notebook: what prepares it; the path is relative to the checkout, empty if there is none.
    about: the exercise that asks it, None for the phase's own.
    """

    question: Question
    week: int
    notebook: str
    about: Item | None
    choices: tuple[str, ...]

    @property
    def key(self) -> str:
        """Names the question in the answer sheet for as long as its text stays the same."""
        owner = self.about.name if self.about else "phase"
        return f"{owner}-{hashlib.sha256(self.question.ask.encode()).hexdigest()[:6]}"

    @property
    def place(self) -> str:
        """Where in the course it belongs, in words."""
        return f"week {self.week}, {self.about.name}" if self.about else f"week {self.week}"

    @property
    def wanted(self) -> str:
        """What an answer looks like, in words."""
        return f"a letter, a to {LETTERS[len(self.choices) - 1]}" if self.choices else "a number, such as 1800 or 2^20"

    @property
    def lettered(self) -> list[tuple[str, str]]:
        """The choices with the letters that answer them."""
        return list(zip(LETTERS, self.choices, strict=False))

    def understands(self, text: str) -> bool:
        """Whether the text is an answer at all, right or wrong."""
        return self._meant(text) is not None

    def right(self, text: str) -> bool:
        meant = self._meant(text)
        return meant is not None and self.question.accepts(meant)

    def _meant(self, text: str) -> str | float | None:
        return dict(self.lettered).get(text.strip().lower().rstrip(").")) if self.choices else _number(text)


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

    @cached_property
    def deliverable(self) -> Item:
        return next(item for item in self.items if item.name == self.declared.deliverable)

    def questions(self, seed: int) -> tuple[Asked, ...]:
        """Week by week: the phase's own, then those of each exercise; the choices in the order that the seed gives."""
        own = [(week, None, question) for week, asked in self.declared.questions.items() for question in asked]
        others = [(item.week, item, question) for item in self.items for question in lesson.read(item.lesson).questions]
        return tuple(self._asked(*one, seed) for one in sorted([*own, *others], key=lambda one: one[0]))

    def needed(self, questions: int) -> int:
        """How many of that many questions have to be answered correctly."""
        return math.ceil(self.declared.pass_mark * questions)

    def require_files(self, folder: Path) -> None:
        """Raises NotValid where a file that is graded is not in `folder`."""
        names = {path.name: item.name for item in self.items for path in item.files("solutions")}
        absent = [file for file in names if not (folder / file).is_file()]
        if not absent:
            return
        reset, other = f"kp reset {names[absent[0]]}", f"give --from a folder with all files of phases/{self.phase}"
        remedy = f"{reset} brings the stub back" if folder == self.folder else other
        lacks = f"{len(absent)} of the exam's {len(names)} files, beginning with {absent[0]}"
        raise NotValid(f"{folder} lacks {lacks}; {remedy}")

    def _asked(self, week: int, about: Item | None, question: Question, seed: int) -> Asked:
        notebook = next((item.notebook for item in self.items if item.week == week), None)
        read = str(notebook.relative_to(self.root)) if notebook else ""
        choices = list(question.choices)
        random.Random(derive(seed, question.ask)).shuffle(choices)
        return Asked(question, week, read, about, tuple(choices))


def find(number: int, at: Path | None = None) -> Exam:
    """The exam of a phase. Raises registry.LookupFailed where there is none, and spec.DeclarationError."""
    root = at or registry.root()
    items = tuple(item for item in registry.exercises(root) if item.phase.startswith(f"{number}_"))
    if not items:
        raise registry.LookupFailed(f"there is no phase {number}; kp list shows the exercises that there are")
    return Exam(root, number, items[0].phase, registry.load_checkpoint(items[0].phase, root), items)
