"""Format the grades of a class as a Markdown table, for the summary of a workflow."""

from __future__ import annotations

import re
from collections.abc import Sequence

from kernelpath import words
from kernelpath.school.gradebook import Grade, next_step

_MARKUP = re.compile(r"[\\`*_{}\[\]<>()#+!|~&@:-]")
"""The special characters of Markdown, of HTML, and of GitHub's mentions and emoji."""


def format_markdown(grades: Sequence[Grade]) -> str:
    """Return a line for each grade, and the sum below the table. Text written by learners is escaped.

    The table of a single learner, who reads it, has the next step. A teacher's table of many learners does not.
    """
    has_many_learners = len({graded.learner for graded in grades}) > 1
    headings = ["learner"] if has_many_learners else []
    headings += ["exercise", "verdict", "stars", "cause"] + ([] if has_many_learners else ["next"])
    rows = [headings, ["---"] * len(headings)]
    for graded in grades:
        name = [_escape_markup(graded.learner)] if has_many_learners else []
        cells = [*name, _escape_markup(graded.exercise.partition("/")[2]), *_result_cells(graded)]
        rows.append(cells if has_many_learners else [*cells, _escape_markup(next_step(graded.report))])
    passed = sum(graded.report is not None and graded.report.verdict.passed for graded in grades)
    table = "\n".join(f"| {' | '.join(row)} |" for row in rows)
    return f"{table}\n\n{passed} of {len(grades)} passed\n"


def _result_cells(graded: Grade) -> list[str]:
    report = graded.report
    if report is None:
        return ["NOT\\_HANDED\\_IN", "0", ""]
    place = f" ({report.file}:{report.line})" if report.line else ""
    cause = f"{report.cause or report.verdict.meaning}{place}"
    return [_escape_markup(report.verdict.value), str(report.stars), _escape_markup(cause)]


def _escape_markup(text: str) -> str:
    return _MARKUP.sub(r"\\\g<0>", " ".join(words.escaped(text).split()))
