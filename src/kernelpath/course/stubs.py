"""Stubs: what a learner starts from, how it may differ from the solution, and how to restore it."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

from kernelpath import files
from kernelpath.course.progress import folder
from kernelpath.course.registry import Item

_OPEN = ("TODO", "raise NotImplementedError")
_OF_A_KERNEL = re.compile(r"__global__|[{;]")
_CONSTANTS = re.compile(r"(?:\s|const [^;{}]*;)*")
"""Neither has two ways to match the same text, so a hostile source takes no longer than any other of its length."""


class NoStub(Exception):
    """The stub cannot be restored. The message says why and what to do."""


def is_open(text: str) -> bool:
    """Whether a file is still to be solved."""
    return any(mark in text for mark in _OPEN)


def empty_kernel(text: str) -> int:
    """The line in which a kernel of a CUDA C++ source begins that holds constants and comments alone; 0 without one."""
    code = files.blank_comments(text)
    declared = False  # whether `__global__` was the last word before a brace or a semicolon
    for mark in _OF_A_KERNEL.finditer(code):
        if mark[0] == "{" and declared:
            end = code.find("}", mark.end())
            if end < 0:
                return 0
            if _CONSTANTS.fullmatch(code, mark.end(), end):
                return code.count("\n", 0, mark.start()) + 1
        declared = mark[0] == "__global__"
    return 0


def drift(stub: str, solution: str) -> list[tuple[int, str]]:
    """Lines of a stub, with their numbers, that solving it would have to change: solving only ever adds lines.

    A line is free to go if it holds TODO or raises NotImplementedError.
    """
    kept = Counter(line.rstrip() for line in solution.splitlines())
    drifted = []
    for number, line in enumerate(stub.splitlines(), start=1):
        text = line.rstrip()
        if not text or is_open(text):
            continue
        if kept[text] == 0:
            drifted.append((number, text))
        kept[text] -= 1
    return drifted


def stub_of(item: Item, solution: Path) -> Path:
    """The stub of one of the solution's files."""
    return item.root / "phases" / solution.relative_to(item.course / "solutions")


def pristine(item: Item) -> dict[Path, str]:
    """The files of the stub as the course last gave them, from the history of git. Raises NoStub.

    It is the newest version that is open and, where the solution is at hand, has not drifted from it: work in progress
    may be committed. In a learner's folder it is the stub that the package carries.
    """
    if item.course != item.root:
        start = item.course / "phases"
        found = files.submitted(start / item.stub.relative_to(item.root / "phases"))
        return {item.root / "phases" / path.relative_to(start): path.read_text("utf-8") for path in found}
    solutions = {stub_of(item, path): path.read_text("utf-8") for path in item.files("solutions")}
    paths = list(solutions) or [item.stub.with_suffix(".cu"), item.stub]
    for commit in _history(item, paths):
        texts = {path: text for path in paths if (text := _show(item, commit, path))}
        if is_open(texts.get(item.stub, "")) and not any(
            drift(texts.get(path, ""), solutions[path]) for path in solutions
        ):
            return texts
    raise NoStub(f"git history has no stub of {item.name}; fetch the course again: git pull")


def keep(item: Item) -> Path | None:
    """Copy a learner's files of an exercise to a folder of their own and return it; None if there are none."""
    paths = item.files("phases")
    if not paths:
        return None
    aside = folder(item.root) / "kept" / f"{item.name}-{datetime.now():%Y%m%d-%H%M%S-%f}"
    aside.mkdir(parents=True)
    for path in paths:
        place = aside / path.relative_to(item.stub.parent)
        place.parent.mkdir(exist_ok=True, parents=True)
        shutil.copy2(path, place)
    return aside


def _history(item: Item, paths: list[Path]) -> Iterator[str]:
    yield from _git(item, "log", "--format=%H", "--", *map(str, paths)).split()


def _show(item: Item, commit: str, path: Path) -> str:
    return _git(item, "show", f"{commit}:./{path.relative_to(item.root)}", check=False)


def _git(item: Item, *arguments: str, check: bool = True) -> str:
    try:
        done = subprocess.run(["git", *arguments], cwd=item.root, capture_output=True, text=True, encoding="utf-8")
    except FileNotFoundError as error:
        raise NoStub("git is needed to restore a stub; install it: sudo apt install git") from error
    if check and done.returncode:
        raise NoStub(f"git cannot read this checkout: {done.stderr.strip()}")
    return done.stdout
