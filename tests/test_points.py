"""Test a teacher's policy: the points of each exercise, its deadline, and the cost of late days."""

from __future__ import annotations

import csv
import os
import re
import textwrap
from collections.abc import Mapping
from datetime import datetime, timedelta, timezone
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from kernelpath.course import registry
from kernelpath.school import gradebook, points
from kernelpath.school.gradebook import UNFINISHED, Grade
from kernelpath.school.handed_in import Entry
from kernelpath.school.points import LearnerScore, Score
from kernelpath.school.policy import LateRule, Policy, PolicyError, read_policy, unmatched
from kernelpath.verdict import Report, Verdict

ROOT = Path(__file__).parents[1]
ADD, TRANSPOSE = (registry.find(name, ROOT) for name in ("vector_add", "transpose"))
DUE = datetime(2026, 10, 5, 23, 59, tzinfo=timezone.utc)
LATE = "[late]\npercent_per_day = 10\n"
FILES = 'times = "files"\n'


def read(tmp_path: Path, text: str, times: str = "") -> Policy:
    (tmp_path / "policy.toml").write_text(text)
    (tmp_path / "submitted.csv").write_text(times)
    return read_policy(tmp_path / "policy.toml", ROOT)


def create_grade(stem: str, stars: int, learner: str = "ada", verdict: Verdict = Verdict.PASSED) -> Grade:
    return Grade(learner, stem, "key", Report(stem, "", "", "", 0, verdict, stars=stars))


def score(policy: Policy, *grades: Grade, max_stars: int = 3) -> LearnerScore:
    (learner,) = points.score_class(grades, [], dict.fromkeys((grade.exercise for grade in grades), max_stars), policy)
    return learner


def create_late_policy(late: Mapping[str, timedelta], rule: LateRule) -> Policy:
    """Return a policy with weekly deadlines under which ada handed in each exercise with a delay.

    late: the delays by exercise.
    """
    deadlines = {stem: DUE + timedelta(weeks=number) for number, stem in enumerate(late)}
    times = {("ada", stem): deadlines[stem] + delay for stem, delay in late.items()}
    return Policy(dict.fromkeys(late, 10.0), deadlines, 1, rule, times=times)


# ---------------------------------------------------------------------------------------------------------------------
# Parsing of the policy file


def test_without_a_policy_an_exercise_has_a_point_for_each_star() -> None:
    learner = score(Policy(), create_grade(ADD.path_id, 2), create_grade(TRANSPOSE.path_id, 0, verdict=Verdict.RACE))
    assert (learner.points, learner.of, learner.passed) == (2, 6, 1)
    assert [score.reason for score in learner.scores] == ["2 of 3 stars", "RACE"]


