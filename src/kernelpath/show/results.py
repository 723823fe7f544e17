"""Read results/: measurements on GPUs, a file for each machine.

notebooks.json has the recordings of notebooks, cards.json the GPUs for which kernels compile, published.json the faults
in kernels of public repositories, and datasheets.json the theoretical peaks of GPUs.
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
DATASHEETS = "datasheets.json"

# The files in the folder that do not describe a machine.
OTHER_FILES = (RECORDINGS, CARDS, PUBLISHED, DATASHEETS)


@dataclass(frozen=True)
class PeerComparison:
    """A reference kernel compared with other libraries.

    Attributes:
        ratios: A peer's time over ours, as (median, low, high). "copy" is a copy of the same bytes, and no peer.
        goal: The ratio that the kernel was meant to reach, in words; benchmarks/peers.py no longer writes it.
        flops: Arithmetic operations, or 0 if memory bounds the kernel.
        host_seconds: The time that a call takes on the host, or 0 if it was not measured.
        elapsed_ratios: A peer's time over ours, from the call on an idle GPU until the GPU is idle again.
    """

    exercise: str
    case: str
    seconds: float
    compulsory_bytes: int
    bytes_per_second: float
    ratios: Mapping[str, tuple[float, float, float]]
    goal: str = ""
    reached: bool = True
    flops: int = 0
    host_seconds: float = 0.0
    elapsed_ratios: Mapping[str, float] = field(default_factory=dict)

    def ratio(self, peer: str) -> Interval:
        return Interval(*self.ratios[peer])

    @property
    def best_peer(self) -> str | None:
        """Return the name of the fastest peer, or None if a copy is all there is."""
        peers = {peer: ratio[0] for peer, ratio in self.ratios.items() if peer != "copy"}
        return min(peers, key=lambda peer: peers[peer], default=None)


@dataclass(frozen=True)
class CounterPair:
    """The same counters as ncu reads them on the GPU and as the PTX machine counts them."""

    ncu: Mapping[str, int]
    machine: Mapping[str, int]


@dataclass(frozen=True)
class Approximation:
    """An approximate function: the share of equal values, the largest difference, and the manual's bound."""

    equal: float
    measure: str
    largest: float
    allowed: float


@dataclass(frozen=True)
class SanitizerResult:
    """The result of a compute-sanitizer tool for a planted bug.

    Attributes:
        line: Whether the tool names the line.
    """

    tool: str
    found: bool
    line: bool
    hung: bool


@dataclass(frozen=True)
class Machine:
    """The contents of one file: a GPU, and the parts that were measured on it.

    Attributes:
        date: When the newest part was measured.
        report_dates: The day of each report, by exercise: a run may renew some of them.
    """

    gpu: str
    driver: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)
    date: str = ""
    telemetry: Mapping[str, float] = field(default_factory=dict)
    ceilings: Mapping[str, float] = field(default_factory=dict)
    rounds: int = 0
    confidence: float = 0.0
    reports: tuple[Report, ...] = ()
    report_dates: Mapping[str, str] = field(default_factory=dict)
    peers: tuple[PeerComparison, ...] = ()
    absent: Mapping[str, str] = field(default_factory=dict)
    counters: Mapping[str, CounterPair] = field(default_factory=dict)
    corpus: Mapping[str, CounterPair] = field(default_factory=dict)
    hopper: Mapping[str, CounterPair] = field(default_factory=dict)
    kernels: Mapping[str, CounterPair] = field(default_factory=dict)
    units_in_the_last_place: Mapping[str, int] = field(default_factory=dict)
    functions: Mapping[str, Approximation] = field(default_factory=dict)
    sanitizer: Mapping[str, SanitizerResult] = field(default_factory=dict)
    a_a: Mapping[str, Any] = field(default_factory=dict)

    @property
    def timed(self) -> list[Report]:
        """Return the reports that have a measurement."""
        return [report for report in self.reports if report.measurement is not None]


