"""Test the copy of a submission that is graded, and the folder that its process may write to."""

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
    """Return a Python file in a folder with its kernel, a header, and unrelated files."""
    folder = tmp_path / "phases"
    folder.mkdir()
    for name in ("one.py", "one.cu", "two.py", "two.cu", "common.cuh", "notes.txt"):
        (folder / name).write_text(f"first {name}")
    return folder / "one.py"


def read_copies(place: Workspace) -> dict[str, str]:
    return {path.name: path.read_text() for path in place.source.iterdir()}


def test_a_submission_that_is_graded_alone_is_copied_with_only_its_kernel(submission: Path, cache: Path) -> None:
    place = Workspace(submission)
    copy = place.copy(alone=True).file
    assert read_copies(place) == {"one.py": "first one.py", "one.cu": "first one.cu"}
    assert copy == place.source / "one.py"
    assert copy.is_relative_to(cache)


def test_adjacent_kernels_and_headers_are_copied_unless_the_submission_is_alone(submission: Path) -> None:
    place = Workspace(submission)
    place.copy(alone=False)
    assert set(read_copies(place)) == {"one.py", "one.cu", "two.cu", "common.cuh"}
    place.copy(alone=True)
    assert set(read_copies(place)) == {"one.py", "one.cu"}


def test_copying_again_replaces_the_earlier_copy(submission: Path) -> None:
    place = Workspace(submission)
    place.copy(alone=True)
    submission.write_text("second")
    (place.source / "one.cu").write_text("forged")
    place.copy(alone=True)
    assert read_copies(place) == {"one.py": "second", "one.cu": "first one.cu"}


def test_copying_again_removes_deleted_and_planted_files(submission: Path) -> None:
    place = Workspace(submission)
    place.copy(alone=True)
    submission.with_suffix(".cu").unlink()
    (place.source / "planted.cuh").write_text("")
    (place.source / "planted").mkdir()
    (place.source / "planted" / "file").write_text("")
    place.copy(alone=True)
    assert read_copies(place) == {"one.py": "first one.py"}


def test_a_file_that_is_too_large_is_not_copied(submission: Path) -> None:
    place = Workspace(submission)
    submission.with_name("data.h").write_bytes(bytes(MOST_BYTES + 1))
    submission.with_name("table.h").write_bytes(bytes(MOST_BYTES))
    place.copy(alone=False)
    assert "data.h" not in read_copies(place)
    assert "table.h" in read_copies(place)


def test_each_submission_always_has_its_own_folders(submission: Path) -> None:
    first = Workspace(submission)
    second = Workspace(submission.with_name("two.py"))
    folders = {first.source, first.own, second.source, second.own}
    assert len(folders) == 4
    assert not any(folder.is_relative_to(parent) for folder in folders for parent in folders if folder != parent)
    assert Workspace(submission).own == first.own


def test_cleaning_keeps_only_the_caches_of_compilers(submission: Path) -> None:
    place = Workspace(submission)
    for name in ("tmp", "triton"):
        (place.own / name).mkdir(parents=True)
        (place.own / name / "file").write_text("")
    place.clean()
    assert not (place.own / "tmp").exists()
    assert (place.own / "triton" / "file").exists()
    place.clean()


def test_symbolic_links_next_to_a_submission_are_not_followed(submission: Path, tmp_path: Path) -> None:
    (tmp_path / "classmate.cu").write_text("theirs")
    submission.with_name("stolen.cuh").symlink_to(tmp_path / "classmate.cu")
    place = Workspace(submission)
    place.copy(alone=False)
    assert "stolen.cuh" not in read_copies(place)


def test_a_submission_that_cannot_be_graded_removes_the_earlier_copy(submission: Path) -> None:
    place = Workspace(submission)
    assert place.copy(alone=True).unusable == ""
    os.truncate(submission, MOST_BYTES + 1)
    copy = place.copy(alone=True)
    assert (copy.unusable, dict(copy.digests)) == ("one.py has 4,194,305 bytes; at most 4,194,304 are graded", {})
    assert read_copies(place) == {}
    submission.unlink()
    os.mkfifo(submission)
    assert place.copy(alone=True).unusable == "one.py is not a regular file"


