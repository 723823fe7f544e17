"""Parse lessons, the prose of exercises: one Markdown file each, `checks/<stem>.md`, without importing torch.

    ## Hint 1

    Three hints, from a nudge to nearly the answer.

    ## Hint 2
    ## Hint 3

    ## Question

    How many MB (10^6 bytes) does it have to move?

    Answer: 12

    Why: what is shown after the answer, right or wrong.

    ## Prediction

    Asked before a measurement and held against it. What is the least time, in microseconds?

    Answer: 201.3 within 2%

    Why: the answer may be off by that much. Without "within" it must be exact.

    ## Question

    A choice. What happens to the time?

    - [ ] it halves
      - optional: why this choice is wrong, shown after it was given
    - [x] it hardly changes

    Why: the box of the right one is crossed.

    ## Explanation

    What is shown after a pass: what an expert would do next, and why.

At least one question or prediction is needed. A paragraph may be wrapped anywhere: its lines are joined by spaces. An
empty line starts a new paragraph, and a fenced block (three backticks) is kept as it is. A backslash before punctuation
outside of code is for Markdown alone (`\\_\\_shared\\_\\_`) and is not shown.

A phase's exam asks questions of the same form: `course.checkpoint`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from kernelpath import words
from kernelpath.course.errors import DeclarationError, require

# Marks the places of a drafted lesson where prose is still to be written.
TODO = "TODO"

# Matches inline code, which stays as it is, or a backslash before punctuation. Source: CommonMark, 2.4.
_ESCAPE = re.compile(r"(`[^`]*`)|\\([!-/:-@\[-`{-~])")
_CHOICE = re.compile(r"- \[(?P<mark>[ xX])\] +(?P<text>\S.*)")
_REASON = re.compile(r"  - +(?P<text>\S.*)")
_ANSWER = re.compile(r"Answer: *(?P<number>\S+?)(?: +within +(?P<percent>\S+) *%)?")
_WHY = "Why: "
_FENCE = "```"

# The number of the first line, and the lines.
Block = tuple[int, tuple[str, ...]]


@dataclass(frozen=True)
class Question:
    """A question: a choice if `choices` are given, else a number.

    Attributes:
        answer: The right choice, or the right number in the unit that `ask` names.
        why: The explanation, shown after the answer, right or wrong.
        tolerance: The relative tolerance of a number.
        predict: Whether the question is asked before a measurement and compared with it.
        reasons: For each choice why it is wrong; "" for the right one, and where no reason is written.
    """

    ask: str
    answer: str | float
    why: str
    choices: tuple[str, ...] = ()
    tolerance: float = 0.0
    predict: bool = False
    reasons: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        require(bool(self.ask.strip() and self.why.strip()), "questions: ask and why must not be empty")
        if self.choices:
            require(self.answer in self.choices, f"questions: the answer {self.answer!r} is none of the choices")
            require(len(set(self.choices)) == len(self.choices) >= 2, "questions: two or more different choices")
        else:
            number = isinstance(self.answer, (int, float)) and math.isfinite(self.answer)
            require(number, f"questions: without choices the answer must be a finite number, not {self.answer!r}")

    def accepts(self, answer: str | float) -> bool:
        """Return whether an answer is right: the choice itself, or a number within the tolerance."""
        if isinstance(answer, str) or isinstance(self.answer, str):
            return answer == self.answer
        # An exact answer still gets 1e-9: 0.1 + 0.2 is a right answer to 0.3.
        return abs(answer - self.answer) <= max(self.tolerance, 1e-9) * abs(self.answer)

    def reason_against(self, answer: str | float) -> str:
        """Return why a choice is wrong; "" for the right one, and where no reason is written."""
        return dict(zip(self.choices, self.reasons, strict=False)).get(str(answer), "")


@dataclass(frozen=True)
class Lesson:
    """The prose of an exercise: three hints, at least one question, an explanation."""

    hints: tuple[str, str, str]
    questions: tuple[Question, ...]
    explain: str


@dataclass(frozen=True)
class Section:
    """The text below one heading."""

    path: Path
    line: int
    heading: str
    blocks: tuple[Block, ...]

    def error(self, message: str, line: int | None = None) -> DeclarationError:
        return DeclarationError(f"{self.path}:{line or self.line}: {message}")

    def text(self) -> str:
        """Return the blocks as they are shown. Raises DeclarationError for an empty section."""
        if not self.blocks:
            raise self.error(f'"## {self.heading}" is empty; write its text below the heading')
        return _render_blocks(self.blocks)


def read(path: Path) -> Lesson:
    """Parse the lesson in a file.

    Raises DeclarationError, which names the file, the line and what is expected there.
    """
    hints: list[str] = []
    questions: list[Question] = []
    explain = ""
    for section in sections(path):
        heading = section.heading
        if heading == f"Hint {len(hints) + 1}" and len(hints) < 3:
            hints.append(section.text())
        elif heading in ("Question", "Prediction"):
            questions.append(parse_question(section, predict=heading == "Prediction"))
        elif heading == "Explanation" and not explain:
            explain = section.text()
        else:
            headings = '"## Hint 1" to "## Hint 3" in order, "## Question", "## Prediction" and one "## Explanation"'
            raise section.error(f'"## {heading}" is not expected here; the headings are {headings}')
    if len(hints) != 3:
        raise DeclarationError(f'{path}: it has {len(hints)} hints; write three, below "## Hint 1" to "## Hint 3"')
    if not questions:
        raise DeclarationError(f'{path}: it has no question; write one below "## Question"')
    if not explain:
        raise DeclarationError(f'{path}: it has no explanation; write it below "## Explanation"')
    return Lesson((hints[0], hints[1], hints[2]), tuple(questions), explain)


def placeholders(path: Path) -> Iterator[str]:
    """Yield the places where a drafted lesson is still to be written: "checks/….md:3: Hint 1"."""
    for section in sections(path):
        for line, lines in section.blocks:
            if any(f"{TODO}:" in text for text in lines):
                yield f"{path}:{line}: {section.heading}"


def sections(path: Path) -> list[Section]:
    """Split the file at its headings. Raises DeclarationError if it is unreadable or starts with other text."""
    try:
        lines = words.without_expressions(path.read_text(encoding="utf-8")).splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise DeclarationError(f"{path} cannot be read: {error}; it holds hints, questions and explanation") from error
    file_sections: list[Section] = []
    heading = ""
    heading_line = 0
    blocks: list[Block] = []
    for number, text in _blocks(path, lines):
        if not text[0].startswith("## "):
            blocks.append((number, text))
            continue
        if heading_line:
            file_sections.append(Section(path, heading_line, heading, tuple(blocks)))
        elif blocks:
            raise DeclarationError(f'{path}:{blocks[0][0]}: text before the first heading, which begins with "## "')
        heading = text[0][3:].strip()
        heading_line = number
        blocks = []
    if heading_line:
        file_sections.append(Section(path, heading_line, heading, tuple(blocks)))
    return file_sections


def _blocks(path: Path, lines: Sequence[str]) -> Iterator[Block]:
    """Yield headings, paragraphs, lists and fenced blocks, each with the number of its first line."""
    block: list[str] = []
    fenced = False
    for number, line in enumerate(lines, start=1):
        # A blank line, a fence or a heading ends a paragraph. Inside a fence, none of these means anything.
        fence, heading = line.startswith(_FENCE), line.startswith("## ")
        if block and not fenced and (fence or heading or not line.strip()):
            yield number - len(block), tuple(block)
            block = []
        if fenced or line.strip():
            block.append(line)
        # A closing fence and a heading are complete on their own line.
        if (fenced and fence) or (heading and not fenced):
            yield number + 1 - len(block), tuple(block)
            block = []
        fenced ^= fence
    if fenced:
        raise DeclarationError(f"{path}:{len(lines) + 1 - len(block)}: close the fenced block with {_FENCE}")
    if block:
        yield len(lines) + 1 - len(block), tuple(block)


def parse_question(section: Section, predict: bool = False) -> Question:
    """Parse a question: its text, then choices or an answer, then the explanation. Raises DeclarationError."""
    kinds = [_block_kind(lines) for _, lines in section.blocks]
    answers = [index for index, kind in enumerate(kinds) if kind in ("choices", "answer")]
    if len(answers) != 1:
        expected = '"Answer: 12", "Answer: 201.3 within 2%", or choices ("- [ ] wrong", "- [x] right")'
        raise section.error(f"a question needs exactly one answer, in a separate paragraph: {expected}")
    (index,) = answers
    line, lines = section.blocks[index]
    if index == 0:
        raise section.error("a question starts with its text, above the answer")
    if kinds[index + 1 : index + 2] != ["why"]:
        raise section.error(f'the answer is followed by a paragraph that begins with "{_WHY}"', line)
    why = _render_blocks(section.blocks[index + 1 :]).removeprefix(_WHY)
    ask = _render_blocks(section.blocks[:index])
    try:
        if kinds[index] == "answer":
            number, tolerance = _parse_number(lines)
            return Question(ask, number, why, tolerance=tolerance, predict=predict)
        choices, right, reasons = _parse_choices(lines)
        return Question(ask, right, why, choices=choices, predict=predict, reasons=reasons)
    except DeclarationError as error:
        raise section.error(str(error), line) from error


def _block_kind(lines: tuple[str, ...]) -> str:
    first = lines[0]
    if first.startswith("- ["):
        return "choices"
    if first.startswith("Answer:"):
        return "answer"
    return "why" if first.startswith(_WHY) else "text"


def _parse_number(lines: tuple[str, ...]) -> tuple[float, float]:
    """Parse the answer, an int if it is written as one, and its relative tolerance."""
    expected = 'write "Answer: 12", or "Answer: 201.3 within 2%" with a relative tolerance'
    match = _ANSWER.fullmatch(" ".join(lines).strip())
    require(match is not None, f"{lines[0]!r} is not an answer; {expected}")
    assert match is not None
    try:
        text = match["number"]
        number = int(text) if re.fullmatch(r"-?\d+", text) else float(text)
        return number, float(match["percent"] or 0) / 100
    except ValueError as error:
        raise DeclarationError(f"{error}; {expected}") from error


def _parse_choices(lines: tuple[str, ...]) -> tuple[tuple[str, ...], str, tuple[str, ...]]:
    """Parse all choices and the reasons against them, and find the right choice."""
    items: list[list[str]] = []  # of each choice its text and, if it has one, the reason against it
    right_indices: list[int] = []
    for line in lines:
        choice, reason = _CHOICE.fullmatch(line.rstrip()), _REASON.fullmatch(line.rstrip())
        if choice is not None:
            items.append([choice["text"]])
            right_indices += [len(items) - 1] if choice["mark"] != " " else []
        elif reason is not None and items:
            items[-1].append(reason["text"])
        # The continuation of a choice or of a reason that is wrapped in the file.
        elif line.startswith("  ") and items:
            items[-1][-1] += f" {line.strip()}"
        else:
            raise DeclarationError(f'{line!r} is not a choice; write "- [ ] wrong" or "- [x] right"')
    require(len(right_indices) == 1, f'{len(right_indices)} choices are marked as right; mark one with "- [x]"')
    (right,) = right_indices
    require(all(len(item) <= 2 for item in items), 'write one reason below a choice, "  - reason"')
    require(len(items[right]) == 1, f'the right choice takes no reason; explain it below the choices, after "{_WHY}"')
    # Escapes are removed after the parse: an escaped bracket at the start of a text is no mark.
    texts = [list(map(remove_escapes, item)) for item in items]
    choices = tuple(text for text, *_ in texts)
    return choices, choices[right], tuple(reason[0] if reason else "" for _, *reason in texts)


def _render_blocks(blocks: tuple[Block, ...]) -> str:
    """Return blocks as a terminal shows them: a paragraph as one line, a fenced block unchanged."""
    texts = []
    for _, lines in blocks:
        if lines[0].startswith(_FENCE):
            texts.append("\n".join(lines))
        else:
            texts.append(remove_escapes(" ".join(line.strip() for line in lines)))
    return "\n\n".join(texts)


def remove_escapes(text: str) -> str:
    """Remove the backslashes that are for Markdown alone."""
    return _ESCAPE.sub(lambda match: match[1] or match[2], text)
