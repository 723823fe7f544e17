"""The answer sheet: a TOML file in the learner's folder, with every question as a comment above its answer."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import tomlkit
import tomlkit.exceptions
import tomlkit.items

from kernelpath.course.checkpoint import FEWEST_WORDS, MOST_WORDS, Prompt
from kernelpath.exam import NotValid
from kernelpath.exam.questions import Asked, Exam, Number, Paper
from kernelpath.files import Unreadable, read_source, write_atomically

ANSWERS = "answers.toml"
MOST_BYTES = 1 << 20
"""Of a sheet that is read."""

_INTRODUCTION = """\
Checkpoint {number} of {name}. Numbers, kernels and deliverable are drawn
from the name: do not change it.

Answer between the quotes: with the letter of a choice, or with a number.
Give whole numbers exactly and round others to three digits.
{needed} right answers pass. Written answers have {fewest} to {most} words.

Then: kp checkpoint {number}
kp checkpoint {number} --ask asks in the terminal what has no answer yet.
How many are right is told when all is graded, and which ones after a pass."""
_COLUMNS = 78


class Sheet:
    """What a learner wrote, on the paper that is the learner's own."""

    def __init__(self, exam: Exam, path: Path, name: str | None = None) -> None:
        """Read the sheet, or begin an empty one for that name, which is not saved yet. Raises NotValid.

        name: has to be the sheet's where there is one.
        """
        self.path = path
        self.paper: Paper
        if path.exists():
            self._read(exam)
            if name is not None and exam.paper(name).seed != self.paper.seed:
                raise NotValid(f"{path} is the sheet of {self.paper.name}, not of {name}; give --from another folder")
        elif name is None:
            begin = f'kp checkpoint {exam.number} --name "Your Name"'
            raise NotValid(f"there is no {path.name} in {path.parent} yet; {begin} begins the exam")
        else:
            self.paper = exam.paper(name)
            self._document = _empty(self.paper)
        self._answers, *_ = (self._table(name) for name in ("answers", "written", "marks"))
        self.right = {asked.key: asked.right(self.given(asked)) for asked in self.paper.asked}

    def _read(self, exam: Exam) -> None:
        try:
            text = read_source(self.path, MOST_BYTES).decode("utf-8")
            self._document = tomlkit.parse(text)
        except Unreadable as error:
            raise NotValid(f"{error}; a sheet is text of a few pages") from error
        except (tomlkit.exceptions.TOMLKitError, UnicodeDecodeError, ValueError, RecursionError) as error:
            raise NotValid(f"{self.path} cannot be read ({error}); fix it, or remove it to start over") from error
        number, name = self._document.get("checkpoint"), self._document.get("name")
        if not isinstance(name, str) or number != exam.number:
            told = f'checkpoint = {exam.number} and name = "Your Name"'
            raise NotValid(f"{self.path} cannot be read: it needs {told}; fix it, or remove it to start over")
        self.paper = exam.paper(str(name))

    def _table(self, name: str) -> Any:
        found = self._document.get(name)
        if found is None:
            found = self._document[name] = tomlkit.table()
        if not isinstance(found, dict):
            raise NotValid(f"{self.path} cannot be read: [{name}] is not a table; fix it, or remove it to start over")
        return self._document[name]

    @property
    def prompts(self) -> tuple[Prompt, ...]:
        return self.paper.exam.declared.prompts

    def given(self, asked: Asked) -> str:
        """What stands in the sheet, empty if nothing."""
        return str(self._answers.get(asked.key, ""))

    def unanswered(self, questions: Sequence[Asked]) -> list[Asked]:
        """Those of these questions whose answer is empty, or none that can be understood."""
        return [asked for asked in questions if not asked.understands(self.given(asked))]

    def written(self, prompt: Prompt) -> str:
        """A written answer; empty for a prompt that nobody has answered."""
        return str(self._table("written").get(prompt.name, "")).strip()

    def marks(self, prompt: Prompt) -> tuple[int, ...] | None:
        """The points that the learner gave to an answer, one for each criterion; None where there are none."""
        found = self._table("marks").get(prompt.name)
        return tuple(map(int, found)) if _are_marks(found, prompt) else None

    def complaints(self) -> list[str]:
        """What in the sheet does not answer any question, or cannot be understood, a sentence each."""
        known = {asked.key: asked for asked in self.paper.asked}
        prompts = {prompt.name: prompt for prompt in self.prompts}
        found = [f"unknown key {key}; ignored" for key in self._answers if key not in known]
        found += [f"unknown key {key}; ignored" for key in self._table("written") if key not in prompts]
        found += [
            f"marks of {key} are not {len(prompts[key].rubric)} points in the rubric's range; ignored"
            if key in prompts
            else f"unknown key {key}; ignored"
            for key, given in self._table("marks").items()
            if key not in prompts or not _are_marks(given, prompts[key])
        ]
        found += [
            f"{key}: {textwrap.shorten(text, 40)!r} is not {asked.wanted}"
            for key, asked in known.items()
            if (text := self.given(asked)) and not asked.understands(text)
        ]
        found += [
            f"{key}: check the unit"
            for key, asked in known.items()
            if isinstance(asked.answer, Number) and asked.answer.in_another_unit(self.given(asked))
        ]
        return found

    def answer(self, asked: Asked, text: str) -> None:
        """Write an answer down."""
        self._answers[asked.key] = text
        self.right[asked.key] = asked.right(text)
        self.save()

    def mark(self, prompt: Prompt, points: Sequence[int]) -> None:
        """Write down what the learner gives to an answer of one's own, a number for each criterion."""
        self._table("marks")[prompt.name] = list(points)
        self.save()

    def save(self) -> None:
        """Write the sheet with every question of the exam in it. Raises OSError."""
        for asked in self.paper.asked:
            if asked.key not in self._answers:
                _append(self._answers, _question_lines(asked), asked.key, tomlkit.string(""))
        written = self._table("written")
        for prompt in self.prompts:
            if prompt.name not in written:
                told = [f"{FEWEST_WORDS} to {MOST_WORDS} words:", *_wrapped(prompt.ask)]
                _append(written, told, prompt.name, tomlkit.string("\n", multiline=True))
        write_atomically(self.path, tomlkit.dumps(self._document))


