"""The result of an exam, as a certificate that can be saved, read and checked for changes."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass

from kernelpath.course.checkpoint import FEWEST_WORDS, MOST_WORDS, Criterion
from kernelpath.exam import NotValid
from kernelpath.verdict import Report, ValidationError, decode, encode

POINTS = {"exercises": 30, "questions": 20, "reading": 20, "deliverable": 30}
"""The points that each part can give, 100 in all, in proportion to how much of it is passed or right."""

SELF, TEACHER = "self-assessment", "teacher"
"""Who marked the written answers."""


@dataclass(frozen=True)
class Answered:
    """An answer as it stands in the sheet. part: "questions" or "reading"."""

    part: str
    key: str
    given: str
    right: bool


@dataclass(frozen=True)
class Written:
    """A written answer with the rubric that it is marked by. marks: points for each criterion, none if not marked."""

    key: str
    ask: str
    text: str
    rubric: tuple[Criterion, ...]
    marks: tuple[int, ...] = ()
    comment: str = ""

    @property
    def words(self) -> int:
        return len(self.text.split())

    @property
    def fits(self) -> bool:
        return FEWEST_WORDS <= self.words <= MOST_WORDS

    @property
    def points(self) -> int:
        return sum(self.marks)

    @property
    def most(self) -> int:
        return sum(criterion.points for criterion in self.rubric)


@dataclass(frozen=True)
class Certificate:
    """What an exam found; a certificate in the narrow sense where it is passed.

    exercises: the report of each. deliverable: the report of the twist that the name drew.
    marked_by: SELF, TEACHER, or nobody yet. Marks are beside the score, which programs alone make.
    missing: what a pass lacks, a sentence each. files: SHA-256 of every file that was submitted, by name.
    seed: drew sizes and inputs.
    """

    checkpoint: int
    phase: str
    name: str
    date: str
    device: str
    machine: Mapping[str, str]
    versions: Mapping[str, str]
    seed: int
    twist: str
    score: int
    missing: tuple[str, ...]
    exercises: tuple[Report, ...]
    deliverable: Report
    answers: tuple[Answered, ...]
    written: tuple[Written, ...]
    marked_by: str
    files: Mapping[str, str]

    @property
    def passed(self) -> bool:
        return not self.missing

    @property
    def points(self) -> dict[str, int]:
        """What each part gave to the score."""
        return points(self.exercises, self.deliverable, self.answers)

    @property
    def written_points(self) -> str:
        """The marks in words: "9 of 13 (teacher)"; empty where nobody has marked."""
        if not self.marked_by:
            return ""
        reached, most = (sum(values) for values in zip(*((one.points, one.most) for one in self.written), strict=True))
        return f"{reached} of {most} ({self.marked_by})"

    def right(self, part: str) -> str:
        """How many answers of a part are right: "7 of 10"."""
        of_part = [one.right for one in self.answers if one.part == part]
        return f"{sum(of_part)} of {len(of_part)}"

    @property
    def digest(self) -> str:
        """SHA-256 of everything in it: it changes with every change."""
        ordered = json.dumps(json.loads(encode(self)), sort_keys=True)
        return hashlib.sha256(ordered.encode()).hexdigest()

    def to_json(self) -> str:
        return encode(_Sealed(self.digest, self), indent=1) + "\n"

    @classmethod
    def from_json(cls, text: str | bytes) -> Certificate:
        """The inverse of `to_json`. Raises NotValid for anything else, and where the contents do not fit the digest."""
        try:
            sealed = decode(text, _Sealed)
        except ValidationError as error:
            raise NotValid(f"this is not a certificate of this version ({error}); name its JSON file") from error
        if sealed.digest != sealed.certificate.digest:
            raise NotValid("the certificate was changed after it was written; ask for the original")
        return sealed.certificate


@dataclass(frozen=True)
class _Sealed:
    """The contents of a certificate's file."""

    digest: str
    certificate: Certificate


def points(exercises: tuple[Report, ...], deliverable: Report, answers: tuple[Answered, ...]) -> dict[str, int]:
    """What each part gives, by name, out of POINTS."""
    reached = {
        "exercises": [report.verdict.passed for report in exercises],
        "questions": [one.right for one in answers if one.part == "questions"],
        "reading": [one.right for one in answers if one.part == "reading"],
        "deliverable": [deliverable.verdict.passed],
    }
    full = {part: sum(of) == len(of) for part, of in reached.items()}
    return {
        part: most if full[part] else most * sum(reached[part]) // len(reached[part]) for part, most in POINTS.items()
    }
