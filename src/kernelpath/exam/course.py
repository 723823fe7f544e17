"""Combine the certificates of all phases into one certificate of the course."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from kernelpath.course import registry
from kernelpath.exam import ExamError
from kernelpath.exam.certificate import Certificate
from kernelpath.files import MOST_BYTES, Unreadable, read_source
from kernelpath.verdict import encode


@dataclass(frozen=True)
class PhaseResult:
    """Summarize the certificate of one phase.

    Attributes:
        digest: The digest of that certificate, which is the proof.
    """

    checkpoint: int
    phase: str
    date: str
    device: str
    twist: str
    score: int
    stars: int
    written: str
    digest: str


@dataclass(frozen=True)
class CourseCertificate:
    """All phases of one learner, each of them passed."""

    name: str
    phases: tuple[PhaseResult, ...]

    @property
    def score(self) -> int:
        """Return the mean of the phases' points, out of 100, rounded down."""
        return sum(phase.score for phase in self.phases) // len(self.phases)

    @property
    def date(self) -> str:
        """Return the date of the last exam."""
        return max(phase.date for phase in self.phases)

    def to_json(self) -> str:
        return encode(self, indent=1) + "\n"


def certify_course(folder: Path, root: Path) -> CourseCertificate | None:
    """Combine the certificates in `folder`, or return None unless every checkpoint of the course at `root` is passed.

    A certificate that was changed or is no pass counts as missing. All certificates count as missing if they carry
    different names.
    """
    numbers = sorted(int(path.parent.name[0]) for path in registry.course(root).glob("checks/[0-9]_*/checkpoint.py"))
    certificates = []
    for number in numbers:
        certificate = _read_passed(folder / f"checkpoint{number}.json")
        if certificate is not None:
            certificates.append(certificate)
    # Certificates of several people in one folder do not add up to a course.
    names = {certificate.name for certificate in certificates}
    if len(names) != 1 or [certificate.checkpoint for certificate in certificates] != numbers:
        return None
    return CourseCertificate(certificates[-1].name, tuple(map(_summarize, certificates)))


def _read_passed(path: Path) -> Certificate | None:
    """Read a certificate, or return None if the file is not the certificate of a passed exam."""
    try:
        # The digest is checked here, so that an edited certificate counts as missing.
        certificate = Certificate.from_json(read_source(path, MOST_BYTES))
    except (Unreadable, ExamError):
        return None
    return certificate if certificate.passed else None


def _summarize(certificate: Certificate) -> PhaseResult:
    return PhaseResult(
        checkpoint=certificate.checkpoint,
        phase=certificate.phase.partition("_")[2],
        date=certificate.date,
        device=certificate.device,
        twist=certificate.twist,
        score=certificate.score,
        stars=sum(report.stars for report in certificate.exercises),
        written=certificate.written_points,
        digest=certificate.digest,
    )
