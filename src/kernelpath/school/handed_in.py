"""What a class handed in: one folder for each learner, in which files are found by their names."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from kernelpath.course import registry
from kernelpath.course.registry import Item
from kernelpath.grading.grade import Usage


@dataclass(frozen=True)
class Entry:
    """One learner's submission to one exercise. `file` is None where nothing was handed in."""

    learner: str
    item: Item
    file: Path | None


def default_items(folder: Path) -> list[Item]:
    """The exercises that anybody in the class handed in."""
    names = {path.name for path in folder.glob("*/**/*.py")}
    return [item for item in registry.exercises() if item.solution.name in names]


def entries(folder: Path, items: Sequence[Item]) -> list[Entry]:
    """Every learner's file for every exercise, found by its name anywhere in the learner's folder.

    In a whole checkout that is the one below phases/. Links that leave the learner's folder are not followed.
    Raises Usage for a folder without learners.
    """
    learners = sorted(path for path in folder.iterdir() if path.is_dir() and not path.name.startswith("."))
    if not learners:
        raise Usage(f"{folder} holds no folders; give one that has a folder for each learner")
    return [entry for learner in learners for entry in _entries(learner, items)]


def _entries(learner: Path, items: Sequence[Item]) -> Iterator[Entry]:
    wanted = {item.solution.name for item in items}
    found = [path for path in learner.rglob("*.py") if path.name in wanted]
    for item in items:
        own = [path for path in found if path.name == item.solution.name]
        yield Entry(learner.name, item, _handed_in(learner, item, own))


def _handed_in(learner: Path, item: Item, found: Sequence[Path]) -> Path | None:
    found = sorted(found, key=lambda path: _precedence(path, learner, item))
    return next((path for path in found if _own(path, learner) and _own_if_any(path, learner)), None)


def _precedence(path: Path, learner: Path, item: Item) -> tuple[bool, int, Path]:
    """A checkout also has files of this name in checks/ and solutions/; otherwise the shallowest comes first."""
    place = path.relative_to(learner)
    return not place.match(f"phases/{item.stem}.py"), len(place.parts), place


def _own(path: Path, learner: Path) -> bool:
    return path.is_file() and path.resolve().is_relative_to(learner.resolve())


def _own_if_any(path: Path, learner: Path) -> bool:
    """Whether the kernel beside a Python file, where there is one, is the learner's own."""
    kernel = path.with_suffix(".cu")
    return not kernel.exists() or _own(kernel, learner)
