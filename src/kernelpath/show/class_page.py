"""Render the page of a class: the exercises and verdicts that stop learners, and each learner's points."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date

from kernelpath import words
from kernelpath.course.registry import ExerciseRef
from kernelpath.school.points import LearnerScore, Score, format_points
from kernelpath.school.similarity import Group
from kernelpath.show import templates

# The length of a cause on the page. grades.csv has the whole cause.
_MAX_CAUSE_CHARACTERS = 300


@dataclass(frozen=True)
class StoppingVerdict:
    """The learners whom one verdict stops at one exercise, each with a score."""

    verdict: str
    meaning: str
    stopped: tuple[tuple[str, Score], ...]


@dataclass(frozen=True)
class ExerciseRow:
    """One exercise of the class.

    Attributes:
        stops: The verdicts that stop learners, the most frequent first.
        absent: The learners who handed in nothing, or the unchanged stub.
    """

    item: ExerciseRef
    passed: int
    stops: tuple[StoppingVerdict, ...]
    absent: tuple[str, ...]
    learners: int

    @property
    def stopped(self) -> int:
        return sum(len(stop.stopped) for stop in self.stops)


def page(
    name: str,
    items: Sequence[ExerciseRef],
    learners: Sequence[LearnerScore],
    groups: Sequence[Group] = (),
    skipped: Sequence[str] = (),
    untimed: Sequence[str] = (),
) -> str:
    """Return a self-contained HTML page.

    Args:
        skipped: Sentences about what was not graded.
        untimed: The learners whose submissions have no time.
    """
    scores = [score for learner in learners for score in learner.scores]
    return templates.render(
        "class.html",
        heading=words.escaped(name),
        today=date.today().isoformat(),
        exercises=list(_exercise_rows(items, learners)),
        learners=learners,
        passed=sum(score.passed for score in scores),
        total=len(scores),
        late=any(score.late_days for score in scores),
        groups=groups,
        skipped=skipped,
        untimed=untimed,
        cause=_cause,
        plain=words.escaped,
        number=format_points,
    )


def _scores_for(path_id: str, learners: Sequence[LearnerScore]) -> list[tuple[str, Score]]:
    return [(learner.learner, score) for learner in learners for score in learner.scores if score.exercise == path_id]


def _exercise_rows(items: Sequence[ExerciseRef], learners: Sequence[LearnerScore]) -> Iterator[ExerciseRow]:
    for item in items:
        scores = _scores_for(item.path_id, learners)
        stopped: dict[str, list[tuple[str, Score]]] = {}
        for learner, score in scores:
            if not score.passed and score.grade.report is not None:
                stopped.setdefault(score.verdict, []).append((learner, score))
        by_frequency = sorted(stopped.items(), key=lambda stop: (-len(stop[1]), stop[0]))
        stops = tuple(
            StoppingVerdict(verdict, _meaning(scores_of_verdict[0][1]), tuple(scores_of_verdict))
            for verdict, scores_of_verdict in by_frequency
        )
        absent = tuple(learner for learner, score in scores if score.grade.report is None)
        yield ExerciseRow(item, sum(score.passed for _, score in scores), stops, absent, len(scores))


def _meaning(score: Score) -> str:
    return score.grade.report.verdict.meaning if score.grade.report else ""


def _cause(score: Score) -> str:
    """Return the cause with its place in the learner's file."""
    report = score.grade.report
    if report is None:
        return ""
    cause = words.shown(" ".join((report.cause or report.verdict.meaning).split()), _MAX_CAUSE_CHARACTERS)
    return f"{cause} ({report.file}:{report.line})" if report.line else cause
