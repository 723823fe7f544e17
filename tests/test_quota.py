"""Test the memory count of a process tree, which no rlimit of the kernel provides."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kernelpath.work import quota

MEBIBYTE = 1 << 20

TREE = """
import mmap, os, sys, time

shared, private, children, hides = map(int, sys.argv[1:])
memory = mmap.mmap(-1, max(shared, 1))  # shared and anonymous, which RLIMIT_DATA does not count
memory[:shared] = b"x" * shared
if hides:
    import ctypes
    ctypes.CDLL(None).prctl(4, 0)
ready, tell = os.pipe()
for _ in range(children):
    if os.fork() == 0:
        own = b"x" * private
        sum(memory[at] for at in range(0, shared, 4096))
        os.write(tell, b"x")
        time.sleep(600)
for _ in range(children):
    os.read(ready, 1)
print("ready", flush=True)
time.sleep(600)
"""


class Tree:
    """Run a process with shared memory, whose children use the shared memory and have private memory."""

    def __init__(self, shared: int, private: int, children: int, hides: bool = False) -> None:
        amounts = (str(amount) for amount in (shared, private, children, int(hides)))
        self.process = subprocess.Popen([sys.executable, "-c", TREE, *amounts], stdout=subprocess.PIPE)
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == b"ready\n"

    @property
    def pids(self) -> set[int]:
        return {self.process.pid, *quota.descendants(self.process.pid)}

    def used(self) -> int:
        return quota.memory_used(self.pids, threshold=0)

    def close(self) -> None:
        quota.kill_trees([self.process.pid])
        self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()


@pytest.fixture
def trees() -> Iterator[list[Tree]]:
    """Yield a list of trees that are terminated after the test."""
    started: list[Tree] = []
    yield started
    for tree in started:
        tree.close()


def test_memory_that_a_tree_shares_counts_once(trees: list[Tree]) -> None:
    trees.append(Tree(shared=200 * MEBIBYTE, private=0, children=4))
    assert 200 * MEBIBYTE < trees[0].used() < 300 * MEBIBYTE


def test_memory_of_each_process_counts(trees: list[Tree]) -> None:
    trees.append(Tree(shared=0, private=50 * MEBIBYTE, children=4))
    assert 200 * MEBIBYTE < trees[0].used() < 300 * MEBIBYTE


def test_a_tree_below_the_limit_is_not_added_up_page_by_page(
    trees: list[Tree], monkeypatch: pytest.MonkeyPatch
) -> None:
    trees.append(Tree(shared=MEBIBYTE, private=MEBIBYTE, children=1))
    read: list[str] = []
    original = quota._kilobytes

    def record(path: str, *names: str) -> int:
        read.append(path)
        return original(path, *names)

    monkeypatch.setattr(quota, "_kilobytes", record)
    assert quota.memory_used(trees[0].pids, threshold=1 << 30) < 1 << 30
    assert not [path for path in read if path.endswith("smaps_rollup")]


def test_a_process_that_hides_its_pages_counts(trees: list[Tree]) -> None:
    trees.append(Tree(shared=100 * MEBIBYTE, private=0, children=0, hides=True))
    assert trees[0].used() > 100 * MEBIBYTE


def test_a_tree_over_the_limit_is_over_its_quota(
    trees: list[Tree], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trees.append(Tree(shared=200 * MEBIBYTE, private=0, children=2))
    pid = trees[0].process.pid
    assert quota.find_excess(pid, tmp_path) is None
    monkeypatch.setattr(quota, "MEMORY", 100 * MEBIBYTE)
    assert quota.find_excess(pid, tmp_path) is quota.Excess.MEMORY
    assert quota.Excess.MEMORY.description == "used more memory than its quota of 100 MiB, in all its processes"
