"""Declare a phase's exam: `checks/<phase>/checkpoint.py`, with prose in checkpoint.md and kernels in reading/.

    ## Week 2: in_flight, section 1

    A memory answers after {latency} ns and moves {bandwidth} GB/s. How many kB (10^3 bytes) keep it busy?

    Answer: {kilobytes} within 1%

    Why: latency times bandwidth.

    ## Written: cause

    What is asked, to be answered in 50 to 200 words.

    Rubric:

    - 2 points: what a good answer names.
    - 1 point: what else.

A question has the format that `course.lesson` describes, a name, and the section of the week's notebook that prepares
it, if there is one. Names in braces stand for the numbers that checkpoint.py declares under the question's name. A
question without such numbers is used as it is.
"""

from __future__ import annotations

import itertools
import random
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from kernelpath.course import lesson
from kernelpath.course.errors import DeclarationError, require
from kernelpath.course.lesson import Question, Section
from kernelpath.course.spec import Exercise

# The length of a written answer, in words.
MIN_WORDS = 50
MAX_WORDS = 200

_WEEK = re.compile(r"Week (\d+): (\w+)(?:, section (\d+))?")
_WRITTEN = re.compile(r"Written: (\w+)")
_CRITERION = re.compile(r"- (\d) points?: (\S.*)")


@dataclass(frozen=True)
class Numbers:
    """The numbers of a question, which the learner's name selects.

    Attributes:
        ranges: The possible values of each number, by name.
        computed: A function from the numbers to further numbers, the answer among them.
        unless: A predicate of the numbers that are not to be used together.
    """

    ranges: Mapping[str, Sequence[Any]]
    computed: Callable[..., Mapping[str, Any]]
    unless: Callable[..., bool] | None = None

    def all_values(self) -> Iterator[dict[str, Any]]:
        """Yield every permitted combination of numbers, with the computed numbers."""
        for values in itertools.product(*self.ranges.values()):
            numbers = dict(zip(self.ranges, values, strict=True))
            if self.unless is None or not self.unless(**numbers):
                yield {**numbers, **self.computed(**numbers)}


@dataclass(frozen=True)
class QuestionTemplate:
    """A question of checkpoint.md, whose numbers differ from learner to learner.

    Attributes:
        week: The week whose notebook prepares the question.
        section_number: The section of that notebook, 0 for no section.
    """

    week: int
    name: str
    section: Section
    numbers: Numbers | None = None
    section_number: int = 0

    def all_questions(self) -> Iterator[Question]:
        """Yield the question with every combination of its numbers. Raises DeclarationError."""
        yield from map(self._fill_in, self.numbers.all_values() if self.numbers else [{}])

    def generate(self, seed: int) -> Question:
        """Return the question with the numbers that `seed` selects. Raises DeclarationError."""
        combinations = list(self.numbers.all_values()) if self.numbers else [{}]
        return self._fill_in(random.Random(seed).choice(combinations))

    def _fill_in(self, values: Mapping[str, Any]) -> Question:
        if self.numbers is None:
            return lesson.parse_question(self.section)
        try:
            blocks = tuple(
                (line, tuple(text.format_map(values) for text in lines)) for line, lines in self.section.blocks
            )
        except (KeyError, ValueError, IndexError) as error:
            raise self.section.error(f"{error!r} is not one of {', '.join(values)} of {self.name}") from error
        return lesson.parse_question(replace(self.section, blocks=blocks))


@dataclass(frozen=True)
class Criterion:
    """A point that a good written answer makes, and its worth."""

    points: int
    text: str


@dataclass(frozen=True)
class Prompt:
    """A question to be answered in writing, and the rubric by which a person marks the answer. No program does."""

    name: str
    ask: str
    rubric: tuple[Criterion, ...]

    @property
    def points(self) -> int:
        return sum(criterion.points for criterion in self.rubric)


@dataclass(frozen=True)
class DeliverableVariant:
    """The deliverable as some learners get it: an exercise of its own, for which no solution is published.

    Attributes:
        stub: The files that a learner starts from, by suffix. The docstring of the ".py" file is the statement.
    """

    name: str
    exercise: Exercise
    stub: Mapping[str, str]