def test_the_table_of_an_exercise_overrides_its_week_and_the_default(tmp_path: Path) -> None:
    text = f"""{FILES}points = 5
    timezone = "UTC"
    deadline = 2026-09-01
    {LATE}
    [weeks.3]
    deadline = 2026-10-05T23:59:00+02:00
    points = 7
    [exercises.transpose]
    points = 20
    """
    policy = read(tmp_path, text)
    coalescing = registry.find("coalescing", ROOT)
    assert {policy.points[exercise.path_id] for exercise in (ADD, coalescing, TRANSPOSE)} == {5, 7, 20}
    assert policy.points[TRANSPOSE.path_id] == 20
    assert policy.deadlines[TRANSPOSE.path_id] == datetime(2026, 10, 5, 21, 59, tzinfo=timezone.utc)
    assert policy.deadlines[ADD.path_id] == datetime(2026, 9, 2, tzinfo=timezone.utc), "a date ends with its day"
    assert policy.named == (TRANSPOSE,)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("points = ", "is not TOML"),
        ("pionts = 3", "unknown key pionts; did you mean points?"),
        ("zzz = 3", "unknown key zzz; the keys are"),
        ("points = -1", "points = -1 is not a number from 0"),
        ("points = true", "points = True is not a number"),
        ("points = nan", "points = nan is not a number"),
        ('points = "3"', "points = '3' is not a number"),
        ("full_stars = 0", "full_stars = 0 is not a whole number from 1 to 3"),
        ("[exercises.transpos_e]", "there is no exercise 'transpos_e'; did you mean transpose"),
        ("[exercises.transpose]\npoint = 3", "unknown key exercises.transpose.point; did you mean points?"),
        ("[exercises.transpose]\n[exercises.w03c_transpose]", "two tables are about transpose"),
        ("exercises = 3", "exercises = 3 is not a table"),
        ("[weeks.99]", f"[weeks.99] is no week of the course; its weeks are 1 to {registry.exercises()[-1].week}"),
        ("[late]", "lacks percent_per_day in [late]"),
        ("[late]\npercent_per_day = 101", "late.percent_per_day = 101 is not a number from 0 to 100"),
        (f"{LATE}days = 3", "unknown key late.days"),
        (f"{FILES}{LATE}[weeks.3]\ndeadline = 2026-10-05T23:59:00", "has no offset; add timezone"),
        (f'{FILES}{LATE}[weeks.3]\ndeadline = "tomorrow"', "is not a date or a time without quotes"),
        (f"{FILES}[weeks.3]\ndeadline = 2026-10-05T23:59:00Z", "no [late] table; say what a late day costs"),
        (f"{LATE}[weeks.3]\ndeadline = 2026-10-05T23:59:00Z", "does not say where the time of a submission comes from"),
        ('timezone = "Middle/Earth"', 'timezone = "Middle/Earth" is not known'),
        ('timezone = "../../etc/passwd"', "is not known"),
        ('timezone = "Europe/Berlin"\ndeadline = 2026-03-29T02:30:00', "the clocks skip that hour"),
        ('times = "missing.csv"', "missing.csv cannot be read"),
        ('times = "submitted.csv"', "needs a heading with the columns learner and submitted"),
        ("[extensions]\nada = 1.5", "extensions.ada = 1.5 is not a whole number"),
    ],
)
def test_a_mistake_in_a_policy_is_reported_with_its_key(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(PolicyError) as error:
        read(tmp_path, text)
    assert message in str(error.value)


@pytest.mark.parametrize("source", ["docs/teachers.md", "src/kernelpath/school/policy.py"])
def test_the_documented_policies_are_valid(tmp_path: Path, source: str) -> None:
    text = (ROOT / source).read_text()
    pattern = r"```toml\n(.*?)```" if source.endswith(".md") else r"\n\n(    timezone = .*?\n)\n(?!    )"
    match = re.search(pattern, text, re.DOTALL)
    assert match is not None
    policy = read(tmp_path, textwrap.dedent(match[1]), "learner,submitted\nAda Lovelace,2026-10-05 12:00\n")
    assert policy.points[TRANSPOSE.path_id] == 20
    assert policy.extensions == {"Ada Lovelace": 2}
    assert policy.deadline("Ada Lovelace", TRANSPOSE.path_id) is not None
    assert policy.late == LateRule(10, 3, 5, policy.late.grace_minutes if policy.late else 0)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("ada,tomorrow,", "row 2: 'tomorrow' is not a time"),
        ("ada,2026-10-05,", "is not a time"),
        ("ada,2026-10-05 12:00:00,", "has no offset"),
        ("ada,2026-10-05T12:00:00Z,nothing_like_it", "row 2: there is no exercise"),
    ],
)
def test_a_mistake_in_the_times_is_reported_with_its_row(tmp_path: Path, row: str, message: str) -> None:
    with pytest.raises(PolicyError) as error:
        read(tmp_path, 'times = "submitted.csv"', f"learner,submitted,exercise\n{row}\n")
    assert message in str(error.value)


@pytest.mark.parametrize(
    "text",
    [
        *("2026-10-05T21:59:00Z", "2026-10-05 21:59:00 UTC", "2026-10-05T23:59:00+02:00", "2026-10-05 16:59:00 -0500"),
        "2026-10-05 23:59",
    ],
)
def test_times_are_parsed_in_the_formats_of_common_platforms(tmp_path: Path, text: str) -> None:
    policy = read(tmp_path, 'times = "submitted.csv"\ntimezone = "Europe/Berlin"', f"learner;submitted\nada;{text}\n")
    submitted = policy.submitted("ada", ADD.path_id, None)
    assert submitted == datetime(2026, 10, 5, 21, 59, tzinfo=timezone.utc)