@dataclass(frozen=True)
class NotebookRecording:
    """A measurement of a notebook on a GPU.

    Attributes:
        value: Any JSON value.
        versions: The versions of the packages at the time of the recording.
    """

    device: str
    date: str
    value: Any
    versions: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Datasheet:
    """The theoretical peaks of a GPU, without sparsity.

    Attributes:
        source: The document that states them.
        peaks: Bytes or operations per second: "memory", and otherwise by the names of measured ceilings. The peak of
            "copy to a peer" is that of one direction.
    """

    source: str
    peaks: Mapping[str, float]


@dataclass(frozen=True)
class Cards:
    """The architectures for which each reference kernel compiles, as `dev.cards` writes them.

    Attributes:
        versions: The versions of the compilers.
        obstacles: The reason, by exercise and architecture; no entry where the kernel compiles and its launches fit.
    """

    versions: Mapping[str, str] = field(default_factory=dict)
    obstacles: Mapping[str, Mapping[str, str]] = field(default_factory=dict)


@dataclass(frozen=True)
class Collection:
    """A public repository.

    Attributes:
        commit: The commit whose kernels were run.
        date: The date of that commit.
        kernels: The number of kernels that were run.
        compiler: NVRTC, Triton or CuTe DSL.
    """

    repository: str
    commit: str
    date: str
    kernels: int
    compiler: str = ""


@dataclass(frozen=True)
class PublishedFault:
    """A fault that the PTX machine found in kernels of a collection.

    Attributes:
        file: The file to look at.
        line: The line to look at.
        launch: Grid, block and sizes.
        message: The machine's message.
        meaning: The consequence.
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
    """Kernels of public repositories on the PTX machine, launched as their authors do at small and odd sizes.

    Attributes:
        compilers: The versions of the compilers.
    """

    checked: str = ""
    compilers: Mapping[str, str] = field(default_factory=dict)
    collections: tuple[Collection, ...] = ()
    findings: tuple[PublishedFault, ...] = ()

    @property
    def kinds(self) -> list[str]:
        """Return the kinds of faults in the order of the file."""
        return list(dict.fromkeys(finding.kind for finding in self.findings))

    def collection(self, finding: PublishedFault) -> Collection:
        return next(collection for collection in self.collections if collection.repository == finding.repository)

    def faulty(self, collection: Collection) -> int:
        """Return the number of kernels of a collection that have a fault."""
        findings = (finding for finding in self.findings if finding.repository == collection.repository)
        return len({kernel for finding in findings for kernel in finding.kernels})


def machines(root: Path) -> list[Machine]:
    """Return the measured machines by file name. Raises ValidationError, which names the file."""
    # Every other JSON file of the folder describes a machine, so that a new recording appears without being registered.
    files = sorted(path for path in (root / FOLDER).glob("*.json") if path.name not in OTHER_FILES)
    return [read(path) for path in files]


def read(path: Path) -> Machine:
    """Read one machine's file. Raises OSError and ValidationError."""
    return _decode_file(path, Machine)


def recordings(path: Path) -> dict[str, NotebookRecording]:
    """Read the recordings of notebooks by the measurement's name; none without the file. Raises ValidationError."""
    return _decode_file(path, dict[str, NotebookRecording]) if path.is_file() else {}


def datasheets(root: Path) -> dict[str, Datasheet]:
    """Read the data sheets by the GPU's name; none without the file. Raises ValidationError."""
    path = root / FOLDER / DATASHEETS
    return _decode_file(path, dict[str, Datasheet]) if path.is_file() else {}


def cards(root: Path) -> Cards:
    """Read which kernels compile where; nothing without the file. Raises ValidationError."""
    path = root / FOLDER / CARDS
    return _decode_file(path, Cards) if path.is_file() else Cards()


def published(root: Path) -> Published:
    """Read the faults in public repositories; nothing without the file. Raises ValidationError."""
    path = root / FOLDER / PUBLISHED
    return _decode_file(path, Published) if path.is_file() else Published()


def _decode_file(path: Path, kind: type[_T]) -> _T:
    try:
        return decode(path.read_bytes(), kind)
    except ValidationError as error:
        raise ValidationError(f"{path} does not hold results ({error}); restore or remove it") from error
