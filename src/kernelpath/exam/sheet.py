"""Read and write the answer sheet: a TOML file with each question as a comment above its answer."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import tomlkit
import tomlkit.exceptions
import tomlkit.items

from kernelpath.course.checkpoint import MAX_WORDS, MIN_WORDS, Prompt
from kernelpath.exam import ExamError
from kernelpath.exam.questions import Exam, ExamQuestion, NumericAnswer, Paper
from kernelpath.files import Unreadable, read_source, write_atomically

ANSWERS = "answers.toml"

# The largest sheet that is read.
MAX_SHEET_BYTES = 1 << 20

_INTRODUCTION = """\
Checkpoint {number} of {name}. Numbers, kernels and deliverable are drawn
from the name: do not change it.

Answer between the quotes: with the letter of a choice, or with a number.
Give whole numbers exactly and round others to three digits.
{needed} right answers pass. Written answers have {fewest} to {most} words.

Then: kp checkpoint {number}
kp checkpoint {number} --ask asks in the terminal what has no answer yet.
When all is graded, it says how many are right, and after a pass, which ones."""
_LINE_WIDTH = 78


class Sheet:
    """The answers of one learner to the learner's own paper.

    Attributes:
        is_correct: Whether the answer to each question is right, by the question's key.
    """

    def __init__(self, exam: Exam, path: Path, name: str | None = None) -> None:
        """Read the sheet, or begin an empty one for `name` without saving it. Raises ExamError.

        Args:
            name: The learner's name, which must be the name in the sheet if the sheet exists.
        """
        self.path = path
        self.paper: Paper
        if path.exists():
            self._read(exam)
            if name is not None and exam.paper(name).seed != self.paper.seed:
                raise ExamError(f"{path} is the sheet of {self.paper.name}, not of {name}; give --from another folder")
        elif name is None:
            begin = f'kp checkpoint {exam.number} --name "Your Name"'
            raise ExamError(f"there is no {path.name} in {path.parent} yet; {begin} begins the exam")
        else:
            self.paper = exam.paper(name)
            self._document = _create_document(self.paper)
        # Create all three tables, so that learners find them in the file.
        self._answers, _, _ = (self._table(name) for name in ("answers", "written", "marks"))
        self.is_correct = {
            question.key: question.is_correct(self.answer_text(question)) for question in self.paper.questions
        }

    def _read(self, exam: Exam) -> None:
        try:
            text = read_source(self.path, MAX_SHEET_BYTES).decode("utf-8")
            self._document = tomlkit.parse(text)
        except Unreadable as error:
            raise ExamError(f"{error}; a sheet is text of a few pages") from error
        # tomlkit reports some invalid input by other exceptions, such as deep nesting by RecursionError.
        except (tomlkit.exceptions.TOMLKitError, UnicodeDecodeError, ValueError, RecursionError) as error:
            raise ExamError(f"{self.path} cannot be read ({error}); fix it, or remove it to start over") from error
        number = self._document.get("checkpoint")
        name = self._document.get("name")
        # The name draws the paper, and the number belongs to the questions: without them the answers mean nothing.
        if not isinstance(name, str) or number != exam.number:
            required = f'checkpoint = {exam.number} and name = "Your Name"'
            raise ExamError(f"{self.path} cannot be read: it needs {required}; fix it, or remove it to start over")
        self.paper = exam.paper(str(name))

    def _table(self, name: str) -> Any:
        table = self._document.get(name)
        if table is None:
            table = self._document[name] = tomlkit.table()
        if not isinstance(table, dict):
            raise ExamError(f"{self.path} cannot be read: [{name}] is not a table; fix it, or remove it to start over")
        return self._document[name]

    @property
    def prompts(self) -> tuple[Prompt, ...]:
        return self.paper.exam.checkpoint.prompts

    def answer_text(self, question: ExamQuestion) -> str:
        """Return the answer as it stands in the sheet, empty if there is none."""
        return str(self._answers.get(question.key, ""))

    def unanswered(self, questions: Sequence[ExamQuestion]) -> list[ExamQuestion]:
        """Return the questions whose answer is empty or cannot be understood."""
        return [question for question in questions if not question.understands(self.answer_text(question))]

    def written(self, prompt: Prompt) -> str:
        """Return a written answer, empty if there is none."""
        return str(self._table("written").get(prompt.name, "")).strip()

    def marks(self, prompt: Prompt) -> tuple[int, ...] | None:
        """Return the learner's own points for each criterion of an answer, or None if there are no valid points."""
        points = self._table("marks").get(prompt.name)
        return tuple(map(int, points)) if _are_valid_marks(points, prompt) else None

    def warnings(self) -> list[str]:
        """Return a sentence for each entry that answers no question or cannot be understood."""
        questions_by_key = {question.key: question for question in self.paper.questions}
        prompts = {prompt.name: prompt for prompt in self.prompts}
        sentences = [f"unknown key {key}; ignored" for key in self._answers if key not in questions_by_key]
        sentences += [f"unknown key {key}; ignored" for key in self._table("written") if key not in prompts]
        sentences += [
            f"marks of {key} are not {len(prompts[key].rubric)} points in the rubric's range; ignored"
            if key in prompts
            else f"unknown key {key}; ignored"
            for key, points in self._table("marks").items()
            if key not in prompts or not _are_valid_marks(points, prompts[key])
        ]
        sentences += [
            f"{key}: {textwrap.shorten(text, 40)!r} is not {question.expected_format}"
            for key, question in questions_by_key.items()
            if (text := self.answer_text(question)) and not question.understands(text)
        ]
        sentences += [
            f"{key}: check the unit"
            for key, question in questions_by_key.items()
            if isinstance(question.answer, NumericAnswer)
            and question.answer.in_another_unit(self.answer_text(question))
        ]
        return sentences

    def answer(self, question: ExamQuestion, text: str) -> None:
        """Enter an answer and save the sheet."""
        # Every answer is saved at once, so that an interrupted session loses nothing.
        self._answers[question.key] = text
        self.is_correct[question.key] = question.is_correct(text)
        self.save()

    def mark(self, prompt: Prompt, points: Sequence[int]) -> None:
        """Enter the learner's own points for a written answer, one number for each criterion, and save the sheet."""
        self._table("marks")[prompt.name] = list(points)
        self.save()

    def save(self) -> None:
        """Write the sheet with every question of the exam in it. Raises OSError."""
        for question in self.paper.questions:
            # An answer that is there stays, with the comments that the learner wrote around it.
            if question.key not in self._answers:
                _append_answer(self._answers, _format_question(question), question.key, tomlkit.string(""))
        written = self._table("written")
        for prompt in self.prompts:
            if prompt.name not in written:
                comment = [f"{MIN_WORDS} to {MAX_WORDS} words:", *_wrap(prompt.ask)]
                _append_answer(written, comment, prompt.name, tomlkit.string("\n", multiline=True))
        write_atomically(self.path, tomlkit.dumps(self._document))


