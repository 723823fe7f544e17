"""What an exam found, as a certificate that can be saved, read and recognized as unchanged."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kernelpath.exam import NotValid
from kernelpath.verdict import Report, ValidationError, decode, encode

POINTS = {"exercises": 50, "questions": 30, "deliverable": 20}
"""The points that each part can give, 100 in all, in proportion to how much of it is passed or right."""


@dataclass(frozen=True)
class Certificate:
    """What an exam found; a certificate in the narrow sense where it is passed.

    exercises: the report of each. deliverable: its further reports, one for each size drawn; none if it fails already.
    answers: whether each question is right, by its key. missing: what a pass lacks, a sentence each.
    files: SHA-256 of every file that was submitted, by name. seed: drew sizes and inputs.
    """

    checkpoint: int
    phase: str
    date: str
    device: str
    machine: Mapping[str, str]
    versions: Mapping[str, str]
    seed: int
    score: int
    missing: tuple[str, ...]
    exercises: tuple[Report, ...]
    deliverable: tuple[Report, ...]
    answers: Mapping[str, bool]
    files: Mapping[str, str]

    @property
    def passed(self) -> bool:
        return not self.missing

    @property
    def points(self) -> dict[str, int]:
        """What each part gave to the score."""
        return points(self.exercises, self.deliverable, self.answers)

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


def points(exercises: Sequence[Report], deliverable: Sequence[Report], right: Mapping[str, bool]) -> dict[str, int]:
    """What each part gives, by name, out of POINTS. right: whether each question is answered correctly."""
    reached = {
        "exercises": [report.verdict.passed for report in exercises],
        "questions": list(right.values()),
        "deliverable": [report.verdict.passed for report in deliverable],
    }
    return {part: most * sum(reached[part]) // max(len(reached[part]), 1) for part, most in POINTS.items()}
