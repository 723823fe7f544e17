"""Test the grading of a class full of hostile submissions: each fails with a cause and affects no other learner."""

from __future__ import annotations

import csv
import errno
import hashlib
import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from html import escape
from pathlib import Path

import pytest

from kernelpath import words
from kernelpath.course.registry import ExerciseRef
from kernelpath.grading import grade
from kernelpath.school import classroom, gradebook, points, similarity
from kernelpath.school.classroom import describe_skipped
from kernelpath.school.gradebook import Grade
from kernelpath.school.handed_in import all_entries
from kernelpath.school.policy import LateRule, Policy
from kernelpath.show import class_page
from kernelpath.work import landlock, runner
from tests.conftest import DECLARATION

FILE = "w01a_double.py"
RIGHT = "def double(x):\n    return 2 * x\n"
CASE_SECONDS = 4.0
NEVER_LATE = datetime(9999, 1, 1, tzinfo=timezone.utc)

PARENT = "ACCESS_DENIED" if landlock.version() >= 6 else "CRASHED"

# The body of each hostile entry, its verdict, and a part of its cause.
BODIES = {
    "abort": ("os.abort()", "CRASHED", "SIGABRT"),
    "bomb": (
        "ctypes.CDLL(None).system(b'for i in $(seq 300); do sleep 600 & done; wait')",
        "CRASHED",
        "more processes than its quota of 256",
    ),
    "crash": ("ctypes.string_at(0)", "CRASHED", "SIGSEGV"),
    "disk": (
        "\n    while True: os.posix_fallocate(os.open(f'{time.time()}', 66), 0, 60 << 20)",
        "CRASHED",
        "quota of 512 MiB",
    ),
    "exit": ("os._exit(0)", "CRASHED", "exited with status 0"),
    "forges": (
        "\n    for fd in range(3, 64):\n        try: os.write(fd, struct.pack('<Q', 3) + b'\\x81\\xa1a')\n"
        "        except OSError: pass\n    time.sleep(600)",
        "TAMPERED",
        "instead of the worker",
    ),
    "grades": ("open({out!r} + '/grades.json', 'w').write('{{}}')", "ACCESS_DENIED", "grades.json, which is not"),
    "half": (
        "\n    for fd in range(3, 64):\n        try: os.write(fd, struct.pack('<Q', 1000) + b'x')\n"
        "        except OSError: pass\n    time.sleep(600)",
        "TAMPERED",  # the worker's next bytes complete the message
        "instead of the worker",
    ),
    "loop": ("\n    while True: pass", "TIMED_OUT", "no answer within 4 s"),
    "memory": ("return torch.empty(1 << 45)", "CRASHED", "out of memory"),
    "parent": ("os.kill(os.getppid(), 9); time.sleep(600)", PARENT, ""),
    "prints": ("print('\\x1b[2J' + 'x' * 8_000_000); return 2 * x", "PASSED", ""),
    "recurses": ("f = lambda: f(); f()", "CRASHED", "RecursionError: maximum recursion depth"),
    "says": (r"raise ValueError('\x1b]0;owned\x07\u202e' + 'x' * 30_000_000)", "CRASHED", "ValueError: \ufffd]0;owned"),
    "steals": ("exec(open({folder!r} + '/right/w01a_double.py').read())", "ACCESS_DENIED", "which is not its own"),
}

# Unusual names of folders with correct submissions.
NAMES = [b"=1+2", b"a\nb", b"caf\xe9", b"esc\x1b[31m", "\u202egnp".encode(), b"x" * 250]


