"""Test the cache, atomic writes, and the removal of folders."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from kernelpath import files
from warpcheck import cache
from warpcheck.cache import cache_read, cache_root, cache_write, use_root, write_atomically

KEY = "ab12"


@pytest.fixture(autouse=True)
def shared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("WARPCHECK_CACHE", str(tmp_path / "shared"))
    return tmp_path / "shared"


def test_a_cached_value_is_read_back(shared: Path) -> None:
    assert cache_root() == shared
    assert cache_read("simt", KEY) is None
    cache_write("simt", KEY, b"one")
    assert cache_read("simt", KEY) == b"one"
    assert cache_read("cuda", KEY) is None
    assert (shared / "simt" / "ab" / KEY).read_bytes() == b"one"


def test_a_process_with_its_own_cache_does_not_use_the_shared_cache(
    shared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache_write("simt", KEY, b"shared")
    monkeypatch.setattr(cache, "_root", None)  # restores it
    use_root(tmp_path / "own")
    assert cache_read("simt", KEY) is None
    cache_write("simt", KEY, b"own")
    assert (shared / "simt" / "ab" / KEY).read_bytes() == b"shared"


def test_a_cache_that_cannot_be_written_only_costs_time(shared: Path) -> None:
    shared.write_bytes(b"a file where the folder should be")
    cache_write("simt", KEY, b"one")
    assert cache_read("simt", KEY) is None


@pytest.mark.parametrize(("kind", "key"), [("simt", "../../passwd"), ("..", "ab"), ("simt", ""), ("a/b", "ab")])
def test_keys_outside_the_cache_are_refused(kind: str, key: str) -> None:
    with pytest.raises(ValueError, match="is not the name of something in the cache"):
        cache_read(kind, key)


def test_a_failed_write_keeps_the_old_file_and_leaves_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "state"
    write_atomically(path, b"old")
    monkeypatch.setattr(os, "replace", lambda *_: (_ for _ in ()).throw(OSError(28, "no space")))
    with pytest.raises(OSError, match="no space"):
        write_atomically(path, b"new")
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_written_files_have_default_permissions(tmp_path: Path) -> None:
    write_atomically(tmp_path / "ours", b"")
    (tmp_path / "plain").write_bytes(b"")
    assert stat.S_IMODE((tmp_path / "ours").stat().st_mode) == stat.S_IMODE((tmp_path / "plain").stat().st_mode)


def test_remove_handles_deep_and_unreadable_folders(tmp_path: Path) -> None:
    top = tmp_path / "top"
    here = os.getcwd()
    top.mkdir()
    os.chdir(top)
    for _ in range(1500):
        os.mkdir("x" * 50)
        os.chdir("x" * 50)
    Path("file").touch()
    os.chdir(here)
    (top / "closed").mkdir()
    (top / "closed" / "file").touch()
    (top / "closed").chmod(0)
    files.remove(top)
    assert not top.exists()


def test_remove_does_not_follow_links(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "folder")
    files.remove(tmp_path / "link")
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]