def test_the_latest_row_counts_and_a_row_for_an_exercise_takes_precedence(tmp_path: Path) -> None:
    times = """learner,submitted,exercise
    'ada',,
    ada,2026-10-05T12:00:00Z,
    ada,2026-10-05T13:00:00Z,
    ada,2026-10-05T11:00:00Z,
    ada,2026-10-06T00:00:00Z,transpose
    '=bob,2026-10-07T00:00:00Z,
    """.replace("    ", "")
    policy = read(tmp_path, 'times = "submitted.csv"\n[extensions]\nghost = 1', times)
    assert policy.submitted("ada", ADD.path_id, None) == datetime(2026, 10, 5, 13, tzinfo=timezone.utc)
    assert policy.submitted("ada", TRANSPOSE.path_id, None) == datetime(2026, 10, 6, tzinfo=timezone.utc)
    assert policy.submitted("=bob", ADD.path_id, None) == datetime(2026, 10, 7, tzinfo=timezone.utc)
    assert policy.submitted("cyd", ADD.path_id, None) is None
    assert unmatched(policy, ["ada", "=bob", "cyd"]) == ["ghost"]


def test_the_newest_modification_time_of_the_files_counts(tmp_path: Path) -> None:
    policy = read(tmp_path, f'{FILES}timezone = "Europe/Berlin"')
    python_file = tmp_path / ADD.solution.name
    for path, seconds in ((python_file, 100), (python_file.with_suffix(".cu"), 200)):
        path.write_text("")
        os.utime(path, (seconds, seconds))
    assert policy.submitted("ada", ADD.path_id, python_file) == datetime.fromtimestamp(200, timezone.utc)


# ---------------------------------------------------------------------------------------------------------------------
# Computation of the points


@pytest.mark.parametrize(
    ("delay", "points_", "days"),
    [
        (timedelta(0), 10, 0),
        (timedelta(minutes=10), 10, 0),
        (timedelta(minutes=10, seconds=1), 9, 1),
        (timedelta(days=1), 9, 1),
        (timedelta(days=1, seconds=1), 8, 2),
        (timedelta(days=3), 7, 3),
        (timedelta(days=3, seconds=1), 0, 4),
        (timedelta(days=-5), 10, 0),
    ],
)
def test_each_started_day_costs_its_share(delay: timedelta, points_: float, days: int) -> None:
    rule = LateRule(10, most_days=3, grace_minutes=10)
    learner = score(create_late_policy({ADD.path_id: delay}, rule), create_grade(ADD.path_id, 3))
    assert (learner.points, learner.late_days) == (points_, days)


def test_the_penalty_never_exceeds_the_points() -> None:
    learner = score(create_late_policy({ADD.path_id: timedelta(days=30)}, LateRule(10)), create_grade(ADD.path_id, 3))
    assert (learner.points, learner.scores[0].reason) == (0, "30 days late: -100%")


def test_free_days_are_spent_on_the_first_deadlines_with_points_to_lose() -> None:
    stems = [registry.find(name, ROOT).path_id for name in ("hello_grid", "vector_add", "matrix_add")]
    policy = create_late_policy(dict.fromkeys(stems, timedelta(days=2)), LateRule(10, free_days=3))
    failed = create_grade(stems[0], 0, verdict=Verdict.RACE)
    learner = score(policy, failed, create_grade(stems[1], 3), create_grade(stems[2], 3))
    assert [(score.points, score.free_days) for score in learner.scores] == [(0, 0), (10, 2), (9, 1)]
    assert learner.scores[2].reason == "2 days late, 1 free: -10%"
    assert learner.free_days == 3


def test_an_extension_moves_the_deadline_by_calendar_days(tmp_path: Path) -> None:
    """A deadline at 23:59 stays at 23:59 when daylight saving time ends in between."""
    text = f"""{FILES}timezone = "Europe/Berlin"
    deadline = 2026-10-24T23:59:00
    {LATE}
    [extensions]
    "Ada L" = 1
    """
    policy = read(tmp_path, text)
    assert str(policy.deadline("bob", ADD.path_id)) == "2026-10-24 23:59:00+02:00"
    assert str(policy.deadline("Ada L", ADD.path_id)) == "2026-10-25 23:59:00+01:00"


def test_a_deadline_in_a_repeated_hour_is_the_later_one(tmp_path: Path) -> None:
    text = f"""times = "submitted.csv"
    timezone = "Europe/Berlin"
    deadline = 2026-10-25T02:30:00
    {LATE}
    """
    policy = read(tmp_path, text, "learner,submitted\nada,2026-10-25 02:45\n")
    assert score(policy, create_grade(ADD.path_id, 1), max_stars=1).late_days == 0
    assert policy.deadlines[ADD.path_id].astimezone(timezone.utc).hour == 1, "the second 2:30"


