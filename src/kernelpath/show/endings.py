"""Read the examples of verdicts, as the grader words them, which `tests/write_endings.py` writes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from kernelpath.show import book
from kernelpath.verdict import Verdict, decode

FILE = f"{book.FOLDER}/endings.json"


@dataclass(frozen=True)
class Ending:
    """A submission and the grader's response to it.

    Attributes:
        exercise: The exercise's name.
        submitted: The fault in the submission.
        where: The file and line that the verdict names, empty if it names none.
        source: The source of that line.
        step: The next step.
    """

    exercise: str
    submitted: str
    cause: str
    where: str
    source: str
    step: str


def read_endings(root: Path) -> Mapping[Verdict, Ending]:
    """Read the examples of a checkout; without the file there are none. Raises ValidationError."""
    file = root / FILE
    return decode(file.read_text(encoding="utf-8"), dict[Verdict, Ending]) if file.is_file() else {}