@dataclass(frozen=True)
class Class:
    folder: Path
    out: Path
    item: ExerciseRef
    grades: Mapping[str, Grade]
    rows: list[dict[str, str]]


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Class:
    root = tmp_path_factory.mktemp("class")
    for tree in ("checks", "phases", "solutions"):
        (root / tree / "1_architecture").mkdir(parents=True)
    item = ExerciseRef(root, "1_architecture/w01a_double")
    item.declaration.write_text(DECLARATION)
    item.solution.write_text(RIGHT)
    folder = root / "handed in"
    out = root / "out"
    write_submissions(folder, out)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runner, "CASE_SECONDS", CASE_SECONDS)
        patch.setenv("KERNELPATH_CACHE", str(root / "cache"))
        grades = classroom.grade_class(folder, out, [item], device="cpu", seed=7, jobs=2)
        assert not list((root / "cache" / "submissions").iterdir()), "no private folder of a submission may remain"
    with (out / "grades.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    return Class(folder, out, item, {row.learner: row for row in grades}, rows)


def write_submissions(folder: Path, out: Path) -> None:
    for learner, (body, _, _) in BODIES.items():
        text = body.format(out=str(out), folder=str(folder)) if "{" in body and "!r}" in body else body
        write(folder / learner, f"import ctypes, os, struct, sys, time, torch\ndef double(x):\n    {text}\n".encode())
    for name in (b"late", b"right", *NAMES):
        write(folder / os.fsdecode(name), RIGHT.encode())
    write(folder / "bom", b"\xef\xbb\xbf" + RIGHT.encode())
    write(folder / "latin", b'NAME = "caf\xe9"\n' + RIGHT.encode())
    write(folder / "huge", RIGHT.encode())
    os.truncate(folder / "huge" / FILE, 100 << 20)
    for learner in ("directory", "fifo", "idle", "link", "looping", "copies", "deep"):
        (folder / learner).mkdir()
    (folder / "directory" / FILE).mkdir()
    os.mkfifo(folder / "fifo" / FILE)
    (folder / "link" / FILE).symlink_to("/etc/passwd")
    (folder / "looping" / FILE).symlink_to(FILE)
    (folder / "copies" / FILE).symlink_to(folder / "right" / FILE)
    (folder / "deep" / "/".join("d" * 200)).mkdir(parents=True)
    (folder / "deep" / "circle").symlink_to("..")


def write(folder: Path, source: bytes) -> None:
    folder.mkdir(parents=True)
    (folder / FILE).write_bytes(source)


FILE_CASES = {
    "bom": ("PASSED", ""),
    "copies": ("COMPILE_ERROR", "is a link out of the learner's folder"),
    "deep": ("NOT_HANDED_IN", ""),
    "directory": ("COMPILE_ERROR", "is not a regular file"),
    "fifo": ("COMPILE_ERROR", "is not a regular file"),
    "huge": ("COMPILE_ERROR", "has 104,857,600 bytes; at most 4,194,304 are graded"),
    "idle": ("NOT_HANDED_IN", ""),
    "late": ("PASSED", ""),
    "latin": ("COMPILE_ERROR", "SyntaxError: "),
    "link": ("COMPILE_ERROR", "is a link out of the learner's folder"),
    "looping": ("COMPILE_ERROR", "is a link to nothing"),
    "right": ("PASSED", ""),
    **{os.fsdecode(name): ("PASSED", "") for name in NAMES},
}
EXPECTED = {**{name: (verdict, cause) for name, (_, verdict, cause) in BODIES.items()}, **FILE_CASES}


@pytest.mark.parametrize("learner", EXPECTED, ids=ascii)
def test_each_learner_gets_the_expected_verdict_and_cause(hostile: Class, learner: str) -> None:
    verdict, cause = EXPECTED[learner]
    report = hostile.grades[learner].report
    assert (report.verdict.value if report else "NOT_HANDED_IN") == verdict, report
    if report is not None:
        assert cause in report.cause
        assert bool(report.cause) is not report.verdict.passed


def test_all_learners_are_listed_in_order(hostile: Class) -> None:
    assert list(hostile.grades) == sorted(EXPECTED)
    assert [row["verdict"] for row in hostile.rows] == [EXPECTED[learner][0] for learner in sorted(EXPECTED)]
    assert len({row["learner"] for row in hostile.rows}) == len(EXPECTED)
    assert len(gradebook.read(hostile.out)) == len(EXPECTED)


def test_the_table_has_no_control_characters_or_formulas(hostile: Class) -> None:
    for row in hostile.rows:
        for cell in row.values():
            assert words.escaped(cell) == cell
            assert not cell.startswith(("=", "+", "-", "@"))
    raw = (hostile.out / "grades.csv").read_bytes()
    assert not set(raw) & (set(range(32)) - {10})
    assert len(raw) < 100_000


def test_the_table_names_what_was_graded(hostile: Class) -> None:
    digest = hashlib.sha256(RIGHT.encode()).hexdigest()
    (row,) = (row for row in hostile.rows if row["learner"] == "right")
    assert row["sha256"] == f"{FILE}={digest}"
    report = hostile.grades["right"].report
    assert report is not None
    assert report.graded == {FILE: digest}


def test_printed_output_is_truncated_and_escaped(hostile: Class) -> None:
    report = hostile.grades["prints"].report
    assert report is not None
    assert 10_000 < len(report.printed) < 30_000
    assert "\x1b" not in report.printed


def test_each_learner_has_a_file_for_gradescope(hostile: Class) -> None:
    scores = {path.stem: json.loads(path.read_text())["score"] for path in (hostile.out / "gradescope").iterdir()}
    assert len(scores) == len(EXPECTED)
    assert sum(scores.values()) == sum(verdict == "PASSED" for verdict, _ in EXPECTED.values())


def test_the_points_and_the_page_are_complete_and_escaped(hostile: Class, tmp_path: Path) -> None:
    entries = all_entries(hostile.folder, [hostile.item])
    policy = Policy(deadlines={hostile.item.path_id: NEVER_LATE}, late=LateRule(10), by_files=True)
    learners = points.score_class([*hostile.grades.values()], entries, {hostile.item.path_id: 1}, policy)
    points.write(tmp_path, learners)
    with (tmp_path / "learners.csv").open(newline="", encoding="utf-8") as file:
        sums = {row["learner"]: float(row["points"]) for row in csv.DictReader(file)}
    assert sums == {row["learner"]: float(row["stars"]) for row in hostile.rows}
    assert points.learners_without_time(learners) == sorted(
        name
        for name, (verdict, cause) in EXPECTED.items()
        if verdict == "COMPILE_ERROR" and "SyntaxError" not in cause
        if name != "huge"
    ), "files that were refused must count as having no time"
    skipped = describe_skipped(hostile.folder)
    assert skipped == ["idle is empty"]
    text = class_page.page(hostile.folder.name, [hostile.item], learners, similarity.find_groups(entries), skipped)
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]", text)
    assert len(text.encode()) < 200_000
    for name in EXPECTED:
        assert escape(words.escaped(name)) in text
        assert name in {learner.learner for learner in learners}


