"""Test that the progress file keeps the best results, survives damage, and never loses records silently."""

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


def create_report(verdict: Verdict = Verdict.PASSED, stars: int = 1, seconds: float | None = None) -> Report:
    measurement = None
    if seconds is not None:
        even = Interval(1.0, 0.9, 1.1)
        measurement = Measurement({}, seconds, seconds, None, even, None, 8, 1, seconds / 2, {}, 9, "events")
    return Report(STEM, "Doubling", "x.py", "H200", 1, verdict, stars=stars, measurement=measurement)


def test_a_pass_is_dated_and_later_failures_do_not_undo_it() -> None:
    passed = with_report(EMPTY_RECORD, create_report(stars=2))
    assert passed.passed is not None
    assert passed.stars == 2
    assert with_report(passed, create_report(Verdict.WRONG_VALUES, stars=0)) == passed


def test_the_best_of_stars_and_times_is_kept() -> None:
    record = EMPTY_RECORD
    for stars, seconds in ((1, 3e-3), (3, 1e-3), (2, 2e-3)):
        record = with_report(record, create_report(stars=stars, seconds=seconds))
    assert record.stars == 3
    assert record.best_seconds == {"H200": 1e-3}


def test_updated_records_are_read_back(tmp_path: Path) -> None:
    progress_file = Progress(tmp_path)
    progress_file.update(STEM, lambda record: Record("2026-11-21", 3, 2, {"H200": 1e-3}))
    progress_file.update("other", lambda record: dataclasses.replace(record, hints=record.hints + 1))
    assert progress_file.records() == {STEM: Record("2026-11-21", 3, 2, {"H200": 1e-3}), "other": Record(hints=1)}
    assert (tmp_path / ".kernelpath" / ".gitignore").read_text() == "*\n"


@pytest.mark.parametrize(
    "text", ["{", "[]", '{"exercises": {"a": {"stars": "many"}}}', '{"exercises": {"a": {"b": 1}}}']
)
def test_a_broken_file_is_renamed_and_reported(tmp_path: Path, text: str) -> None:
    warnings: list[str] = []
    progress_file = Progress(tmp_path, warnings.append)
    progress.folder(tmp_path)
    for number in (1, 2):
        progress_file.path.write_text(text)
        assert progress_file.records() == {}
        backup = progress_file.path.with_name(f"progress.broken-{number}.json")
        assert backup.read_text() == text
        assert backup.name in warnings[-1]
    assert len(warnings) == 2


def test_a_failed_write_raises_and_keeps_the_old_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    progress_file = Progress(tmp_path)
    progress_file.update(STEM, lambda record: Record("2026-11-21"))

    def refuse(*_: object) -> None:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(os, "replace", refuse)
    with pytest.raises(NotSaved, match="Read-only file system"):
        progress_file.update(STEM, lambda record: EMPTY_RECORD)
    assert progress_file.records() == {STEM: Record("2026-11-21")}
    assert list(progress_file.path.parent.glob("*.tmp")) == []


def test_an_interrupt_after_the_file_is_replaced_propagates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    replace = os.replace

    def interrupted(source: str, target: Path) -> None:
        replace(source, target)
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        files.write_atomically(tmp_path / "file", "new")
    assert (tmp_path / "file").read_text() == "new"


def test_the_mode_of_a_written_file_follows_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        files.write_atomically(tmp_path / "page.html", "text")
    finally:
        os.umask(before)
    assert (tmp_path / "page.html").stat().st_mode & 0o777 == 0o640


def test_an_error_names_the_requested_path_and_not_the_temporary_file(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as caught:
        files.write_atomically(tmp_path / "absent" / "page.html", "text")
    assert caught.value.filename == str(tmp_path / "absent" / "page.html")


def test_an_update_times_out_when_the_lock_is_held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "_LOCK_SECONDS", 0.05)
    lock = progress.folder(tmp_path) / "progress.lock"
    # A flock belongs to the open file description, so this process conflicts with itself.
    with lock.open("w") as lock_file:
        fcntl.flock(lock_file, fcntl.LOCK_EX)
        with pytest.raises(NotSaved, match=f"another kp has held {lock}"):
            Progress(tmp_path).update(STEM, lambda record: record)
    Progress(tmp_path).update(STEM, lambda record: record)


def encode_certificate(score: int, missing_parts: Sequence[str]) -> str:
    fields = {
        "checkpoint": 2,
        "date": "2026-11-21",
        "device": "GPU",
        "score": score,
        "missing": missing_parts,
        "seed": 1,
    }
    return json.dumps({"certificate": fields})


def test_the_last_attempt_at_a_checkpoint_counts_until_there_is_a_certificate(tmp_path: Path) -> None:
    warnings: list[str] = []
    progress_file = Progress(tmp_path, warnings.append)
    assert progress_file.scores() == []
    for score in (40, 30):
        progress_file.save_attempt(2, encode_certificate(score, ["a question"]))
    assert progress_file.scores() == [CheckpointScore(2, "2026-11-21", "GPU", 30, passed=False)]
    (tmp_path / ".kernelpath" / "checkpoint2.json").write_text(encode_certificate(90, []))
    progress_file.save_attempt(2, encode_certificate(10, ["all"]))
    assert progress_file.scores() == [CheckpointScore(2, "2026-11-21", "GPU", 90, passed=True)]
    assert warnings == []
    (tmp_path / ".kernelpath" / "checkpoint2.json").write_text("{}")
    assert [score.score for score in progress_file.scores()] == [10]
    assert len(warnings) == 1


def test_concurrent_updates_are_not_lost(tmp_path: Path) -> None:
    code = (
        "import sys, dataclasses; from pathlib import Path; from kernelpath.course.progress import Progress\n"
        "for _ in range(20):\n"
        "    more = lambda record: dataclasses.replace(record, hints=record.hints + 1)\n"
        "    Progress(Path(sys.argv[1])).update('a', more)\n"
    )
    running = [subprocess.Popen([sys.executable, "-c", code, str(tmp_path)]) for _ in range(3)]
    assert [process.wait() for process in running] == [0, 0, 0]
    assert json.loads(Progress(tmp_path).path.read_text())["exercises"]["a"]["hints"] == 60