def _are_valid_marks(points: Any, prompt: Prompt) -> bool:
    return (
        isinstance(points, list)
        and len(points) == len(prompt.rubric)
        and all(
            isinstance(value, int) and 0 <= value <= criterion.points
            for value, criterion in zip(points, prompt.rubric, strict=True)
        )
    )


def _create_document(paper: Paper) -> tomlkit.TOMLDocument:
    exam = paper.exam
    question_count = len(paper.questions)
    introduction = _INTRODUCTION.format(
        number=exam.number,
        name=paper.name,
        needed=f"{exam.correct_answers_needed(question_count)} of {question_count}",
        fewest=MIN_WORDS,
        most=MAX_WORDS,
    )
    document = tomlkit.document()
    for line in introduction.splitlines():
        document.add(tomlkit.comment(line))
    document.add("checkpoint", tomlkit.item(exam.number))
    document.add("name", tomlkit.item(paper.name))
    document.add(tomlkit.nl())
    document.add("answers", tomlkit.table())
    document.add("written", tomlkit.table())
    document.add("marks", tomlkit.table())
    return document


def _append_answer(table: Any, lines: Sequence[str], key: str, value: tomlkit.items.Item) -> None:
    table.add(tomlkit.nl())
    for line in lines:
        table.add(tomlkit.comment(line))
    table.add(key, value)


def _format_question(question: ExamQuestion) -> list[str]:
    lines = _wrap(f"{question.place}: {question.ask}")
    lines += [part for letter, choice in question.lettered for part in _wrap(choice, f"  {letter}) ")]
    lines += ["", *question.listing.splitlines()] if question.listing else []
    return lines if question.choices else [*lines, *_wrap(f"({question.expected_format})")]


def _wrap(text: str, prefix: str = "") -> list[str]:
    """Wrap each line of `text` to the width of the sheet, and indent it below `prefix`."""
    lines: list[str] = []
    for paragraph in text.splitlines():
        lines += textwrap.wrap(paragraph, _LINE_WIDTH, initial_indent=prefix, subsequent_indent=" " * len(prefix)) or [
            ""
        ]
    return lines