def test_verdicts_do_not_depend_on_the_number_of_jobs(hostile: Class, tmp_path: Path) -> None:
    small_class = tmp_path / "few"
    for learner in ("abort", "bom", "late", "latin", "right"):
        write(small_class / learner, (hostile.folder / learner / FILE).read_bytes())
    outcomes_by_jobs = [
        [
            (row.learner, row.report and (row.report.verdict, row.report.cause, row.report.graded))
            for row in classroom.grade_class(
                small_class, tmp_path / f"out{jobs}", [hostile.item], device="cpu", jobs=jobs
            )
        ]
        for jobs in (1, 2)
    ]
    assert outcomes_by_jobs[0] == outcomes_by_jobs[1]
    assert [learner for learner, _ in outcomes_by_jobs[0]] == ["abort", "bom", "late", "latin", "right"]


def test_a_full_disk_does_not_stop_the_grading(hostile: Class, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for learner in ("late", "right"):
        write(tmp_path / "few" / learner, RIGHT.encode())
    verdicts: list[str] = []

    def fail_with_full_disk(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(gradebook, "write", fail_with_full_disk)
    monkeypatch.setattr(classroom, "_SAVE_SECONDS", 0.0)

    def on_graded(row: Grade, _done: int, _total: int) -> None:
        verdicts.append(row.report.verdict.value if row.report else "")

    with pytest.raises(OSError, match="No space left"):
        classroom.grade_class(tmp_path / "few", tmp_path / "out", [hostile.item], device="cpu", on_graded=on_graded)
    assert verdicts == ["PASSED", "PASSED"]


def test_an_internal_error_affects_one_learner(hostile: Class, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for learner in ("late", "right"):
        write(tmp_path / "few" / learner, RIGHT.encode())
    original = grade.Session.__call__

    def fail_for_late(self: grade.Session, **options: object) -> object:
        if self.job.submission.parent.name == "late":
            raise RecursionError("\x1b[2J")
        return original(self, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(grade.Session, "__call__", fail_for_late)
    grades = classroom.grade_class(tmp_path / "few", tmp_path / "out", [hostile.item], device="cpu")
    late, right = (row.report for row in grades)
    assert late is not None
    assert right is not None
    assert (late.verdict.value, late.cause) == ("UNAVAILABLE", "the grader failed: RecursionError: \ufffd[2J")
    assert right.verdict.passed
