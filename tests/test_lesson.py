"""Test the parser of lessons: it returns the text as written and reports each mistake with its line."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from kernelpath import words
from kernelpath.course import lesson, registry
from kernelpath.course.errors import DeclarationError

LESSON = """\
## Hint 1

A paragraph that is
wrapped `in   code` and \\_\\_shared\\_\\_ escaped.

A second one.

## Hint 2

First this:
```
## not a heading

    int i = 0;
```

## Hint 3

`a\\_b` keeps its backslash.

## Prediction

How many? In
bytes.

Answer: 201.3 within 2%

Why: Because.

It has a second paragraph.

## Question

Which one?

- [ ] the first, which
  is long
- [x] 2 \\* 3
- [ ] -inf
  - It is less than
    every \\* number.

Why: It is.

## Question

How many threads?

Answer: 1024

Why: So.

## Explanation

The end.
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    file = tmp_path / "w07a_softmax.md"
    file.write_text(LESSON)
    return file


def test_prose_is_parsed_without_line_breaks_and_escapes(path: Path) -> None:
    parsed = lesson.read(path)
    assert parsed.hints == (
        "A paragraph that is wrapped `in   code` and __shared__ escaped.\n\nA second one.",
        "First this:\n\n```\n## not a heading\n\n    int i = 0;\n```",
        "`a\\_b` keeps its backslash.",
    )
    assert parsed.explain == "The end."


def test_questions_are_predictions_choices_and_numbers(path: Path) -> None:
    prediction, choice, number = lesson.read(path).questions
    assert (prediction.ask, prediction.answer, prediction.tolerance) == ("How many? In bytes.", 201.3, 0.02)
    assert prediction.why == "Because.\n\nIt has a second paragraph."
    assert [question.predict for question in (prediction, choice, number)] == [True, False, False]
    assert choice.choices == ("the first, which is long", "2 * 3", "-inf")
    assert choice.answer == "2 * 3"
    assert choice.reasons == ("", "", "It is less than every * number.")
    reasons = [choice.reason_against(answer) for answer in (*choice.choices, "another", 3.0)]
    assert reasons == [*choice.reasons, "", ""]
    assert (number.answer, number.tolerance, number.choices) == (1024, 0.0, ())


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ("## Hint 2", "## Hint 3", r':8: "## Hint 3" is not expected here; the headings are "## Hint 1" to'),
        ("## Explanation", "## Explanations", r':53: "## Explanations" is not expected'),
        ("## Explanation\n\nThe end.\n", "", r"md: it has no explanation; write it below"),
        ("## Hint 1", "# Hints\n\n## Hint 1", r':1: text before the first heading, which begins with "## "'),
        ("`a\\_b` keeps its backslash.", "", r':17: "## Hint 3" is empty; write its text'),
        (
            "Answer: 201.3 within 2%",
            "201.3",
            r':21: a question needs exactly one answer, .*"Answer: 201.3 within 2%"',
        ),
        ("Answer: 1024", "Answer: 1024\n\nAnswer: 5", r":45: a question needs exactly one answer"),
        ("Answer: 1024", "Answer: many", r':49: could not convert string to float: .*write "Answer: 12"'),
        ("Answer: 1024", "Answer: 10 or so", r':49: .*"Answer: 12"'),
        ("Answer: 1024", "Answer: inf", r":49: .*must be a finite number"),
        ("Why: So.", "So.", r':49: the answer is followed by a paragraph that begins with "Why: "'),
        ("- [x] 2", "- [ ] 2", r":36: 0 choices are marked as right; mark one"),
        ("- [ ] -inf", "- [x] -inf", r":36: 2 choices are marked as right"),
        ("- [ ] -inf", "-inf", r":36: '-inf' is not a choice; write"),
        ("- [ ] -inf", "- [ ] 2 \\* 3", r":36: .*different choices"),
        ("2 \\* 3\n", "2 \\* 3\n  - It is.\n", r":36: the right choice takes no reason"),
        ("  - It is less", "  - It is.\n  - It is less", r":36: write one reason below a choice"),
        ("```\n\n## Hint 3", "\n\n## Hint 3", r":11: close the fenced block with ```"),
    ],
)
def test_a_mistake_is_reported_with_its_line_and_its_remedy(path: Path, before: str, after: str, message: str) -> None:
    assert before in LESSON
    path.write_text(LESSON.replace(before, after, 1))
    with pytest.raises(DeclarationError, match=message) as raised:
        lesson.read(path)
    assert str(raised.value).startswith(str(path))


@pytest.mark.parametrize(
    ("text", "message"), [("", "it has 0 hints"), ("## Hint 1\n\na\n", "it has 1 hints; write three")]
)
def test_a_lesson_that_stops_early_is_refused(path: Path, text: str, message: str) -> None:
    path.write_text(text)
    with pytest.raises(DeclarationError, match=message):
        lesson.read(path)


def test_a_missing_lesson_is_reported(tmp_path: Path) -> None:
    with pytest.raises(DeclarationError, match=r"w01a\.md cannot be read: .*it holds hints"):
        lesson.read(tmp_path / "w01a.md")


def test_placeholders_are_listed(path: Path) -> None:
    path.write_text(LESSON.replace("A second one.", "TODO: more").replace("Why: So.", "Why: TODO: so"))
    assert list(lesson.placeholders(path)) == [f"{path}:6: Hint 1", f"{path}:51: Question"]


def test_a_computed_figure_is_read_as_a_number(path: Path) -> None:
    path.write_text(LESSON.replace("Why: So.", "Why: So 3<!--= 1 + 2 | .0f -->% of it."))
    assert "So 3% of it." in [question.why for question in lesson.read(path).questions]


def test_no_lesson_contains_accidental_markdown() -> None:
    """No character of a lesson becomes emphasis, a list, or a link by accident."""
    from markdown_it import MarkdownIt

    parser = MarkdownIt("commonmark")
    paths = sorted(registry.root().glob("checks/*/*.md"))
    assert len(paths) >= 19
    for path in paths:
        for token in parser.parse(words.without_expressions(path.read_text())):
            assert token.type not in ("ordered_list_open", "blockquote_open", "hr", "code_block"), (path, token.map)
            for part in token.children or ():
                assert part.type not in ("em_open", "strong_open", "link_open", "html_inline"), (path, token.content)


def test_every_wrong_choice_has_a_reason_against_it() -> None:
    wrong = 0
    for item in registry.exercises():
        for question in lesson.read(item.lesson).questions:
            for choice in question.choices:
                if choice != question.answer:
                    assert question.reason_against(choice), (item.name, question.ask, choice)
                    wrong += 1
    assert wrong >= 421, "lessons have lost questions"


def test_reading_a_lesson_imports_no_torch(path: Path) -> None:
    code = (
        f"import sys; from pathlib import Path; from kernelpath.course import lesson; lesson.read(Path({str(path)!r}))"
    )
    done = subprocess.run(
        [sys.executable, "-c", f"{code}; print('torch' in sys.modules)"], capture_output=True, text=True
    )
    assert done.stdout.strip() == "False"
