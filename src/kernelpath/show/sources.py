"""Generate the tables that say where the course covers each item of its source documents, and how it is graded."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import tomllib

from kernelpath.course import registry
from kernelpath.course.errors import DeclarationError
from kernelpath.course.registry import ExerciseRef

DATA = "docs/sources.toml"

_HEADING = re.compile(r"^(?P<level>#{1,4}) (?:(?P<number>\d+) · )?(?P<title>.+)$", re.MULTILINE)
_PREDICTIONS = re.compile(r"^(my_\w+(?:, my_\w+)*) = ", re.MULTILINE)
_EXAM_QUESTION = re.compile(r"^## Week (?P<week>\d+): (?P<name>\w+), section (?P<section>\d+)$", re.MULTILINE)
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


@dataclass(frozen=True)
class Item:
    """An item of a source document.

    Attributes:
        document: The title of the document.
        part: The heading of the document under which the item is.
        place: Links to the sections, with the cells where they start.
        grading: The properties by which the exercises, predictions, or questions there are graded.
        missing: The part of the item that the course does not cover, or an empty string.
    """

    document: str
    part: str
    subject: str
    place: str
    grading: str
    missing: str


@dataclass(frozen=True)
class PlaceSection:
    """Some consecutive cells of a notebook.

    Attributes:
        number: The number of the section that contains them, or an empty string.
        title: The heading at or before the first cell.
        cell: The identifier of the first cell.
        code: The source of all code cells.
    """

    number: str
    title: str
    cell: str
    code: str


def items(root: Path) -> Iterator[Item]:
    """Yield the items in the order of the documents.

    Raises DeclarationError for a section, a cell, a page, or an exercise that does not exist.
    """
    exercises = {exercise.name: exercise for exercise in registry.exercises(root)}
    for source in tomllib.loads((root / DATA).read_text(encoding="utf-8"))["source"]:
        for part in source["part"]:
            for subject, places, names, missing in part["rows"]:
                unknown = [name for name in names.split() if name not in exercises]
                if unknown:
                    raise DeclarationError(f"{DATA}: {subject}: there is no exercise {', '.join(unknown)}")
                yield Item(
                    source["title"],
                    part["title"],
                    subject,
                    "; ".join(_describe_place(root, place) for place in places.split()),
                    _describe_grading(root, [exercises[name] for name in names.split()], places.split()),
                    missing,
                )


def _describe_grading(root: Path, exercises: Sequence[ExerciseRef], places: Sequence[str]) -> str:
    """Return the properties by which exercises are graded, else the predictions and questions of the places."""
    if exercises:
        return "; ".join(f"`{item.name}`: {', '.join(graded_properties(item))}" for item in exercises)
    predictions, questions, in_exams = 0, 0, []
    for place in places:
        if place.endswith(".md"):
            continue
        week, section = find_section(root, place)
        predictions += sum(names.count("my_") for names in _PREDICTIONS.findall(section.code))
        questions += section.code.count("notebook.ask(")
        in_exams += [f"`{name}`" for name in _exam_questions(root).get((week, section.number), [])]
    return ", ".join(
        text
        for text in (
            f"{predictions} prediction{'s' * (predictions > 1)}" if predictions else "",
            f"{questions} question{'s' * (questions > 1)}" if questions else "",
            f"in the exam: {', '.join(in_exams)}" if in_exams else "",
        )
        if text
    )


def graded_properties(item: ExerciseRef) -> list[str]:
    """Return the properties that an exercise is graded by, from the fields of its declaration."""
    fields = set(_FIELD.findall(item.declaration.read_text(encoding="utf-8")))
    return ["values", *(text for name, text in GRADED.items() if name in fields)]


def _describe_place(root: Path, place: str) -> str:
    """Link to a page, or to a notebook with the section and its first cell."""
    if place.endswith(".md"):
        path = root / place
        if not path.is_file():
            raise DeclarationError(f"{DATA}: there is no page {place}")
        return f"[{path.stem}](../{place})"
    week, section = find_section(root, place)
    number = f"{section.number} · " if place.partition(".")[2] == section.number else ""
    path = _notebooks(root)[week].relative_to(root)
    return f"[week {week}](../{path}), {number}{section.title} (cell `{section.cell}`)"


def find_section(root: Path, place: str) -> tuple[int, PlaceSection]:
    """Return the week and the section of a place, such as 5.7 (a numbered section) or 16.ring-02 (a cell).

    The section of a cell with a heading extends to the next heading of the same or a higher level, and that of another
    cell to the next heading.
    """
    week, _, name = place.partition(".")
    path = _notebooks(root).get(int(week))
    if path is None:
        raise DeclarationError(f"{DATA}: there is no notebook of week {week}")
    sections = _sections(path)
    if name not in sections:
        kind = "section" if name.isdigit() else "cell"
        raise DeclarationError(f"{DATA}: week {week} has no {kind} {name}")
    return int(week), sections[name]


@cache
def _notebooks(root: Path) -> Mapping[int, Path]:
    return {int(path.name[4:6]): path for path in root.glob("notebooks/*/week*.ipynb")}


@cache
def _sections(path: Path) -> Mapping[str, PlaceSection]:
    """Return the sections of a notebook by the number of their heading and by the identifier of their first cell."""
    cells = [
        (cell["id"], cell["cell_type"], "".join(cell["source"]))
        for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]
    ]
    headings = [list(_HEADING.finditer(source)) if cell_type == "markdown" else [] for _, cell_type, source in cells]
    sections, number, title = {}, "", ""
    for index, (cell, _, _) in enumerate(cells):
        for heading in headings[index]:
            if len(heading["level"]) <= 2:
                number = heading["number"] or ""
            if heading["number"]:
                code = _code(cells, headings, index, len(heading["level"]))
                sections[heading["number"]] = PlaceSection(heading["number"], heading["title"], cell, code)
        if headings[index]:
            title = headings[index][0]["title"]
        level = len(headings[index][0]["level"]) if headings[index] else 4
        sections[cell] = PlaceSection(number, title, cell, _code(cells, headings, index, level))
    return sections


def _code(
    cells: Sequence[tuple[str, str, str]], headings: Sequence[Sequence[re.Match[str]]], first: int, level: int
) -> str:
    """Return the code of a cell and of those after it, up to the next heading of this or a higher level."""
    sources = []
    for index in range(first, len(cells)):
        if index > first and any(len(heading["level"]) <= level for heading in headings[index]):
            break
        if cells[index][1] == "code":
            sources.append(cells[index][2])
    return "\n".join(sources)


@cache
def _exam_questions(root: Path) -> Mapping[tuple[int, str], list[str]]:
    """Return the names of the exams' questions by week and number of the section that they are about."""
    questions: dict[tuple[int, str], list[str]] = {}
    for page in sorted(root.glob("checks/*/checkpoint.md")):
        for question in _EXAM_QUESTION.finditer(page.read_text(encoding="utf-8")):
            questions.setdefault((int(question["week"]), question["section"]), []).append(question["name"])
    return questions
