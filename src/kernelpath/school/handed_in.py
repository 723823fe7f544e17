"""What a class handed in: one folder for each learner, in which files are found by their names."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from kernelpath.course import registry
from kernelpath.course.registry import Item
from kernelpath.grading.grade import Usage

_DEEPEST = 16
_MOST_ENTRIES = 100_000
"""Of a learner's folder that are looked at."""


@dataclass(frozen=True)
class Entry:
    """One learner's submission to one exercise. `file` is None where nothing was handed in, or nothing that counts.

    unusable: why a file that was handed in does not count. home: the learner's folder; reports name places from there.
    """

    learner: str
    item: Item
    file: Path | None
    unusable: str = ""
    home: Path | None = None


def default_items(folder: Path) -> list[Item]:
    """The exercises that anybody in the class handed in."""
    items = registry.exercises()
    wanted = {item.solution.name for item in items}
    names = {path.name for learner in _folders(folder) for path in _named(learner, wanted)}
    return [item for item in items if item.solution.name in names]


def entries(folder: Path, items: Sequence[Item]) -> list[Entry]:
    """Every learner's file for every exercise, found by its name anywhere in the learner's folder.

    In a whole checkout that is the one below phases/. Links that leave the learner's folder are not followed.
    Raises Usage for a folder without learners.
    """
    return [entry for learner in learners(folder) for entry in entries_of(learner, items)]


def learners(folder: Path) -> list[Path]:
    """The folder of each learner. Raises Usage without any."""
    found = _folders(folder)
    if not found:
        raise Usage(f"{folder} holds no folders; give one that has a folder for each learner")
    return found


def _folders(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.is_dir() and not path.name.startswith("."))


def entries_of(learner: Path, items: Sequence[Item]) -> Iterator[Entry]:
    """One learner's file for each exercise."""
    found: dict[str, list[Path]] = {item.solution.name: [] for item in items}
    for path in _named(learner, set(found)):
        found[path.name].append(path)
    for item in items:
        own = found[item.solution.name]
        yield _entry(learner, item, sorted(own, key=lambda path: _precedence(path, learner, item.phase)))


def file_of(learner: Path, name: str, phase: str) -> Path | None:
    """One learner's file of that name for a phase; None where there is none that counts."""
    found = sorted(_named(learner, {name}), key=lambda path: _precedence(path, learner, phase))
    return next((path for path in found if not _left_out(path, learner)), None)


def _named(learner: Path, wanted: set[str]) -> Iterator[Path]:
    """All in a learner's folder that has a wanted name, whatever it is. No link to a folder is followed."""
    left, looked = [(learner, 0)], 0
    while left:
        folder, depth = left.pop()
        with contextlib.suppress(OSError), os.scandir(folder) as listed:
            for entry in listed:
                looked += 1
                if looked > _MOST_ENTRIES:
                    return
                if entry.name in wanted:
                    yield Path(entry.path)
                elif entry.is_dir(follow_symlinks=False) and depth < _DEEPEST:
                    left.append((Path(entry.path), depth + 1))


def _entry(learner: Path, item: Item, found: Sequence[Path]) -> Entry:
    """The first that counts; else the first, with the reason why it does not."""
    reasons = [_left_out(path, learner) for path in found]
    for path, reason in zip(found, reasons, strict=True):
        if not reason:
            return Entry(learner.name, item, path, home=learner)
    return Entry(learner.name, item, None, reasons[0] if reasons else "")


def _precedence(path: Path, learner: Path, phase: str) -> tuple[bool, int, Path]:
    """A checkout also has files of this name in checks/ and solutions/; otherwise the shallowest comes first."""
    place = path.relative_to(learner)
    return not place.match(f"phases/{phase}/{path.name}"), len(place.parts), place


def _left_out(path: Path, learner: Path) -> str:
    """Why a file, with the kernel beside it, is not the learner's own; nothing if it is."""
    for one in (path, path.with_suffix(".cu")):
        if one.is_symlink() and not one.exists():
            return f"{one.name} is a link to nothing"
        if one.exists() and not one.resolve().is_relative_to(learner.resolve()):
            return f"{one.name} is a link out of the learner's folder"
        if one.exists() and not one.is_file():
            return f"{one.name} is not a regular file"
    return ""
