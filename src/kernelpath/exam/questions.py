"""Set a phase's exam, whose numbers, kernels and variant of the deliverable the learner's name selects."""

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
from kernelpath.course.checkpoint import Checkpoint, DeliverableVariant, QuestionTemplate
from kernelpath.course.registry import DELIVERABLE, Deliverable, ExerciseRef
from kernelpath.exam import ExamError, reading
from kernelpath.exam.reading import ExecutedKernel
from kernelpath.grading.ground_truth import derive_seed

LETTERS = "abcdefgh"

# The parts of an exam whose answers a program marks.
PARTS = ("questions", "reading")

_MAX_NAME_LENGTH = 100
_THOUSANDS = re.compile(r"[+-]?[1-9][0-9]{0,2}([,_ ][0-9]{3})+(\.[0-9]+)?")


class AnswerKey(Protocol):
    """The right answer to a question.

    Attributes:
        expected_format: A description of what an answer looks like.
    """

    @property
    def expected_format(self) -> str: ...

    def is_correct(self, text: str) -> bool | None:
        """Return whether `text` is the right answer, or None if it is no answer at all."""


@dataclass(frozen=True)
class ChoiceAnswer:
    """A choice among `choices` possibilities."""

    choices: int
    correct: int

    @property
    def expected_format(self) -> str:
        return f"a letter, a to {LETTERS[self.choices - 1]}"

    def is_correct(self, text: str) -> bool | None:
        letter = text.strip().lower().rstrip(").")
        # str.find("") is 0: an empty answer and "ab" must not count as a choice.
        index = LETTERS[: self.choices].find(letter) if len(letter) == 1 else -1
        return None if index < 0 else index == self.correct


@dataclass(frozen=True)
class NumericAnswer:
    """A number, right within a relative tolerance."""

    correct: float
    tolerance: float
    expected_format: str = "a number, such as 1800 or 2^20"

    def is_correct(self, text: str) -> bool | None:
        number = _parse_number(text)
        return None if number is None else self._matches(number)

    def in_another_unit(self, text: str) -> bool:
        """Return whether `text` is wrong by exactly a power of 1000 or of 1024."""
        number = _parse_number(text)
        # Up to three prefixes in either direction, decimal or binary: seconds for ns, or bytes for GiB.
        factors = [factor**power for factor in (1000.0, 1024.0) for power in (-3, -2, -1, 1, 2, 3)]
        if not number or self._matches(number):
            return False
        return any(self._matches(number * factor) for factor in factors)

    def _matches(self, number: float) -> bool:
        # Even an exact answer needs room for the rounding of a float.
        return abs(number - self.correct) <= max(self.tolerance, 1e-9) * abs(self.correct)


@dataclass(frozen=True)
class FaultAnswer:
    """A fault and its lines in any order. A line that races with itself may be named once or twice."""

    kind: str
    lines: frozenset[int]
    expected_format: str = (
        f"{', '.join(reading.FAULT_NAMES.values())}: one of them and then the lines, such as race 9 12"
    )

    def is_correct(self, text: str) -> bool | None:
        # "race: lines 9 and 12" is the same answer as "race 9 12".
        kind, *numbers = re.sub(r"[,;:]|\band\b|\blines?\b", " ", text.lower()).split() or [""]
        if (
            kind not in reading.FAULT_NAMES.values()
            or not numbers
            or not all(re.fullmatch(r"\d{1,4}", n) for n in numbers)
        ):
            return None
        return (kind, frozenset(map(int, numbers))) == (self.kind, self.lines)


@dataclass(frozen=True)
class ExamQuestion:
    """A question as one learner sees it.

    Attributes:
        key: The question's name in the answer sheet.
        notebook: The notebook that prepares the question, relative to the checkout; empty if there is none.
        section: The title of the section of that notebook.
        listing: The source code to read, if there is any.
        why: The explanation that is shown after a pass.
    """

    part: str
    key: str
    week: int
    notebook: str
    section: str
    ask: str
    answer: AnswerKey
    why: str
    choices: tuple[str, ...] = ()
    listing: str = ""

    @property
    def place(self) -> str:
        """Return the question's place in the course as text, such as "week 2, in_flight"."""
        return f"week {self.week}, {self.key}" if self.week else self.key

    @property
    def preparation(self) -> str:
        """Return where the course prepares the question; empty for a reading task."""
        section = f', section "{self.section}"' if self.section else ""
        return f"week {self.week}{section}, {self.notebook}" if self.notebook else ""

    @property
    def expected_format(self) -> str:
        return self.answer.expected_format

    @property
    def lettered(self) -> list[tuple[str, str]]:
        """Return the choices with the letters that answer them."""
        return list(zip(LETTERS, self.choices, strict=False))

    def understands(self, text: str) -> bool:
        """Return whether `text` is an answer at all, right or wrong."""
        return self.answer.is_correct(text) is not None

    def is_correct(self, text: str) -> bool:
        return bool(self.answer.is_correct(text))


