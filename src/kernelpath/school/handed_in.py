"""Find what a class handed in: one folder for each learner, in which files are found by their names."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from kernelpath import files
from kernelpath.course import registry, stubs
from kernelpath.course.registry import ExerciseRef
from kernelpath.grading.grade import Usage

_MAX_DEPTH = 16

# The number of entries of a learner's folder that are examined.
_MAX_ENTRIES = 100_000


@dataclass(frozen=True)
class Entry:
    """One learner's submission to one exercise.

    Attributes:
        file: None if nothing valid was handed in.
        unusable: The reason why a file that was handed in is ignored.
        unchanged: Whether there is a file, but it and the files that belong to it are the stub's. It is not handed in.
        home: The learner's folder, which paths in reports are relative to.
    """

    learner: str
    item: ExerciseRef
    file: Path | None
    unusable: str = ""
    home: Path | None = None
    unchanged: bool = False


def submitted_items(folder: Path) -> list[ExerciseRef]:
    """Return the exercises that anybody in the class handed in. A file that is still the stub does not count."""
    items = registry.exercises()
    entries = (entry for learner in _folders(folder) for entry in entries_of(learner, items))
    handed_in = {entry.item for entry in entries if entry.file is not None or entry.unusable}
    return [item for item in items if item in handed_in]


def all_entries(folder: Path, items: Sequence[ExerciseRef]) -> list[Entry]:
    """Return every learner's file for every exercise, found by its name anywhere in the learner's folder.

    In a whole checkout, the file below phases/ is used. Links that leave the learner's folder are not followed.
    Raises Usage for a folder without learners.
    """
    return [entry for learner in learners(folder) for entry in entries_of(learner, items)]


def learners(folder: Path) -> list[Path]:
    """Return the folder of each learner. Raises Usage if there are none."""
    folders = _folders(folder)
    if not folders:
        raise Usage(f"{folder} holds no folders; give one that has a folder for each learner")
    return folders


def _folders(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.is_dir() and not path.name.startswith("."))


def entries_of(learner: Path, items: Sequence[ExerciseRef]) -> Iterator[Entry]:
    """Yield one learner's entry for each exercise."""
    paths_by_name: dict[str, list[Path]] = {item.solution.name: [] for item in items}
    for path in _find_by_name(learner, set(paths_by_name)):
        paths_by_name[path.name].append(path)
    for item in items:
        candidates = paths_by_name[item.solution.name]
        yield _choose_file(learner, item, sorted(candidates, key=lambda path: _precedence(path, learner, item.phase)))


def file_of(learner: Path, name: str, phase: str) -> Path | None:
    """Return a learner's file of this name for a phase, or None if there is no valid file."""
    candidates = sorted(_find_by_name(learner, {name}), key=lambda path: _precedence(path, learner, phase))
    return next((path for path in candidates if not _reason_to_ignore(path, learner)), None)


def _find_by_name(learner: Path, names: set[str]) -> Iterator[Path]:
    """Yield all files and folders with one of the names in a learner's folder, without following links to folders."""
    pending = [(learner, 0)]
    examined = 0
    while pending:
        folder, depth = pending.pop()
        with contextlib.suppress(OSError), os.scandir(folder) as directory:
            for entry in directory:
                examined += 1
                if examined > _MAX_ENTRIES:
                    return
                if entry.name in names:
                    yield Path(entry.path)
                elif entry.is_dir(follow_symlinks=False) and depth < _MAX_DEPTH:
                    pending.append((Path(entry.path), depth + 1))


def _choose_file(learner: Path, item: ExerciseRef, candidates: Sequence[Path]) -> Entry:
    """Return the first valid file, or the reason why the first file is ignored."""
    reasons = [_reason_to_ignore(path, learner) for path in candidates]
    for path, reason in zip(candidates, reasons, strict=True):
        if not reason:
            unchanged = _is_stub(item, path)
            return Entry(learner.name, item, None if unchanged else path, home=learner, unchanged=unchanged)
    return Entry(learner.name, item, None, reasons[0] if reasons else "")


def _is_stub(item: ExerciseRef, path: Path) -> bool:
    """Return whether a file and those that belong to it have the text of the stub.

    Blanks at the ends of lines do not count, nor do the line ends of another system.
    """
    stub = _stub_lines(item)
    submitted = files.submitted(path)
    names = [str(file.relative_to(path.parent)) for file in submitted]
    if not set(names) <= stub.keys():
        return False
    try:
        return all(_lines(files.source_text(file)) == stub[name] for file, name in zip(submitted, names, strict=True))
    except OSError:
        return False  # the grading reports why the file cannot be read


@cache
def _stub_lines(item: ExerciseRef) -> dict[str, list[str]]:
    return {name: _lines(text) for name, text in stubs.provided(item).items()}


def _lines(text: str) -> list[str]:
    return [line.rstrip() for line in text.rstrip().splitlines()]


def _precedence(path: Path, learner: Path, phase: str) -> tuple[bool, int, Path]:
    """Sort the file in phases/ before those in checks/ and solutions/ of a checkout, then by depth."""
    relative_path = path.relative_to(learner)
    return not relative_path.match(f"phases/{phase}/{path.name}"), len(relative_path.parts), relative_path


def _reason_to_ignore(path: Path, learner: Path) -> str:
    """Return why a file, with the kernel beside it, is not the learner's own, or ""."""
    for candidate in (path, path.with_suffix(".cu")):
        if candidate.is_symlink() and not candidate.exists():
            return f"{candidate.name} is a link to nothing"
        # A link to a classmate's folder would hand in the classmate's work, or let the report quote it.
        if candidate.exists() and not candidate.resolve().is_relative_to(learner.resolve()):
            return f"{candidate.name} is a link out of the learner's folder"
        if candidate.exists() and not candidate.is_file():
            return f"{candidate.name} is not a regular file"
    return ""
