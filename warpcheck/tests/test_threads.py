"""The number of threads that run the blocks of a launch."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import warpcheck
from warpcheck import backend
from warpcheck.threads import default_threads, usable_cores


def test_the_environment_sets_the_number_of_threads() -> None:
    assert default_threads({"WARPCHECK_THREADS": "3"}) == 3
    assert default_threads({"WARPCHECK_THREADS": "3", "PYTEST_XDIST_WORKER": "gw0"}) == 3


def test_a_worker_of_pytest_xdist_has_one_thread() -> None:
    assert default_threads({"PYTEST_XDIST_WORKER": "gw1"}) == 1


@pytest.mark.parametrize("setting", ["0", "-1", "many"])
def test_no_number_of_threads_is_an_error(setting: str) -> None:
    with pytest.raises(ValueError, match=f"WARPCHECK_THREADS={setting}: the number of threads is at least 1"):
        default_threads({"WARPCHECK_THREADS": setting})


@pytest.mark.parametrize(("quota", "expected"), [("max 100000", 6), ("250000 100000", 2), ("50000 100000", 1)])
def test_the_default_is_the_number_of_usable_cores(
    quota: str, expected: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(6)), raising=False)
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/cgroup").write_text("0::/jobs/7\n")
    group = tmp_path / "sys/fs/cgroup/jobs"  # the innermost group has no limit of its own
    group.mkdir(parents=True)
    (group / "cpu.max").write_text(quota)
    assert usable_cores(tmp_path) == expected


def test_a_scope_has_a_number_of_threads() -> None:
    with warpcheck.gpu(threads=5):
        assert backend.checks.threads == 5
    assert backend.checks.threads is None
    with pytest.raises(ValueError, match="threads=0: the number of threads is at least 1"), warpcheck.gpu(threads=0):
        pass