@dataclass(frozen=True)
class Exam:
    """The exam of phase `number` of the checkout at `root`."""

    root: Path
    number: int
    phase: str
    checkpoint: Checkpoint
    items: tuple[ExerciseRef, ...]

    @property
    def folder(self) -> Path:
        """Return the folder in which the learner works, which holds the answer sheet."""
        return self.root / "phases" / self.phase

    @property
    def pool(self) -> reading.KernelPool:
        """Return the kernels of the reading tasks, which run on the first call."""
        return reading.load_pool(registry.course(self.root) / "checks" / self.phase / "reading")

    def paper(self, name: str) -> Paper:
        """Return the learner's own paper. Raises ExamError for a name that is empty, too long, or has no letters."""
        # The same name may be typed with composed or combining accents and any blanks between its words.
        normalized = " ".join(unicodedata.normalize("NFC", name).split())
        if len(normalized) > _MAX_NAME_LENGTH or not normalized.isprintable() or not name_words(normalized):
            requirement = f"1 to {_MAX_NAME_LENGTH} printable characters, and letters among them"
            raise ExamError(f"a name has {requirement}; give yours with --name")
        return Paper(self, normalized)

    def correct_answers_needed(self, questions: int) -> int:
        """Return the number of right answers to `questions` questions that a pass requires."""
        return math.ceil(self.checkpoint.pass_mark * questions)


@dataclass(frozen=True)
class Paper:
    """The exam as one learner gets it."""

    exam: Exam
    name: str

    @cached_property
    def seed(self) -> int:
        """Return the seed of the paper, which does not depend on the spelling of the name."""
        return derive_seed(self.exam.number, "paper", " ".join(sorted(name_words(self.name))))

    @cached_property
    def variant(self) -> DeliverableVariant:
        # The label "twist" is part of the seed: with another label, learners would get other variants.
        return random.Random(derive_seed(self.seed, "twist")).choice(self.exam.checkpoint.variants)

    @property
    def item(self) -> Deliverable:
        """Return the deliverable as an exercise that can be graded."""
        return Deliverable(self.exam.root, f"{self.exam.phase}/{DELIVERABLE}:{self.variant.name}")

    @cached_property
    def questions(self) -> tuple[ExamQuestion, ...]:
        """Return the questions week by week, then the reading tasks."""
        return (
            *(self._question(template) for template in self.exam.checkpoint.questions),
            *self._faults(),
            *self._pictures(),
        )

    def questions_in(self, part: str) -> list[ExamQuestion]:
        return [question for question in self.questions if question.part == part]

    def require_files(self, folder: Path) -> None:
        """Raise ExamError if a file that is graded is not in `folder`."""
        exam = self.exam
        # The solutions tell which files an exercise has; the learner's folder may lack some of them.
        files = ((item, path) for item in exam.items for path in item.files("solutions"))
        names = {str(path.relative_to(item.solution.parent)): item.name for item, path in files}
        names |= {f"{DELIVERABLE}{suffix}": DELIVERABLE for suffix in self.variant.stub}
        absent = [file for file in names if not (folder / file).is_file()]
        if not absent:
            return
        if folder == exam.folder:
            remedy = f"kp reset {names[absent[0]]} restores the stub"
        else:
            remedy = f"give --from a folder with all files of phases/{exam.phase}"
        lacks = f"{len(absent)} of the exam's {len(names)} files, beginning with {absent[0]}"
        raise ExamError(f"{folder} lacks {lacks}; {remedy}")

    def _question(self, template: QuestionTemplate) -> ExamQuestion:
        seed = derive_seed(self.seed, template.name)
        question = template.generate(seed)
        notebook = next((item.notebook for item in self.exam.items if item.week == template.week), None)
        notebook_path = str(notebook.relative_to(self.exam.root)) if notebook else ""
        choices = list(question.choices)
        # Each learner has the choices in an order of their own, so letters cannot be passed on.
        random.Random(seed).shuffle(choices)
        answer: AnswerKey
        if isinstance(question.answer, str):
            answer = ChoiceAnswer(len(choices), choices.index(question.answer))
        else:
            answer = NumericAnswer(question.answer, question.tolerance)
        return ExamQuestion(
            part="questions",
            key=template.name,
            week=template.week,
            notebook=notebook_path,
            section=_section_title(notebook, template.section_number) if notebook else "",
            ask=question.ask,
            answer=answer,
            why=question.why,
            choices=tuple(choices),
        )

    def _faults(self) -> Iterator[ExamQuestion]:
        count = self.exam.checkpoint.faults
        kernels = self.exam.pool.sample_faults(count, derive_seed(self.seed, "faults")) if count else []
        for number, kernel in enumerate(kernels, start=1):
            ask = (
                "This launch has one fault. Name it and its line; for a race, name both lines, "
                "or the one line that races with itself."
            )
            answer = FaultAnswer(kernel.kind, kernel.lines)
            yield ExamQuestion(
                "reading",
                f"fault_{number}",
                0,
                "",
                "",
                ask,
                answer,
                kernel.message,
                listing=reading.number_lines(kernel.source),
            )

    def _pictures(self) -> Iterator[ExamQuestion]:
        count = self.exam.checkpoint.pictures
        tasks = self.exam.pool.sample_pictures(count, derive_seed(self.seed, "pictures")) if count else []
        for number, (kernel, candidates) in enumerate(tasks, start=1):
            answer = ChoiceAnswer(len(candidates), candidates.index(kernel))
            why = f"the kernel is {kernel.path.stem}; kp profile shows such counters for your own"
            yield ExamQuestion(
                "reading",
                f"picture_{number}",
                0,
                "",
                "",
                PICTURE_QUESTION,
                answer,
                why,
                listing=_list_candidates(kernel, candidates),
            )


