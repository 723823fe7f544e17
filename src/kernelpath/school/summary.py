"""The grades of a class as a table in Markdown, for the summary of a workflow."""

from __future__ import annotations

import re
from collections.abc import Sequence

from kernelpath import words
from kernelpath.school.gradebook import Grade, next_step

_MARKUP = re.compile(r"[\\`*_{}\[\]<>()#+!|~&@:-]")


def markdown(grades: Sequence[Grade]) -> str:
    """Return a line for each grade, and below the table the sum. Nothing that a learner wrote is taken as markup.

    The next step stands in a table of one learner, who reads it, and not in a teacher's table of many.
    """
    many = len({one.learner for one in grades}) > 1
    headings = ["learner"] if many else []
    headings += ["exercise", "verdict", "stars", "cause"] + ([] if many else ["next"])
    rows = [headings, ["---"] * len(headings)]
    for one in grades:
        name = [_plain(one.learner)] if many else []
        cells = [*name, _plain(one.exercise.partition("/")[2]), *_told(one)]
        rows.append(cells if many else [*cells, _plain(next_step(one.report))])
    passed = sum(one.report is not None and one.report.verdict.passed for one in grades)
    table = "\n".join(f"| {' | '.join(row)} |" for row in rows)
    return f"{table}\n\n{passed} of {len(grades)} passed\n"


def _told(graded: Grade) -> list[str]:
    report = graded.report
    if report is None:
        return ["NOT\\_HANDED\\_IN", "0", ""]
    place = f" ({report.file}:{report.line})" if report.line else ""
    cause = f"{report.cause or report.verdict.meaning}{place}"
    return [_plain(report.verdict.value), str(report.stars), _plain(cause)]


def _plain(text: str) -> str:
    return _MARKUP.sub(r"\\\g<0>", " ".join(words.escaped(text).split()))
