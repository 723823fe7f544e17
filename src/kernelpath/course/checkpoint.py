"""A phase's exam as it is declared: `checks/<phase>/checkpoint.py`, with prose in checkpoint.md, kernels in reading/.

    ## Week 2: in_flight, section 1

    A memory answers after {latency} ns and moves {bandwidth} GB/s. How many kB (10^3 bytes) keep it busy?

    Answer: {kilobytes} within 1%

    Why: latency times bandwidth.

    ## Written: cause

    What is asked, to be answered in 50 to 200 words.

    Rubric:

    - 2 points: what a good answer names.
    - 1 point: what else.

A question has the form that `course.lesson` describes, a name, and the section of the week's notebook that prepares it,
where there is one. Names in braces stand for the numbers that
checkpoint.py declares under that name; a question without such numbers is taken as it is.
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

FEWEST_WORDS, MOST_WORDS = 50, 200
"""Of a written answer."""

_WEEK = re.compile(r"Week (\d+): (\w+)(?:, section (\d+))?")
_WRITTEN = re.compile(r"Written: (\w+)")
_CRITERION = re.compile(r"- (\d) points?: (\S.*)")


@dataclass(frozen=True)
class Numbers:
    """The numbers of a question, drawn for each learner.

    ranges: what each of them is drawn from, by name. computed: `computed(**drawn)` gives the others, the answer among
    them. unless: `unless(**drawn)` refuses a draw.
    """

    ranges: Mapping[str, Sequence[Any]]
    computed: Callable[..., Mapping[str, Any]]
    unless: Callable[..., bool] | None = None

    def draws(self) -> Iterator[dict[str, Any]]:
        """Every draw that there is, with what is computed."""
        for values in itertools.product(*self.ranges.values()):
            drawn = dict(zip(self.ranges, values, strict=True))
            if self.unless is None or not self.unless(**drawn):
                yield {**drawn, **self.computed(**drawn)}


@dataclass(frozen=True)
class Posed:
    """A question of checkpoint.md, by its name and the week whose notebook prepares it, in this section; 0 for any."""

    week: int
    name: str
    section: Section
    numbers: Numbers | None = None
    read: int = 0

    def every(self) -> Iterator[Question]:
        """The question with every draw of its numbers. Raises DeclarationError for one that is no question."""
        yield from map(self._with, self.numbers.draws() if self.numbers else [{}])

    def drawn(self, seed: int) -> Question:
        """The question with the numbers that the seed draws. Raises DeclarationError."""
        draws = list(self.numbers.draws()) if self.numbers else [{}]
        return self._with(random.Random(seed).choice(draws))

    def _with(self, values: Mapping[str, Any]) -> Question:
        if self.numbers is None:
            return lesson.question(self.section)
        try:
            blocks = tuple(
                (line, tuple(text.format_map(values) for text in lines)) for line, lines in self.section.blocks
            )
        except (KeyError, ValueError, IndexError) as error:
            raise self.section.error(f"{error!r} is not one of {', '.join(values)} of {self.name}") from error
        return lesson.question(replace(self.section, blocks=blocks))


@dataclass(frozen=True)
class Criterion:
    """What a good written answer names, and the points for it."""

    points: int
    text: str


@dataclass(frozen=True)
class Prompt:
    """What is to be answered in writing, and the rubric by which a person marks it. No program does."""

    name: str
    ask: str
    rubric: tuple[Criterion, ...]

    @property
    def points(self) -> int:
        return sum(criterion.points for criterion in self.rubric)


@dataclass(frozen=True)
class Twist:
    """The deliverable as some learners get it: an exercise of its own, for which no solution is published.

    stub: the files that a learner starts from, by suffix; the statement is the docstring of the ".py" file.
    """

    name: str
    exercise: Exercise
    stub: Mapping[str, str]


@dataclass(frozen=True)
class Checkpoint:
    """A phase's exam.

    deliverable: the name of the exercise whose twists are handed in. numbers: by the name of the question.
    faults, pictures: how many of the kernels in reading/ with a planted fault, and how many counter pictures, a learner
    gets. pass_mark: the share of the questions, and of the reading tasks, that has to be answered correctly.
    questions, prompts: read from checkpoint.md.
    """

    deliverable: str
    twists: Sequence[Twist]
    numbers: Mapping[str, Numbers] = field(default_factory=dict)
    faults: int = 0
    pictures: int = 0
    pass_mark: float = 0.7
    questions: tuple[Posed, ...] = ()
    prompts: tuple[Prompt, ...] = ()

    def __post_init__(self) -> None:
        require(0 < self.pass_mark <= 1, f"pass_mark: {self.pass_mark} is not a share")
        require(bool(self.twists), "twists: none is declared")
        require(len({one.name for one in self.twists}) == len(self.twists), "twists: two have the same name")

    def twist(self, name: str) -> Twist:
        """Raises DeclarationError where the course no longer has it."""
        found = next((one for one in self.twists if one.name == name), None)
        if found is None:
            raise DeclarationError(f"there is no twist {name!r}; the course has changed since it was drawn")
        return found


def read(path: Path, declared: Checkpoint) -> Checkpoint:
    """The exam with the prose of checkpoint.md. Raises DeclarationError, which names the file and the line."""
    questions: list[Posed] = []
    prompts: list[Prompt] = []
    for section in lesson.sections(path):
        if found := _WEEK.fullmatch(section.heading):
            numbers = declared.numbers.get(found[2])
            questions.append(Posed(int(found[1]), found[2], section, numbers, int(found[3] or 0)))
        elif found := _WRITTEN.fullmatch(section.heading):
            prompts.append(_prompt(found[1], section))
        else:
            headings = '"## Week 3: name_of_the_question" and "## Written: name"'
            raise section.error(f'"## {section.heading}" is not expected here; the headings are {headings}')
    names = [posed.name for posed in questions] + [prompt.name for prompt in prompts]
    require(bool(questions), f'{path}: it has no question; write one below "## Week 3: name_of_the_question"')
    require(len(set(names)) == len(names), f"{path}: two questions have the same name")
    unused = sorted(set(declared.numbers) - set(names))
    require(not unused, f"{path}: no question is named {', '.join(unused)}, for which checkpoint.py has numbers")
    for one in questions:
        next(one.every())
    return replace(declared, questions=tuple(sorted(questions, key=lambda one: one.week)), prompts=tuple(prompts))


def _prompt(name: str, section: Section) -> Prompt:
    """What is asked, then "Rubric:", then the criteria."""
    texts = [" ".join(line.strip() for line in lines) for _, lines in section.blocks]
    form = 'a prompt is followed by "Rubric:" and by a list such as "- 2 points: names the bound"'
    if len(texts) < 3 or texts[-2] != "Rubric:":
        raise section.error(form)
    line, lines = section.blocks[-1]
    found = [_CRITERION.fullmatch(text) for text in _items(lines)]
    criteria = tuple(Criterion(int(one[1]), lesson.unescaped(one[2])) for one in found if one)
    if len(criteria) < len(found):
        raise section.error(form, line)
    return Prompt(name, replace(section, blocks=section.blocks[:-2]).text(), criteria)


def _items(lines: Sequence[str]) -> list[str]:
    items: list[str] = []
    for text in lines:
        if text.startswith("  ") and items:
            items[-1] += f" {text.strip()}"
        else:
            items.append(text.rstrip())
    return items