def test_lateness_across_a_repeated_hour_is_measured_in_utc() -> None:
    zone = ZoneInfo("Europe/Berlin")
    deadline = datetime(2026, 10, 25, 2, 30, tzinfo=zone, fold=0)
    submitted = datetime(2026, 10, 25, 2, 30, tzinfo=zone, fold=1)
    times = {("ada", ADD.path_id): submitted}
    policy = Policy({ADD.path_id: 10}, {ADD.path_id: deadline}, 1, LateRule(10), times=times)
    assert score(policy, create_grade(ADD.path_id, 1)).late_days == 1


@pytest.mark.parametrize(("full", "max_stars", "reached"), [(1, 3, 10), (2, 3, 5), (None, 3, 10 / 3), (3, 1, 10)])
def test_full_stars_is_the_number_of_stars_for_all_points(full: int | None, max_stars: int, reached: float) -> None:
    learner = score(Policy({ADD.path_id: 10}, full_stars=full), create_grade(ADD.path_id, 1), max_stars=max_stars)
    assert learner.points == round(reached, 2)


def test_a_learner_without_a_time_is_listed_and_counts_as_in_time() -> None:
    policy = Policy({}, {ADD.path_id: DUE}, None, LateRule(10))
    handed_in = create_grade(ADD.path_id, 3, "ada")
    absent = Grade("bob", ADD.path_id, "k", None)
    learners = points.score_class([handed_in, absent], [], {ADD.path_id: 3}, policy)
    assert [learner.points for learner in learners] == [3, 0]
    assert points.learners_without_time(learners) == ["ada"]


def test_a_missing_file_has_no_time(tmp_path: Path) -> None:
    policy = Policy({}, {ADD.path_id: DUE}, None, LateRule(10), by_files=True)
    entry = Entry("ada", ADD, tmp_path / "gone.py")
    (learner,) = points.score_class([create_grade(ADD.path_id, 3)], [entry], {ADD.path_id: 3}, policy)
    assert points.learners_without_time([learner]) == ["ada"]


def test_ungraded_exercises_are_counted_separately() -> None:
    report = Report(ADD.path_id, "", "", "", 0, Verdict.UNAVAILABLE)
    learner = score(Policy(), Grade("ada", ADD.path_id, UNFINISHED, report))
    assert (learner.points, learner.ungraded, learner.scores[0].reason) == (0, 1, "not graded yet")


def test_each_learner_has_a_row_with_the_total_and_every_exercise(tmp_path: Path) -> None:
    policy = create_late_policy({ADD.path_id: timedelta(hours=3), TRANSPOSE.path_id: timedelta(0)}, LateRule(25))
    grades = [
        create_grade(stem, 1, learner) for learner in ("ada", "=bob") for stem in (ADD.path_id, TRANSPOSE.path_id)
    ]
    points.write(tmp_path, points.score_class(grades, [], dict.fromkeys((ADD.path_id, TRANSPOSE.path_id), 1), policy))
    with (tmp_path / "learners.csv").open(newline="") as file:
        ada, bob = csv.DictReader(file)
    assert ada == {
        **{"learner": "ada", "points": "17.5", "of": "20", "percent": "87.5", "passed": "2", "handed_in": "2"},
        **{"ungraded": "0", "late_days": "1", "free_days": "0"},
        **{"vector_add (of 10)": "7.5", "transpose (of 10)": "10"},
    }
    assert (bob["learner"], bob["points"]) == ("'=bob", "20")
    with (tmp_path / "points.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 4
    assert (rows[0]["submitted"], rows[0]["deadline"]) == ("2026-10-06T02:59:00+00:00", "2026-10-05T23:59:00+00:00")
    assert rows[0]["reason"] == "1 day late: -25%"


@pytest.mark.parametrize(("value", "text"), [(0, "0"), (10.0, "10"), (7.5, "7.5"), (3.333, "3.33"), (100, "100")])
def test_points_are_formatted_without_trailing_zeros(value: float, text: str) -> None:
    assert points.format_points(value) == text


def test_the_default_score_equals_that_of_gradescope() -> None:
    grades = [create_grade(ADD.path_id, 2), create_grade(TRANSPOSE.path_id, 1), Grade("ada", "1_x/w09a_y", "k", None)]
    max_stars = {grade.exercise: 3 for grade in grades}
    (learner,) = points.score_class(grades, [], max_stars, Policy())
    assert learner.points == gradebook.gradescope_results(grades, max_stars)["score"]
    assert isinstance(learner.scores[0], Score)
