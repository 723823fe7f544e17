"""Generate the table that says where the course covers each item of its source documents, and how it is graded."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path

import tomllib

from kernelpath.course import registry
from kernelpath.course.errors import DeclarationError
from kernelpath.course.registry import ExerciseRef

DATA = "docs/sources.toml"

_HEADING = re.compile(r"^## (?:(?P<number>\d+) · )?(?P<title>.+)$", re.MULTILINE)
_FIELD = re.compile(r"^    (\w+)=", re.MULTILINE)

# What a field of a declaration adds to the values that every exercise is graded by.
GRADED = {
    "traffic": "traffic",
    "instructions": "instructions",
    "active_lanes": "divergence",
    "tensor_cores": "tensor cores",
    "launches": "launches",
    "workspace": "memory",
    "network": "messages",
    "deterministic": "determinism",
    "check": "own check",
    "min_speedup": "time on a GPU",
}


def rows(root: Path) -> Iterator[tuple[str, ...]]:
    """Yield the cells of the table: document, item, place, grading, and what is missing.

    Raises DeclarationError for a section or an exercise that does not exist.
    """
    items = {item.name: item for item in registry.exercises(root)}
    for source in tomllib.loads((root / DATA).read_text(encoding="utf-8"))["source"]:
        for subject, places, names, missing in source["rows"]:
            unknown = [name for name in names.split() if name not in items]
            if unknown:
                raise DeclarationError(f"{DATA}: {subject}: there is no exercise {', '.join(unknown)}")
            exercises = [items[name] for name in names.split()]
            yield (
                source["title"],
                subject,
                "; ".join(_place(root, place) for place in places.split()),
                _grading(exercises, bool(places)),
                missing,
            )


def _grading(exercises: Sequence[ExerciseRef], has_place: bool) -> str:
    if exercises:
        return "; ".join(f"`{item.name}`: {', '.join(graded_properties(item))}" for item in exercises)
    return "predictions in the notebook" if has_place else ""


def graded_properties(item: ExerciseRef) -> list[str]:
    """Return the properties that an exercise is graded by, from the fields of its declaration."""
    fields = set(_FIELD.findall(item.declaration.read_text(encoding="utf-8")))
    return ["values", *(text for name, text in GRADED.items() if name in fields)]


def _place(root: Path, place: str) -> str:
    """Link to a section with the identifier of its first cell; to the notebook for a week without numbers."""
    week, _, section = place.partition(".")
    path = _notebooks(root).get(int(week))
    if path is None:
        raise DeclarationError(f"{DATA}: there is no notebook of week {week}")
    link = f"[week {week}](../{path.relative_to(root)})"
    if not section:
        return link
    titles = _sections(path)
    if section not in titles:
        raise DeclarationError(f"{DATA}: week {week} has no section {section}")
    title, cell = titles[section]
    return f"{link}, {section} · {title} (cell `{cell}`)"


@cache
def _notebooks(root: Path) -> Mapping[int, Path]:
    return {int(path.name[4:6]): path for path in root.glob("notebooks/*/week*.ipynb")}


@cache
def _sections(path: Path) -> Mapping[str, tuple[str, str]]:
    """Return the title and the cell of each numbered section."""
    sections = {}
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        if cell["cell_type"] == "markdown":
            for heading in _HEADING.finditer("".join(cell["source"])):
                if heading["number"]:
                    sections[heading["number"]] = (heading["title"], cell["id"])
    return sections
