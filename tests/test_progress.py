"""The progress file keeps the best, survives what happens to it, and never loses anything silently."""

from __future__ import annotations

import dataclasses
import fcntl
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from kernelpath import files
from kernelpath.course import progress
from kernelpath.course.progress import EMPTY_RECORD, CheckpointScore, NotSaved, Progress, Record, with_report
from kernelpath.verdict import Interval, Measurement, Report, Verdict

STEM = "1_architecture/w01a_double"


def report(verdict: Verdict = Verdict.PASSED, stars: int = 1, seconds: float | None = None) -> Report:
    measured = None
    if seconds is not None:
        even = Interval(1.0, 0.9, 1.1)
        measured = Measurement({}, seconds, seconds, None, even, None, 8, 1, seconds / 2, {}, 9, "events")
    return Report(STEM, "Doubling", "x.py", "H200", 1, verdict, stars=stars, measurement=measured)


def test_a_pass_is_dated_and_later_failures_do_not_undo_it() -> None:
    passed = with_report(EMPTY_RECORD, report(stars=2))
    assert passed.passed is not None
    assert passed.stars == 2
    assert with_report(passed, report(Verdict.WRONG_VALUES, stars=0)) == passed


def test_the_best_of_stars_and_times_is_kept() -> None:
    record = EMPTY_RECORD
    for stars, seconds in ((1, 3e-3), (3, 1e-3), (2, 2e-3)):
        record = with_report(record, report(stars=stars, seconds=seconds))
    assert record.stars == 3
    assert record.best_seconds == {"H200": 1e-3}


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    kept = Progress(tmp_path)
    kept.update(STEM, lambda record: Record("2026-11-21", 3, 2, {"H200": 1e-3}))
    kept.update("other", lambda record: dataclasses.replace(record, hints=record.hints + 1))
    assert kept.records() == {STEM: Record("2026-11-21", 3, 2, {"H200": 1e-3}), "other": Record(hints=1)}
    assert (tmp_path / ".kernelpath" / ".gitignore").read_text() == "*\n"


@pytest.mark.parametrize(
    "text", ["{", "[]", '{"exercises": {"a": {"stars": "many"}}}', '{"exercises": {"a": {"b": 1}}}']
)
def test_a_broken_file_is_set_aside_whole(tmp_path: Path, text: str) -> None:
    said: list[str] = []
    kept = Progress(tmp_path, said.append)
    progress.folder(tmp_path)
    for number in (1, 2):
        kept.path.write_text(text)
        assert kept.records() == {}
        aside = kept.path.with_name(f"progress.broken-{number}.json")
        assert aside.read_text() == text
        assert aside.name in said[-1]
    assert len(said) == 2


def test_an_unwritable_folder_is_said_and_nothing_is_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = Progress(tmp_path)
    kept.update(STEM, lambda record: Record("2026-11-21"))

    def refuse(*_: object) -> None:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(os, "replace", refuse)
    with pytest.raises(NotSaved, match="Read-only file system"):
        kept.update(STEM, lambda record: EMPTY_RECORD)
    assert kept.records() == {STEM: Record("2026-11-21")}
    assert list(kept.path.parent.glob("*.tmp")) == []


def test_ctrl_c_after_the_file_is_in_place_is_still_ctrl_c(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    replace = os.replace

    def interrupted(source: str, target: Path) -> None:
        replace(source, target)
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        files.write_atomically(tmp_path / "file", "new")
    assert (tmp_path / "file").read_text() == "new"


def test_others_may_read_what_is_written_as_far_as_the_umask_lets_them(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        files.write_atomically(tmp_path / "page.html", "text")
    finally:
        os.umask(before)
    assert (tmp_path / "page.html").stat().st_mode & 0o777 == 0o640


def test_what_cannot_be_written_is_named_as_it_was_asked_for(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as caught:
        files.write_atomically(tmp_path / "absent" / "page.html", "text")
    assert caught.value.filename == str(tmp_path / "absent" / "page.html")


def test_a_lock_that_is_held_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "_LOCK_SECONDS", 0.05)
    lock = progress.folder(tmp_path) / "progress.lock"
    with lock.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(NotSaved, match=f"another kp has held {lock}"):
            Progress(tmp_path).update(STEM, lambda record: record)
    Progress(tmp_path).update(STEM, lambda record: record)


def certificate(score: int, missing: Sequence[str]) -> str:
    told = {"checkpoint": 2, "date": "2026-11-21", "device": "GPU", "score": score, "missing": missing, "seed": 1}
    return json.dumps({"certificate": told})


def test_a_checkpoints_last_try_counts_until_there_is_a_certificate(tmp_path: Path) -> None:
    warned: list[str] = []
    kept = Progress(tmp_path, warned.append)
    assert kept.scores() == []
    for score in (40, 30):
        kept.save_attempt(2, certificate(score, ["a question"]))
    assert kept.scores() == [CheckpointScore(2, "2026-11-21", "GPU", 30, passed=False)]
    (tmp_path / ".kernelpath" / "checkpoint2.json").write_text(certificate(90, []))
    kept.save_attempt(2, certificate(10, ["all"]))
    assert kept.scores() == [CheckpointScore(2, "2026-11-21", "GPU", 90, passed=True)]
    assert warned == []
    (tmp_path / ".kernelpath" / "checkpoint2.json").write_text("{}")
    assert [score.score for score in kept.scores()] == [10]
    assert len(warned) == 1


def test_processes_do_not_overwrite_each_other(tmp_path: Path) -> None:
    code = (
        "import sys, dataclasses; from pathlib import Path; from kernelpath.course.progress import Progress\n"
        "for _ in range(20):\n"
        "    more = lambda record: dataclasses.replace(record, hints=record.hints + 1)\n"
        "    Progress(Path(sys.argv[1])).update('a', more)\n"
    )
    running = [subprocess.Popen([sys.executable, "-c", code, str(tmp_path)]) for _ in range(3)]
    assert [process.wait() for process in running] == [0, 0, 0]
    assert json.loads(Progress(tmp_path).path.read_text())["exercises"]["a"]["hints"] == 60
