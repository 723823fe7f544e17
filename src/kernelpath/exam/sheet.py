"""The answer sheet: a TOML file in the learner's folder, with every question as a comment above its answer."""

from __future__ import annotations

import random
import textwrap
from pathlib import Path
from typing import Any

import tomlkit
import tomlkit.exceptions

from kernelpath.exam import NotValid
from kernelpath.exam.questions import Asked, Exam
from kernelpath.files import write_atomically

ANSWERS = "answers.toml"

_INTRODUCTION = """\
Checkpoint {number}: your answers. Answer a choice with its letter and a number with a number, between the quotes.
Give whole numbers exactly and round others to three digits. {needed} of {questions} right answers pass.
Then: kp checkpoint {number}
kp checkpoint {number} --ask repeats in the terminal what is not right yet.
The seed shuffles the choices: leave it as it is."""
_COLUMNS = 110


class Sheet:
    """The answer sheet: a TOML file in the learner's folder, with every question as a comment above its answer."""

    def __init__(self, exam: Exam, path: Path) -> None:
        """Read the sheet, or begin an empty one that is not saved yet. Raises NotValid."""
        self.path = path
        try:
            self._document = tomlkit.parse(path.read_text(encoding="utf-8")) if path.exists() else _empty(exam)
            self.questions = exam.questions(int(self._document["seed"]))
            self._answers: Any = self._document["answers"]
            self.right = {asked.key: asked.right(self.given(asked)) for asked in self.questions}
        except (tomlkit.exceptions.TOMLKitError, UnicodeDecodeError, TypeError, ValueError, AttributeError) as error:
            raise NotValid(f"{path} cannot be read ({error}); fix it, or remove it to start over") from error

    def given(self, asked: Asked) -> str:
        """What stands in the sheet, empty if nothing."""
        return str(self._answers.get(asked.key, ""))

    def complaints(self) -> list[str]:
        """What in the sheet does not answer any question, or cannot be understood, a sentence each."""
        known = {asked.key: asked for asked in self.questions}
        unknown = [f"unknown key {key}; ignored" for key in self._answers if key not in known]
        unclear = [
            f"{key}: {text!r} is not {asked.wanted}"
            for key, asked in known.items()
            if (text := self.given(asked)) and not asked.understands(text)
        ]
        return unknown + unclear

    def answer(self, asked: Asked, text: str) -> bool:
        """Write an answer down; returns whether it is right."""
        self._answers[asked.key] = text
        self.right[asked.key] = asked.right(text)
        self.save()
        return self.right[asked.key]

    def save(self) -> None:
        """Write the sheet with every question of the exam in it. Raises OSError."""
        for asked in self.questions:
            if asked.key not in self._answers:
                _append(self._answers, asked)
        write_atomically(self.path, tomlkit.dumps(self._document))


def _empty(exam: Exam) -> tomlkit.TOMLDocument:
    document = tomlkit.document()
    count = len(exam.questions(0))
    told = _INTRODUCTION.format(number=exam.number, needed=exam.needed(count), questions=count)
    for line in told.splitlines():
        document.add(tomlkit.comment(line))
    document.add("seed", tomlkit.item(random.SystemRandom().randrange(1 << 31)))
    document.add(tomlkit.nl())
    document.add("answers", tomlkit.table())
    return document


def _append(answers: Any, asked: Asked) -> None:
    answers.add(tomlkit.nl())
    lines = [f"{asked.place}: {asked.question.ask}", *(f"  {letter}) {choice}" for letter, choice in asked.lettered)]
    for line in lines:
        for part in textwrap.wrap(line, _COLUMNS, subsequent_indent="     " if line.startswith("  ") else ""):
            answers.add(tomlkit.comment(part.replace("\n", " ")))
    answers.add(asked.key, "")
