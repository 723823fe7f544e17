"""The copy of a submission that is graded, and the folder that its process may write to."""

from __future__ import annotations

from pathlib import Path

import pytest

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


def copied(workspace: Workspace) -> dict[str, str]:
    return {path.name: path.read_text() for path in workspace.source.iterdir()}


def test_a_submission_is_copied_with_its_kernel_and_alone_with_nothing_else(submission: Path, cache: Path) -> None:
    workspace = Workspace(submission)
    copy = workspace.copy(alone=True).file
    assert copied(workspace) == {"one.py": "first one.py", "one.cu": "first one.cu"}
    assert copy == workspace.source / "one.py"
    assert copy.is_relative_to(cache)


def test_the_kernels_and_headers_beside_it_come_along_unless_it_is_alone(submission: Path) -> None:
    workspace = Workspace(submission)
    workspace.copy(alone=False)
    assert set(copied(workspace)) == {"one.py", "one.cu", "two.cu", "common.cuh"}
    workspace.copy(alone=True)
    assert set(copied(workspace)) == {"one.py", "one.cu"}


def test_the_copy_is_what_the_file_is_now(submission: Path) -> None:
    workspace = Workspace(submission)
    workspace.copy(alone=True)
    submission.write_text("second")
    (workspace.source / "one.cu").write_text("forged")
    workspace.copy(alone=True)
    assert copied(workspace) == {"one.py": "second", "one.cu": "first one.cu"}


def test_what_is_no_longer_there_leaves_the_copy(submission: Path) -> None:
    workspace = Workspace(submission)
    workspace.copy(alone=True)
    submission.with_suffix(".cu").unlink()
    (workspace.source / "planted.cuh").write_text("")
    (workspace.source / "planted").mkdir()
    (workspace.source / "planted" / "file").write_text("")
    workspace.copy(alone=True)
    assert copied(workspace) == {"one.py": "first one.py"}


def test_a_file_that_is_too_large_is_left_out(submission: Path) -> None:
    workspace = Workspace(submission)
    submission.with_name("data.h").write_bytes(bytes(MOST_BYTES + 1))
    submission.with_name("table.h").write_bytes(bytes(MOST_BYTES))
    workspace.copy(alone=False)
    assert "data.h" not in copied(workspace)
    assert "table.h" in copied(workspace)


def test_each_submission_has_folders_of_its_own_and_finds_them_again(submission: Path) -> None:
    one, other = Workspace(submission), Workspace(submission.with_name("two.py"))
    folders = {one.source, one.own, other.source, other.own}
    assert len(folders) == 4
    assert not any(one.is_relative_to(other) for one in folders for other in folders if one != other)
    assert Workspace(submission).own == one.own


def test_cleaning_leaves_what_compilers_made_and_nothing_else(submission: Path) -> None:
    workspace = Workspace(submission)
    for name in ("tmp", "triton"):
        (workspace.own / name).mkdir(parents=True)
        (workspace.own / name / "file").write_text("")
    workspace.clean()
    assert not (workspace.own / "tmp").exists()
    assert (workspace.own / "triton" / "file").exists()
    workspace.clean()