PICTURE_QUESTION = "Which of the four kernels produces these counters?"


def _list_candidates(kernel: ExecutedKernel, candidates: list[ExecutedKernel]) -> str:
    kernels = [
        f"{letter})\n{reading.number_lines(candidate.source)}"
        for letter, candidate in zip(LETTERS, candidates, strict=False)
    ]
    return "\n\n".join([reading.format_picture(kernel.picture), *kernels])


def _section_title(notebook: Path, section: int) -> str:
    """Return the title of a section, such as "3 · A tile for a block", or "" if there is no such section."""
    cells = json.loads(notebook.read_text("utf-8")).get("cells", []) if notebook.is_file() else []
    texts = ("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")
    headings = (re.search(rf"^## ({section} · .+)$", text, re.MULTILINE) for text in texts)
    return next((heading[1].replace("`", "") for heading in headings if heading), "")


def name_words(name: str) -> set[str]:
    """Return the words of a name without accents, case and punctuation, which learning platforms change."""
    # NFKD separates accents from their letters.
    plain = "".join(
        character for character in unicodedata.normalize("NFKD", name) if not unicodedata.combining(character)
    )
    return set(re.findall(r"[^\W_]+", plain.casefold()))


def _parse_number(text: str) -> float | None:
    """Parse 1,800 or 1 800, 50%, 3e6, 2^20 or 2**20; return None if `text` is not a number."""
    # Questions name the unit, so the percent sign carries no information.
    text = text.strip().removesuffix("%").rstrip()
    if _THOUSANDS.fullmatch(text):
        text = re.sub("[,_ ]", "", text)
    base, _, exponent = text.replace("**", "^").partition("^")
    try:
        number = float(base) ** float(exponent or 1)
    except (ValueError, ArithmeticError):
        return None
    # A negative base with a fractional exponent gives a complex number.
    return number if isinstance(number, float) and math.isfinite(number) else None


def find_exam(number: int, root: Path | None = None) -> Exam:
    """Return the exam of a phase. Raises registry.LookupFailed if the phase has none, and spec.DeclarationError."""
    course_root = root or registry.root()
    items = tuple(
        item for item in registry.exercises(course_root) if item.phase.startswith(f"{number}_") and not item.is_elective
    )
    if not items:
        raise registry.LookupFailed(f"there is no phase {number}; kp list shows the exercises")
    return Exam(course_root, number, items[0].phase, registry.load_checkpoint(items[0].phase, course_root), items)
