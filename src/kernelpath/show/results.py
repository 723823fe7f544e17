"""Reads results/: what was measured on GPUs, a file for each machine.

notebooks.json has what notebooks recorded, cards.json what compiles for GPUs that are not here, and published.json what
is wrong with kernels of public repositories.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from kernelpath.verdict import Interval, Report, ValidationError, decode

_T = TypeVar("_T")
FOLDER = "results"
RECORDINGS = "notebooks.json"
CARDS = "cards.json"
PUBLISHED = "published.json"
OTHERS = (RECORDINGS, CARDS, PUBLISHED)
"""The files that are of no machine."""


@dataclass(frozen=True)
class Race:
    """A reference kernel against other libraries. ratios: a peer's time over ours, as (median, low, high)."""

    exercise: str
    case: str
    seconds: float
    compulsory_bytes: int
    bytes_per_second: float
    ratios: Mapping[str, tuple[float, float, float]]
    goal: str
    reached: bool

    def ratio(self, peer: str) -> Interval:
        return Interval(*self.ratios[peer])


@dataclass(frozen=True)
class Counted:
    """The same counters, as ncu reads them on the GPU and as the PTX machine counts them."""

    ncu: Mapping[str, int]
    machine: Mapping[str, int]


@dataclass(frozen=True)
class Approximation:
    """An approximate function: the share of equal values, the largest difference, and what the manual allows."""

    equal: float
    measure: str
    largest: float
    allowed: float


@dataclass(frozen=True)
class Planted:
    """What compute-sanitizer's tool says of a planted bug. line: whether it names the line."""

    tool: str
    found: bool
    line: bool
    hung: bool


@dataclass(frozen=True)
class Machine:
    """One file: a GPU, and whichever parts were measured on it in one go."""

    gpu: str
    driver: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)
    date: str = ""
    telemetry: Mapping[str, float] = field(default_factory=dict)
    ceilings: Mapping[str, float] = field(default_factory=dict)
    rounds: int = 0
    confidence: float = 0.0
    reports: tuple[Report, ...] = ()
    peers: tuple[Race, ...] = ()
    counters: Mapping[str, Counted] = field(default_factory=dict)
    corpus: Mapping[str, Counted] = field(default_factory=dict)
    hopper: Mapping[str, Counted] = field(default_factory=dict)
    kernels: Mapping[str, Counted] = field(default_factory=dict)
    units_in_the_last_place: Mapping[str, int] = field(default_factory=dict)
    functions: Mapping[str, Approximation] = field(default_factory=dict)
    sanitizer: Mapping[str, Planted] = field(default_factory=dict)
    a_a: Mapping[str, Any] = field(default_factory=dict)

    @property
    def timed(self) -> list[Report]:
        """The reports with a measurement."""
        return [report for report in self.reports if report.measurement is not None]


@dataclass(frozen=True)
class Recording:
    """What a notebook measured on a GPU; value is any JSON. versions: of the packages, where they were recorded."""

    device: str
    date: str
    value: Any
    versions: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Cards:
    """Which reference kernels compile for which architecture: `dev.cards` writes it, on a machine without any.

    obstacles: by exercise and architecture what keeps the kernel from it; nothing where it compiles and its launches
    fit. versions: of the compilers.
    """

    versions: Mapping[str, str] = field(default_factory=dict)
    obstacles: Mapping[str, Mapping[str, str]] = field(default_factory=dict)


@dataclass(frozen=True)
class Collection:
    """A public repository. commit: whose kernels were run. date: of that commit. kernels: so many of them were run.

    compiler: of its kernels, NVRTC, Triton or CuTe DSL.
    """

    repository: str
    commit: str
    date: str
    kernels: int
    compiler: str = ""


@dataclass(frozen=True)
class Finding:
    """What the PTX machine found in kernels of a collection.

    file, line: where to look. launch: grid, block and sizes. message: as the machine words it. meaning: what follows.
    """

    kind: str
    repository: str
    file: str
    line: int
    kernels: tuple[str, ...]
    launch: str
    message: str
    meaning: str


@dataclass(frozen=True)
class Published:
    """Kernels of public repositories on the PTX machine: launched as their authors do, at small and at odd sizes.

    compilers: their versions.
    """

    checked: str = ""
    compilers: Mapping[str, str] = field(default_factory=dict)
    collections: tuple[Collection, ...] = ()
    findings: tuple[Finding, ...] = ()

    @property
    def kinds(self) -> list[str]:
        """In the order of the file."""
        return list(dict.fromkeys(finding.kind for finding in self.findings))

    def collection(self, finding: Finding) -> Collection:
        return next(one for one in self.collections if one.repository == finding.repository)

    def faulty(self, collection: Collection) -> int:
        """In how many kernels of a collection something was found."""
        found = (finding for finding in self.findings if finding.repository == collection.repository)
        return len({kernel for finding in found for kernel in finding.kernels})


def machines(root: Path) -> list[Machine]:
    """The machines that were measured, by file name. Raises ValidationError, which names the file."""
    files = sorted(path for path in (root / FOLDER).glob("*.json") if path.name not in OTHERS)
    return [read(path) for path in files]


def read(path: Path) -> Machine:
    """One machine's file. Raises OSError and ValidationError."""
    return _decoded(path, Machine)


def recordings(path: Path) -> dict[str, Recording]:
    """What notebooks recorded in a file, by the name of the measurement; nothing where there is no file.

    Raises ValidationError.
    """
    return _decoded(path, dict[str, Recording]) if path.is_file() else {}


def cards(root: Path) -> Cards:
    """What was compiled; nothing where there is no file. Raises ValidationError."""
    path = root / FOLDER / CARDS
    return _decoded(path, Cards) if path.is_file() else Cards()


def published(root: Path) -> Published:
    """What was found in public repositories; nothing where there is no file. Raises ValidationError."""
    path = root / FOLDER / PUBLISHED
    return _decoded(path, Published) if path.is_file() else Published()


def _decoded(path: Path, kind: type[_T]) -> _T:
    try:
        return decode(path.read_bytes(), kind)
    except ValidationError as error:
        raise ValidationError(f"{path} does not hold results ({error}); restore or remove it") from error