def _are_marks(given: Any, prompt: Prompt) -> bool:
    return (
        isinstance(given, list)
        and len(given) == len(prompt.rubric)
        and all(
            isinstance(points, int) and 0 <= points <= one.points
            for points, one in zip(given, prompt.rubric, strict=True)
        )
    )


def _empty(paper: Paper) -> tomlkit.TOMLDocument:
    exam, count = paper.exam, len(paper.asked)
    told = _INTRODUCTION.format(
        number=exam.number,
        name=paper.name,
        needed=f"{exam.needed(count)} of {count}",
        fewest=FEWEST_WORDS,
        most=MOST_WORDS,
    )
    document = tomlkit.document()
    for line in told.splitlines():
        document.add(tomlkit.comment(line))
    document.add("checkpoint", tomlkit.item(exam.number))
    document.add("name", tomlkit.item(paper.name))
    document.add(tomlkit.nl())
    document.add("answers", tomlkit.table())
    document.add("written", tomlkit.table())
    document.add("marks", tomlkit.table())
    return document


def _append(table: Any, lines: Sequence[str], key: str, value: tomlkit.items.Item) -> None:
    table.add(tomlkit.nl())
    for line in lines:
        table.add(tomlkit.comment(line))
    table.add(key, value)


def _question_lines(asked: Asked) -> list[str]:
    lines = _wrapped(f"{asked.place}: {asked.ask}")
    lines += [part for letter, choice in asked.lettered for part in _wrapped(choice, f"  {letter}) ")]
    lines += ["", *asked.listing.splitlines()] if asked.listing else []
    return lines if asked.choices else [*lines, *_wrapped(f"({asked.wanted})")]


def _wrapped(text: str, before: str = "") -> list[str]:
    """Lines of the sheet's width. Code between the paragraphs stays as it is."""
    lines: list[str] = []
    for paragraph in text.splitlines():
        lines += textwrap.wrap(paragraph, _COLUMNS, initial_indent=before, subsequent_indent=" " * len(before)) or [""]
    return lines
