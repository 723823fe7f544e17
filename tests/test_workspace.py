"""The copy of a submission that is graded, and the folder that its process may write to."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from kernelpath.work import quota, workspace
from kernelpath.work.workspace import MOST_BYTES, Workspace


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("KERNELPATH_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def submission(tmp_path: Path) -> Path:
    """A Python file with its kernel, a header and other files beside them."""
    folder = tmp_path / "phases"
    folder.mkdir()
    for name in ("one.py", "one.cu", "two.py", "two.cu", "common.cuh", "notes.txt"):
        (folder / name).write_text(f"first {name}")
    return folder / "one.py"


def copied(place: Workspace) -> dict[str, str]:
    return {path.name: path.read_text() for path in place.source.iterdir()}


def test_a_submission_is_copied_with_its_kernel_and_alone_with_nothing_else(submission: Path, cache: Path) -> None:
    place = Workspace(submission)
    copy = place.copy(alone=True).file
    assert copied(place) == {"one.py": "first one.py", "one.cu": "first one.cu"}
    assert copy == place.source / "one.py"
    assert copy.is_relative_to(cache)


def test_the_kernels_and_headers_beside_it_come_along_unless_it_is_alone(submission: Path) -> None:
    place = Workspace(submission)
    place.copy(alone=False)
    assert set(copied(place)) == {"one.py", "one.cu", "two.cu", "common.cuh"}
    place.copy(alone=True)
    assert set(copied(place)) == {"one.py", "one.cu"}


def test_the_copy_is_what_the_file_is_now(submission: Path) -> None:
    place = Workspace(submission)
    place.copy(alone=True)
    submission.write_text("second")
    (place.source / "one.cu").write_text("forged")
    place.copy(alone=True)
    assert copied(place) == {"one.py": "second", "one.cu": "first one.cu"}


def test_what_is_no_longer_there_leaves_the_copy(submission: Path) -> None:
    place = Workspace(submission)
    place.copy(alone=True)
    submission.with_suffix(".cu").unlink()
    (place.source / "planted.cuh").write_text("")
    (place.source / "planted").mkdir()
    (place.source / "planted" / "file").write_text("")
    place.copy(alone=True)
    assert copied(place) == {"one.py": "first one.py"}


def test_a_file_that_is_too_large_is_left_out(submission: Path) -> None:
    place = Workspace(submission)
    submission.with_name("data.h").write_bytes(bytes(MOST_BYTES + 1))
    submission.with_name("table.h").write_bytes(bytes(MOST_BYTES))
    place.copy(alone=False)
    assert "data.h" not in copied(place)
    assert "table.h" in copied(place)


def test_each_submission_has_folders_of_its_own_and_finds_them_again(submission: Path) -> None:
    one, other = Workspace(submission), Workspace(submission.with_name("two.py"))
    folders = {one.source, one.own, other.source, other.own}
    assert len(folders) == 4
    assert not any(one.is_relative_to(other) for one in folders for other in folders if one != other)
    assert Workspace(submission).own == one.own


def test_cleaning_leaves_what_compilers_made_and_nothing_else(submission: Path) -> None:
    place = Workspace(submission)
    for name in ("tmp", "triton"):
        (place.own / name).mkdir(parents=True)
        (place.own / name / "file").write_text("")
    place.clean()
    assert not (place.own / "tmp").exists()
    assert (place.own / "triton" / "file").exists()
    place.clean()


def test_no_link_beside_a_submission_is_followed(submission: Path, tmp_path: Path) -> None:
    (tmp_path / "classmate.cu").write_text("theirs")
    submission.with_name("stolen.cuh").symlink_to(tmp_path / "classmate.cu")
    place = Workspace(submission)
    place.copy(alone=False)
    assert "stolen.cuh" not in copied(place)


def test_what_cannot_be_graded_leaves_no_older_copy(submission: Path) -> None:
    place = Workspace(submission)
    assert place.copy(alone=True).unusable == ""
    os.truncate(submission, MOST_BYTES + 1)
    told = place.copy(alone=True)
    assert (told.unusable, dict(told.digests)) == ("one.py has 4,194,305 bytes; at most 4,194,304 are graded", {})
    assert copied(place) == {}
    submission.unlink()
    os.mkfifo(submission)
    assert place.copy(alone=True).unusable == "one.py is not a regular file"


def test_the_digests_are_of_what_was_copied(submission: Path) -> None:
    place = Workspace(submission)
    digests = place.copy(alone=True).digests
    assert digests == {name: hashlib.sha256(f"first {name}".encode()).hexdigest() for name in ("one.cu", "one.py")}


def test_the_folders_of_old_submissions_go(submission: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workspace, "KEPT", 2)
    for age, name in ((3, "oldest"), (2, "old"), (1, "young")):
        (cache / "submissions" / name).mkdir(parents=True)
        os.utime(cache / "submissions" / name, (1e9 - age, 1e9 - age))
    one = Workspace(submission)
    one.own.mkdir(parents=True)
    one.clean()
    assert {path.name for path in (cache / "submissions").iterdir()} == {"young", one.own.parent.name}
    one.clean(keep=False)
    assert {path.name for path in (cache / "submissions").iterdir()} == {"young"}


def test_what_is_over_the_quota_goes_with_compilers_output(submission: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quota, "FOLDER_BYTES", 1 << 20)
    one = Workspace(submission)
    (one.own / "triton").mkdir(parents=True)
    (one.own / "triton" / "file").write_bytes(bytes(1 << 19))
    one.clean()
    assert (one.own / "triton" / "file").exists()
    (one.own / "triton" / "another").write_bytes(bytes(1 << 20))
    one.clean()
    assert not one.own.exists()


def test_gradings_at_the_same_time_have_folders_of_their_own(submission: Path) -> None:
    first, second = Workspace.reserve(submission), Workspace.reserve(submission)
    folders = {first.source, first.own, second.source, second.own}
    assert len(folders) == 4
    for place in (first, second):
        (place.own / "tmp").mkdir(parents=True)
    submission.write_text("second")
    second.copy(alone=True)
    second.clean()
    assert (first.own / "tmp").exists()
    assert not first.source.exists()
    first.clean()


def test_a_later_grading_has_the_folders_of_the_earlier_one_with_what_compilers_made(submission: Path) -> None:
    earlier = Workspace.reserve(submission)
    (earlier.own / "triton").mkdir(parents=True)
    (earlier.own / "triton" / "kernel").write_text("made")
    earlier.clean()
    later = Workspace.reserve(submission)
    assert later == earlier
    assert (later.own / "triton" / "kernel").read_text() == "made"
    later.clean()


def test_of_many_gradings_at_the_same_time_the_folders_of_two_are_kept(submission: Path, cache: Path) -> None:
    running = [Workspace.reserve(submission) for _ in range(5)]
    for one in running:
        one.own.mkdir()
    for one in reversed(running):
        one.clean()
    assert len(list((cache / "submissions").iterdir())) == 2
    again = [Workspace.reserve(submission) for _ in range(2)]
    assert again == running[:2]
    for one in again:
        one.clean(keep=False)
    assert list((cache / "submissions").iterdir()) == []


def test_the_folders_of_a_grader_that_was_killed_are_taken_again_without_what_it_left(submission: Path) -> None:
    code = (
        "import os, pathlib, signal, sys\n"
        "from kernelpath.work.workspace import Workspace\n"
        "workspace = Workspace.reserve(pathlib.Path(sys.argv[1]))\n"
        "for name in ('tmp', 'triton'):\n"
        "    (workspace.own / name).mkdir(parents=True)\n"
        "print(workspace.own, flush=True)\n"
        "sys.stdin.readline()\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    command = [sys.executable, "-c", code, str(submission)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as grader:
        assert grader.stdin is not None
        assert grader.stdout is not None
        own = Path(grader.stdout.readline().strip())
        meanwhile = Workspace.reserve(submission)
        assert meanwhile.own != own
        meanwhile.clean(keep=False)
        assert (own / "tmp").exists()
        grader.stdin.write("\n")
    afterwards = Workspace.reserve(submission)
    assert afterwards.own == own
    assert {path.name for path in own.iterdir()} == {"triton"}
    afterwards.clean()


def test_the_folders_of_a_grading_that_runs_do_not_go(submission: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workspace, "KEPT", 1)
    running, other = Workspace.reserve(submission), Workspace.reserve(submission.with_name("two.py"))
    copy = running.copy(alone=True).file
    os.utime(copy.parents[1], (1e9, 1e9))
    other.clean()
    assert copy.exists()
    assert other.own.parent.exists()
    os.utime(other.own.parent, (1e9, 1e9))
    running.clean()
    assert copy.exists()
    assert not other.own.parent.exists()


def test_what_a_grader_left_that_was_killed_while_it_removed_a_folder_goes(submission: Path, cache: Path) -> None:
    left = cache / "submissions" / f"{workspace._REMOVED}0"
    (left / "own").mkdir(parents=True)
    Workspace.reserve(submission).clean()
    assert not left.exists()


def test_folders_that_cannot_be_locked_are_of_one_grading_alone(
    submission: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a network file system that is mounted without locks."""

    def flock(*_: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", flock)
    first, second = Workspace.reserve(submission), Workspace.reserve(submission)
    assert first.own != second.own
    for one in (first, second):
        one.copy(alone=True)
        one.clean()
        assert not one.own.parent.exists()
