"""The end of the course: the certificates of all phases, as one."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from kernelpath.course import registry
from kernelpath.exam import NotValid
from kernelpath.exam.certificate import Certificate
from kernelpath.files import MOST_BYTES, Unreadable, read_source
from kernelpath.verdict import encode


@dataclass(frozen=True)
class Phase:
    """What a certificate of one phase says. digest: of that certificate, which is the proof."""

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
class Course:
    """All phases of one learner, passed."""

    name: str
    phases: tuple[Phase, ...]

    @property
    def score(self) -> int:
        """The mean of the phases' points, out of 100, rounded down."""
        return sum(one.score for one in self.phases) // len(self.phases)

    @property
    def date(self) -> str:
        """Of the last exam."""
        return max(one.date for one in self.phases)

    def to_json(self) -> str:
        return encode(self, indent=1) + "\n"


def whole(folder: Path, root: Path) -> Course | None:
    """The course, from the certificates in a folder of every checkpoint of the course at `root`; None without them all.

    One that was changed or is no pass counts as missing, and so do all where they carry different names.
    """
    numbers = sorted(int(path.parent.name[0]) for path in registry.course(root).glob("checks/[0-9]_*/checkpoint.py"))
    found = [one for number in numbers if (one := _read(folder / f"checkpoint{number}.json")) is not None]
    if not found or len({one.name for one in found}) > 1 or [one.checkpoint for one in found] != numbers:
        return None
    return Course(found[-1].name, tuple(map(_phase, found)))


def _read(path: Path) -> Certificate | None:
    try:
        one = Certificate.from_json(read_source(path, MOST_BYTES))
    except (Unreadable, NotValid):
        return None
    return one if one.passed else None


def _phase(one: Certificate) -> Phase:
    return Phase(
        checkpoint=one.checkpoint,
        phase=one.phase.partition("_")[2],
        date=one.date,
        device=one.device,
        twist=one.twist,
        score=one.score,
        stars=sum(report.stars for report in one.exercises),
        written=one.written_points,
        digest=one.digest,
    )
