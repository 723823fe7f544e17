"""An example of each verdict, as the grader worded it: what `tests/write_endings.py` keeps for the page on verdicts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from kernelpath.show import book
from kernelpath.verdict import Verdict, decode

FILE = f"{book.FOLDER}/endings.json"


@dataclass(frozen=True)
class Ending:
    """One submission and what the grader said of it.

    exercise: its name. submitted: what was wrong with it. where: the file and line that the verdict names, with the
    source of that line in `source`; both empty where it names none. step: the next step.
    """

    exercise: str
    submitted: str
    cause: str
    where: str
    source: str
    step: str


def endings(root: Path) -> Mapping[Verdict, Ending]:
    """The examples of a checkout; nothing without the file. Raises ValidationError for a file that holds others."""
    file = root / FILE
    return decode(file.read_text(encoding="utf-8"), dict[Verdict, Ending]) if file.is_file() else {}