def test_the_digests_are_of_the_copied_files(submission: Path) -> None:
    place = Workspace(submission)
    digests = place.copy(alone=True).digests
    assert digests == {name: hashlib.sha256(f"first {name}".encode()).hexdigest() for name in ("one.cu", "one.py")}


def test_the_folders_of_the_oldest_submissions_are_removed(
    submission: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workspace, "KEPT", 2)
    for age, name in ((3, "oldest"), (2, "old"), (1, "young")):
        (cache / "submissions" / name).mkdir(parents=True)
        os.utime(cache / "submissions" / name, (1e9 - age, 1e9 - age))
    place = Workspace(submission)
    place.own.mkdir(parents=True)
    place.clean()
    assert {path.name for path in (cache / "submissions").iterdir()} == {"young", place.own.parent.name}
    place.clean(keep=False)
    assert {path.name for path in (cache / "submissions").iterdir()} == {"young"}


def test_folders_over_the_quota_are_removed_with_compiler_caches(
    submission: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(quota, "FOLDER_BYTES", 1 << 20)
    place = Workspace(submission)
    (place.own / "triton").mkdir(parents=True)
    (place.own / "triton" / "file").write_bytes(bytes(1 << 19))
    place.clean()
    assert (place.own / "triton" / "file").exists()
    (place.own / "triton" / "another").write_bytes(bytes(1 << 20))
    place.clean()
    assert not place.own.exists()


def test_concurrent_gradings_have_separate_folders(submission: Path) -> None:
    first = Workspace.reserve(submission)
    second = Workspace.reserve(submission)
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


def test_a_later_grading_reuses_the_folders_and_compiler_caches(submission: Path) -> None:
    earlier = Workspace.reserve(submission)
    (earlier.own / "triton").mkdir(parents=True)
    (earlier.own / "triton" / "kernel").write_text("made")
    earlier.clean()
    later = Workspace.reserve(submission)
    assert later == earlier
    assert (later.own / "triton" / "kernel").read_text() == "made"
    later.clean()


def test_the_folders_of_two_of_many_concurrent_gradings_are_kept(submission: Path, cache: Path) -> None:
    running = [Workspace.reserve(submission) for _ in range(5)]
    for place in running:
        place.own.mkdir()
    for place in reversed(running):
        place.clean()
    assert len(list((cache / "submissions").iterdir())) == 2
    reserved = [Workspace.reserve(submission) for _ in range(2)]
    assert reserved == running[:2]
    for place in reserved:
        place.clean(keep=False)
    assert list((cache / "submissions").iterdir()) == []


def test_the_folders_of_a_killed_grader_are_cleaned_and_reused(submission: Path) -> None:
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


def test_the_folders_of_a_running_grading_are_not_removed(submission: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workspace, "KEPT", 1)
    running = Workspace.reserve(submission)
    finished = Workspace.reserve(submission.with_name("two.py"))
    copy = running.copy(alone=True).file
    os.utime(copy.parents[1], (1e9, 1e9))
    finished.clean()
    assert copy.exists()
    assert finished.own.parent.exists()
    os.utime(finished.own.parent, (1e9, 1e9))
    running.clean()
    assert copy.exists()
    assert not finished.own.parent.exists()


def test_a_partly_removed_folder_of_a_killed_grader_is_removed(submission: Path, cache: Path) -> None:
    leftover = cache / "submissions" / f"{workspace._REMOVED}0"
    (leftover / "own").mkdir(parents=True)
    Workspace.reserve(submission).clean()
    assert not leftover.exists()


def test_folders_that_cannot_be_locked_are_not_shared(
    submission: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A network file system can be mounted without locks, and `flock` fails there."""

    def flock(*_: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", flock)
    first = Workspace.reserve(submission)
    second = Workspace.reserve(submission)
    assert first.own != second.own
    for place in (first, second):
        place.copy(alone=True)
        place.clean()
        assert not place.own.parent.exists()
