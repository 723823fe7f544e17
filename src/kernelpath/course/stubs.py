"""Handle stubs: what a learner starts from, how it may differ from the solution, and how to restore it."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime
from pathlib import Path

from kernelpath import files
from kernelpath.course.progress import folder
from kernelpath.course.registry import ExerciseRef

_OPEN_MARKS = ("TODO", "raise NotImplementedError")
_KERNEL_MARKS = re.compile(r"__global__|[{;]")

# Matches a body of constants. Both patterns match a text in one way only, so they take linear time.
_CONSTANTS = re.compile(r"(?:\s|const [^;{}]*;)*")


class NoStub(Exception):
    """The stub cannot be restored. The message says why and what to do."""


def is_open(text: str) -> bool:
    """Return whether a file is still to be solved."""
    return any(mark in text for mark in _OPEN_MARKS)


def empty_kernel(text: str) -> int:
    """Return the line of a CUDA C++ kernel whose body has only constants and comments, or 0."""
    code = files.blank_comments(text)
    after_global = False  # whether `__global__` was the last word before a brace or a semicolon
    for mark in _KERNEL_MARKS.finditer(code):
        if mark[0] == "{" and after_global:
            end = code.find("}", mark.end())
            if end < 0:
                return 0
            if _CONSTANTS.fullmatch(code, mark.end(), end):
                return code.count("\n", 0, mark.start()) + 1
        after_global = mark[0] == "__global__"
    return 0


def drift(stub: str, solution: str) -> list[tuple[int, str]]:
    """Return the lines of a stub, with their numbers, that solving it would have to change.

    Solving only ever adds lines. A line may be removed if it has TODO or raises NotImplementedError.
    """
    remaining = Counter(line.rstrip() for line in solution.splitlines())
    drifted = []
    for number, line in enumerate(stub.splitlines(), start=1):
        text = line.rstrip()
        if not text or is_open(text):
            continue
        if remaining[text] == 0:
            drifted.append((number, text))
        remaining[text] -= 1
    return drifted


def stub_of(item: ExerciseRef, solution: Path) -> Path:
    """Return the stub of one of the files of the answer or of the reference kernel."""
    folder = item.reference.parent if solution.is_relative_to(item.reference.parent) else item.solution.parent
    return item.stub.parent / solution.relative_to(folder)


def pristine(item: ExerciseRef) -> dict[Path, str]:
    """Return the files of the stub as the course last delivered them, from the history of git. Raises NoStub.

    This is the newest version that is open and, if the solution is available, has not drifted from it, since work in
    progress may be committed. In a learner's folder it is the stub of the package.
    """
    if item.given:
        # Solving this stub changes lines, so its history cannot show which version was delivered.
        return {item.stub.with_suffix(path.suffix): path.read_text("utf-8") for path in item.given}
    if item.course != item.root:
        start = item.course / "phases"
        paths_in_package = files.submitted(start / item.stub.relative_to(item.root / "phases"))
        return {item.root / "phases" / path.relative_to(start): path.read_text("utf-8") for path in paths_in_package}
    solutions = {stub_of(item, path): path.read_text("utf-8") for path in item.files("solutions")}
    paths = list(solutions) or [item.stub.with_suffix(".cu"), item.stub]
    for commit in _history(item, paths):
        texts = {path: text for path in paths if (text := _show(item, commit, path))}
        if is_open(texts.get(item.stub, "")) and not any(
            drift(texts.get(path, ""), solutions[path]) for path in solutions
        ):
            return texts
    raise NoStub(f"git history has no stub of {item.name}; fetch the course again: git pull")


def provided(item: ExerciseRef) -> dict[str, str]:
    """Return the files that learners start from, by their paths from the folder of the stub.

    These are the files in phases/, or, if somebody has solved them there, the files that `pristine` returns. Without a
    history, they are the solved files.
    """
    texts = {path: files.source_text(path) for path in item.files("phases")}
    if not any(map(is_open, texts.values())):
        with suppress(NoStub):
            texts = pristine(item)
    return {str(path.relative_to(item.stub.parent)): text for path, text in texts.items()}


def back_up(item: ExerciseRef) -> Path | None:
    """Copy a learner's files of an exercise to a backup folder and return it; None if there are none."""
    paths = item.files("phases")
    if not paths:
        return None
    backup = folder(item.root) / "kept" / f"{item.name}-{datetime.now():%Y%m%d-%H%M%S-%f}"
    backup.mkdir(parents=True)
    for path in paths:
        target = backup / path.relative_to(item.stub.parent)
        target.parent.mkdir(exist_ok=True, parents=True)
        shutil.copy2(path, target)
    return backup


def _history(item: ExerciseRef, paths: list[Path]) -> Iterator[str]:
    yield from _git(item, "log", "--format=%H", "--", *map(str, paths)).split()


def _show(item: ExerciseRef, commit: str, path: Path) -> str:
    # "./" makes git take the path from the working directory: the course may be a subfolder of its repository
    # (gitrevisions(7)).
    return _git(item, "show", f"{commit}:./{path.relative_to(item.root)}", check=False)


def _git(item: ExerciseRef, *arguments: str, check: bool = True) -> str:
    try:
        process = subprocess.run(["git", *arguments], cwd=item.root, capture_output=True, text=True, encoding="utf-8")
    except FileNotFoundError as error:
        raise NoStub("git is needed to restore a stub; install it: sudo apt install git") from error
    if check and process.returncode:
        raise NoStub(f"git cannot read this checkout: {process.stderr.strip()}")
    return process.stdout