@dataclass(frozen=True)
class Checkpoint:
    """A phase's exam.

    Attributes:
        deliverable: The name of the exercise whose variants are handed in.
        numbers: The numbers of each question that has any, by the question's name.
        faults: The number of kernels with a planted fault in reading/ that a learner gets.
        pictures: The number of counter pictures that a learner gets.
        pass_mark: The share of questions and reading tasks that must be answered correctly.
        questions: Read from checkpoint.md.
        prompts: Read from checkpoint.md.
    """

    deliverable: str
    variants: Sequence[DeliverableVariant]
    numbers: Mapping[str, Numbers] = field(default_factory=dict)
    faults: int = 0
    pictures: int = 0
    pass_mark: float = 0.7
    questions: tuple[QuestionTemplate, ...] = ()
    prompts: tuple[Prompt, ...] = ()

    def __post_init__(self) -> None:
        require(0 < self.pass_mark <= 1, f"pass_mark: {self.pass_mark} is not a share")
        require(bool(self.variants), "twists: none is declared")
        require(
            len({variant.name for variant in self.variants}) == len(self.variants), "twists: two have the same name"
        )

    def variant(self, name: str) -> DeliverableVariant:
        """Return the variant of this name. Raises DeclarationError if the course no longer has the variant."""
        variant = next((variant for variant in self.variants if variant.name == name), None)
        if variant is None:
            raise DeclarationError(f"there is no twist {name!r}; the course has changed since it was drawn")
        return variant


def read(path: Path, declaration: Checkpoint) -> Checkpoint:
    """Add the prose of checkpoint.md to `declaration`. Raises DeclarationError, which names the file and the line."""
    questions: list[QuestionTemplate] = []
    prompts: list[Prompt] = []
    for section in lesson.sections(path):
        if match := _WEEK.fullmatch(section.heading):
            numbers = declaration.numbers.get(match[2])
            questions.append(QuestionTemplate(int(match[1]), match[2], section, numbers, int(match[3] or 0)))
        elif match := _WRITTEN.fullmatch(section.heading):
            prompts.append(_parse_prompt(match[1], section))
        else:
            headings = '"## Week 3: name_of_the_question" and "## Written: name"'
            raise section.error(f'"## {section.heading}" is not expected here; the headings are {headings}')
    names = [template.name for template in questions] + [prompt.name for prompt in prompts]
    require(bool(questions), f'{path}: it has no question; write one below "## Week 3: name_of_the_question"')
    require(len(set(names)) == len(names), f"{path}: two questions have the same name")
    unused = sorted(set(declaration.numbers) - set(names))
    require(not unused, f"{path}: no question is named {', '.join(unused)}, for which checkpoint.py has numbers")
    for template in questions:
        # A text that does not fit its numbers is reported when the exam is read, not to the learner who draws the
        # question.
        next(template.all_questions())
    return replace(
        declaration, questions=tuple(sorted(questions, key=lambda template: template.week)), prompts=tuple(prompts)
    )


def _parse_prompt(name: str, section: Section) -> Prompt:
    """Parse a section that has the question, then "Rubric:", then the criteria."""
    texts = [" ".join(line.strip() for line in lines) for _, lines in section.blocks]
    expected = 'a prompt is followed by "Rubric:" and by a list such as "- 2 points: names the bound"'
    if len(texts) < 3 or texts[-2] != "Rubric:":
        raise section.error(expected)
    line, lines = section.blocks[-1]
    matches = [_CRITERION.fullmatch(text) for text in _list_items(lines)]
    criteria = tuple(Criterion(int(match[1]), lesson.remove_escapes(match[2])) for match in matches if match)
    if len(criteria) < len(matches):
        raise section.error(expected, line)
    return Prompt(name, replace(section, blocks=section.blocks[:-2]).text(), criteria)


def _list_items(lines: Sequence[str]) -> list[str]:
    """Join the lines of each list item."""
    items: list[str] = []
    for text in lines:
        if text.startswith("  ") and items:
            items[-1] += f" {text.strip()}"
        else:
            items.append(text.rstrip())
    return items
