"""Turn grades into points: for each exercise of each learner, and in total, by a teacher's policy.

`write` creates two tables. learners.csv has a row for each learner: the sum, and the points of each exercise.
points.csv has a row for each learner and exercise, with the time of the submission, the late days, and the reason for
every missing point.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from kernelpath import words
from kernelpath.files import write_atomically
from kernelpath.school.gradebook import UNFINISHED, Grade, neutralize
from kernelpath.school.handed_in import Entry
from kernelpath.school.policy import LateRule, Policy

_DAY = timedelta(days=1)


@dataclass(frozen=True)
class Score:
    """The points of one learner for one exercise.

    Attributes:
        of: The points that the exercise gives.
        most_stars: The stars that it gives on this device.
        late_days: The days that have begun between the deadline and the submission.
        free_days: The late days that cost nothing.
        reason: The reason why points are missing.
    """

    grade: Grade
    of: float
    most_stars: int
    submitted: datetime | None = None
    deadline: datetime | None = None
    points: float = 0.0
    late_days: int = 0
    free_days: int = 0
    reason: str = ""

    @property
    def exercise(self) -> str:
        return self.grade.exercise

    @property
    def verdict(self) -> str:
        return self.grade.status

    @property
    def passed(self) -> bool:
        return self.grade.report is not None and self.grade.report.verdict.passed

    @property
    def ungraded(self) -> bool:
        """Return whether the next run grades the submission again."""
        return self.grade.key == UNFINISHED


@dataclass(frozen=True)
class LearnerScore:
    """The points of one learner, in the order of the exercises."""

    learner: str
    scores: tuple[Score, ...] = field(default=())

    @property
    def points(self) -> float:
        return round(sum(score.points for score in self.scores), 2)

    @property
    def of(self) -> float:
        return round(sum(score.of for score in self.scores), 2)

    @property
    def passed(self) -> int:
        return sum(score.passed for score in self.scores)

    @property
    def handed_in(self) -> int:
        return sum(score.grade.report is not None for score in self.scores)

    @property
    def ungraded(self) -> int:
        return sum(score.ungraded for score in self.scores)

    @property
    def late_days(self) -> int:
        return sum(score.late_days for score in self.scores)

    @property
    def free_days(self) -> int:
        return sum(score.free_days for score in self.scores)


def score_class(
    grades: Sequence[Grade], entries: Iterable[Entry], most_stars: Mapping[str, int], policy: Policy
) -> list[LearnerScore]:
    """Score every learner, in the order of the grades. A file that has vanished has no time.

    Args:
        most_stars: The stars by the path id of an exercise, on the device that graded.
    """
    python_files = {(entry.learner, entry.item.path_id): entry.file for entry in entries}
    by_learner: dict[str, list[Score]] = {}
    for grade in grades:
        key = grade.learner, grade.exercise
        try:
            # The time comes from the policy's table or, without an entry there, from the file.
            submitted = policy.submitted(*key, python_files.get(key)) if grade.report else None
        except OSError:
            submitted = None
        max_stars = most_stars[grade.exercise]
        score = Score(grade, policy.points.get(grade.exercise, max_stars), max_stars, submitted, policy.deadline(*key))
        by_learner.setdefault(grade.learner, []).append(_score_stars(score, policy))
    return [
        LearnerScore(learner, tuple(_apply_late_rule(scores, policy.late))) for learner, scores in by_learner.items()
    ]


def learners_without_time(learners: Iterable[LearnerScore]) -> list[str]:
    """Return the learners who handed in an exercise with a deadline at an unknown time."""
    return [
        learner.learner
        for learner in learners
        if any(score.deadline and score.grade.report and not score.submitted for score in learner.scores)
    ]


def _score_stars(score: Score, policy: Policy) -> Score:
    """Return the score of the stars, without deadlines."""
    if score.ungraded:
        return replace(score, reason="not graded yet")
    report = score.grade.report
    if report is None:
        return replace(score, reason="the unchanged stub" if score.grade.unchanged else "nothing was handed in")
    # A policy for GPUs may ask for three stars where the grading machine, without a GPU, can give one.
    needed = min(policy.full_stars or score.most_stars, score.most_stars)
    reached = min(report.stars, needed)
    missing = f"{report.stars} of {words.count(needed, 'star')}" if 0 < reached < needed else ""
    reason = ": ".join(filter(None, ("" if report.verdict.passed else report.verdict.value, missing)))
    return replace(score, points=round(score.of * reached / needed, 2), reason=reason)


def _apply_late_rule(scores: Sequence[Score], rule: LateRule | None) -> list[Score]:
    """Subtract points for late days. Free days go to exercises with points to lose, by their deadlines."""
    if rule is None:
        return list(scores)
    adjusted = list(scores)
    remaining_free_days = rule.free_days
    dated = [index for index, score in enumerate(scores) if score.deadline is not None]
    # By deadline, as free days would be spent during the term, and not by where they save most points.
    for index in sorted(dated, key=lambda index: (scores[index].deadline, index)):
        adjusted[index] = _score_late(scores[index], rule, remaining_free_days)
        remaining_free_days -= adjusted[index].free_days
    return adjusted


def _score_late(score: Score, rule: LateRule, free_days: int) -> Score:
    if score.submitted is None or score.deadline is None:
        return score
    # The difference of two datetimes in one zone ignores changes of the clocks, the difference of timestamps does not.
    delay = timedelta(seconds=score.submitted.timestamp() - score.deadline.timestamp())
    # The time of grace does not move the deadline: after it, late days count from the deadline.
    if delay <= timedelta(minutes=rule.grace_minutes):
        return score
    days = math.ceil(delay / _DAY)
    lateness = f"{words.count(days, 'day')} late"
    if rule.most_days is not None and days > rule.most_days:
        return replace(
            score, points=0.0, late_days=days, reason=_join_reasons(score.reason, f"{lateness}: counts no more")
        )
    # A submission without points has nothing to save, so it uses up no free days.
    used_free_days = min(days, free_days) if score.points else 0
    percent = min(100.0, rule.percent_per_day * (days - used_free_days))
    lateness += f", {used_free_days} free" if used_free_days else ""
    lateness += f": -{percent:g}%" if percent else ""
    points = round(score.points * (1 - percent / 100), 2)
    return replace(
        score, points=points, late_days=days, free_days=used_free_days, reason=_join_reasons(score.reason, lateness)
    )


def _join_reasons(*reasons: str) -> str:
    return "; ".join(filter(None, reasons))


def write(folder: Path, learners: Sequence[LearnerScore]) -> None:
    """Write learners.csv and points.csv. Raises OSError."""
    write_atomically(folder / "learners.csv", _format_csv(_rows_of_learners(learners)))
    write_atomically(folder / "points.csv", _format_csv(_rows_of_scores(learners)))


def _rows_of_learners(learners: Sequence[LearnerScore]) -> Iterable[Sequence[Any]]:
    exercises = (
        [f"{name_of(score.exercise)} (of {format_points(score.of)})" for score in learners[0].scores]
        if learners
        else []
    )
    counts = ("passed", "handed_in", "ungraded", "late_days", "free_days")
    yield ("learner", "points", "of", "percent", *counts, *exercises)
    for learner in learners:
        percent = f"{100 * learner.points / learner.of:.1f}" if learner.of else ""
        points = [format_points(score.points) for score in learner.scores]
        count_cells = [getattr(learner, count) for count in counts]
        yield (
            learner.learner,
            format_points(learner.points),
            format_points(learner.of),
            percent,
            *count_cells,
            *points,
        )


def _rows_of_scores(learners: Sequence[LearnerScore]) -> Iterable[Sequence[Any]]:
    yield (
        *("learner", "exercise", "verdict", "stars", "points", "of"),
        *("submitted", "deadline", "late_days", "free_days", "reason"),
    )
    for learner in learners:
        for score in learner.scores:
            stars = score.grade.report.stars if score.grade.report else 0
            times = [_format_time(moment) for moment in (score.submitted, score.deadline)]
            points = (format_points(score.points), format_points(score.of))
            late = (score.late_days, score.free_days)
            yield (learner.learner, score.exercise, score.verdict, stars, *points, *times, *late, score.reason)


def _format_time(moment: datetime | None) -> str:
    return moment.isoformat(timespec="seconds") if moment else ""


def _format_csv(rows: Iterable[Sequence[Any]]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    # A name such as "=HYPERLINK(...)" would be a formula in a spreadsheet.
    writer.writerows([neutralize(cell) for cell in row] for row in rows)
    return text.getvalue()


def format_points(points: float) -> str:
    """Format points without needless zeros: "7.5", "10"."""
    return f"{points:.2f}".rstrip("0").rstrip(".")


def name_of(path_id: str) -> str:
    """Return the name of an exercise, "softmax" for "2_cuda/w07a_softmax"."""
    return path_id.partition("/")[2].partition("_")[2]
