"""Represent the result of an exam as a certificate that can be saved, read and checked for changes."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass

from kernelpath.course.checkpoint import MAX_WORDS, MIN_WORDS, Criterion
from kernelpath.exam import ExamError
from kernelpath.verdict import Report, ValidationError, decode, encode

# The points that each part can give, 100 in all, in proportion to how much of it is passed or right.
POINTS = {"exercises": 30, "questions": 20, "reading": 20, "deliverable": 30}

# The possible authors of the marks of the written answers.
SELF = "self-assessment"
TEACHER = "teacher"


@dataclass(frozen=True)
class GradedAnswer:
    """An answer as it stands in the sheet, and whether it is right.

    Attributes:
        part: "questions" or "reading".
    """

    part: str
    key: str
    given: str
    right: bool


@dataclass(frozen=True)
class WrittenAnswer:
    """A written answer with the rubric that it is marked by.

    Attributes:
        marks: The points for each criterion, empty if nobody has marked the answer.
    """

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
    def has_valid_length(self) -> bool:
        return MIN_WORDS <= self.words <= MAX_WORDS

    @property
    def points(self) -> int:
        return sum(self.marks)

    @property
    def max_points(self) -> int:
        return sum(criterion.points for criterion in self.rubric)


@dataclass(frozen=True)
class Certificate:
    """The result of an exam, which certifies something only if the exam is passed.

    Attributes:
        seed: The seed of sizes and inputs.
        missing: A sentence for each requirement that the exam fails.
        exercises: The report of each exercise.
        deliverable: The report of the variant that the learner's name selects.
        marked_by: SELF, TEACHER, or empty. Marks are no part of the score, which programs alone determine.
        files: The SHA-256 digest of every submitted file, by name.
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
    answers: tuple[GradedAnswer, ...]
    written: tuple[WrittenAnswer, ...]
    marked_by: str
    files: Mapping[str, str]

    @property
    def passed(self) -> bool:
        return not self.missing

    @property
    def points(self) -> dict[str, int]:
        """Return the points that each part contributes to the score."""
        return points_by_part(self.exercises, self.deliverable, self.answers)

    @property
    def written_points(self) -> str:
        """Return the marks as text, such as "9 of 13 (teacher)"; empty where nobody has marked."""
        if not self.marked_by:
            return ""
        reached = sum(answer.points for answer in self.written)
        maximum = sum(answer.max_points for answer in self.written)
        return f"{reached} of {maximum} ({self.marked_by})"

    def count_right(self, part: str) -> str:
        """Count the right answers of a part, as text: "7 of 10"."""
        results = [answer.right for answer in self.answers if answer.part == part]
        return f"{sum(results)} of {len(results)}"

    @property
    def digest(self) -> str:
        """Return the SHA-256 digest of the contents, which any change of them changes."""
        # The digest must not depend on the order of fields, which a later version may change.
        ordered = json.dumps(json.loads(encode(self)), sort_keys=True)
        return hashlib.sha256(ordered.encode()).hexdigest()

    def to_json(self) -> str:
        return encode(_Sealed(self.digest, self), indent=1) + "\n"

    @classmethod
    def from_json(cls, text: str | bytes) -> Certificate:
        """Parse what `to_json` returns. Raises ExamError for other text or contents that do not fit the digest."""
        try:
            sealed = decode(text, _Sealed)
        except ValidationError as error:
            raise ExamError(f"this is not a certificate of this version ({error}); name its JSON file") from error
        # The digest involves no secret, so a forger can compute it. `verify` therefore grades the submission again.
        if sealed.digest != sealed.certificate.digest:
            raise ExamError("the certificate was changed after it was written; ask for the original")
        return sealed.certificate


@dataclass(frozen=True)
class _Sealed:
    """The contents of a certificate's file."""

    digest: str
    certificate: Certificate


def points_by_part(
    exercises: tuple[Report, ...], deliverable: Report, answers: tuple[GradedAnswer, ...]
) -> dict[str, int]:
    """Return the points of each part, by name, of at most POINTS."""
    results = {
        "exercises": [report.verdict.passed for report in exercises],
        "questions": [answer.right for answer in answers if answer.part == "questions"],
        "reading": [answer.right for answer in answers if answer.part == "reading"],
        "deliverable": [deliverable.verdict.passed],
    }
    # A part without questions gives its full points: all of its no questions are right.
    return {
        part: maximum if all(results[part]) else maximum * sum(results[part]) // len(results[part])
        for part, maximum in POINTS.items()
    }
