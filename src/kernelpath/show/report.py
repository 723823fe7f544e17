"""The web page of a learner's progress: one static HTML file with what kp check kept, and nothing graded anew."""

from __future__ import annotations

import dataclasses
import json
import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from itertools import groupby
from pathlib import Path

from kernelpath.course.progress import Kept, Progress, Record
from kernelpath.course.registry import Item
from kernelpath.grading.roofline import bandwidth
from kernelpath.show import templates
from kernelpath.verdict import LineTraffic, Measurement, Report, Verdict

WASTE = 1.05
"""More than this many times the least traffic is marked."""

ARITHMETIC = 1.01
"""A speed of light this many times slower than memory alone would allow is that of arithmetic."""

YOURS, REFERENCE, BASELINE = "yours", "reference", "baseline"


@dataclass(frozen=True)
class Line:
    """A line of source with what it asked of memory, if anything. share: of all sectors and wavefronts, 0 to 1."""

    number: int
    text: str
    accesses: Sequence[LineTraffic] = ()
    share: float = 0.0

    @property
    def in_global(self) -> LineTraffic | None:
        """The access to global memory that wastes most."""
        found = (access for access in self.accesses if access.sectors)
        return max(found, key=lambda access: access.sectors_over_ideal, default=None)

    @property
    def in_shared(self) -> LineTraffic | None:
        """The access to shared memory that wastes most."""
        found = (access for access in self.accesses if access.wavefronts)
        return max(found, key=lambda access: access.bank_conflicts_per_request, default=None)

    @property
    def wasteful(self) -> bool:
        return any(
            access.sectors_over_ideal > WASTE or access.bank_conflicts_per_request > WASTE - 1.0
            for access in self.accesses
        )


@dataclass(frozen=True)
class Bar:
    """One run. rate: its bandwidth in words. length: its speed over the fastest's. share: of the speed of light."""

    role: str
    seconds: float
    rate: str
    length: float
    share: float


@dataclass(frozen=True)
class Exercise:
    """What the page shows of one exercise. last, timed: the reports kept, if any."""

    item: Item
    record: Record
    last: Kept | None
    timed: Kept | None

    @property
    def state(self) -> str:
        """In a word, for the colour: passed, tried or new."""
        begun = self.last is not None and self.last.report.verdict is not Verdict.NOT_STARTED
        return "passed" if self.record.passed else "tried" if begun else "new"

    @property
    def earlier(self) -> bool:
        """Whether it was passed before the last try, which was not."""
        return self.record.passed is not None and self.last is not None and not self.last.report.verdict.passed

    @property
    def measured(self) -> Measurement | None:
        return self.timed.report.measurement if self.timed else None

    @property
    def bars(self) -> list[Bar]:
        return bars(self.measured) if self.measured else []

    @property
    def sources(self) -> dict[str, list[Line]]:
        """The sources with their traffic, by file name; only files that have any."""
        return dict(annotated(self.last)) if self.last else {}


def page(root: Path, records: Iterable[tuple[Item, Record]], kept: Progress) -> str:
    """The page as HTML, from the progress and the reports kept of the checkout at `root`."""
    exercises = [
        Exercise(item, record, kept.kept(item.stem), kept.kept(item.stem, "timed")) for item, record in records
    ]
    own = _by_device(exercise.timed.report for exercise in exercises if exercise.timed)
    recorded = {name: found for name, found in _recorded(root).items() if name not in own}
    return templates.render(
        "report.html",
        exercises=exercises,
        weeks={week: list(group) for week, group in groupby(exercises, key=lambda exercise: exercise.item.week)},
        roofs=[Roof(device, reports, (BASELINE, REFERENCE, YOURS)) for device, reports in own.items()],
        recorded=[Roof(device, reports, (BASELINE, REFERENCE)) for device, reports in recorded.items()],
        bars=bars,
        scores=kept.scores(),
        today=date.today().isoformat(),
    )


def _by_device(reports: Iterable[Report]) -> dict[str, list[Report]]:
    found: dict[str, list[Report]] = {}
    for report in reports:
        found.setdefault(report.device, []).append(report)
    return found


def _recorded(root: Path) -> dict[str, list[Report]]:
    """The measurements of the reference kernels that the course ships, by GPU."""
    found = {}
    for path in sorted((root / "results").glob("*.json")):
        reports = json.loads(path.read_text(encoding="utf-8")).get("reports", ())
        timed = [report for one in reports if (report := Report.from_json(json.dumps(one))).measurement is not None]
        if timed:
            found[timed[0].device] = timed
    return found


def bars(measured: Measurement) -> list[Bar]:
    """Baseline, the learner's kernel and the reference."""
    runs = {BASELINE: measured.baseline_seconds, YOURS: measured.seconds, REFERENCE: measured.reference_seconds}
    timed = {role: seconds for role, seconds in runs.items() if seconds is not None}
    fastest = min(timed.values())
    return [
        Bar(role, seconds, rate(measured, seconds), fastest / seconds, measured.light_seconds / seconds)
        for role, seconds in timed.items()
    ]


def rate(measured: Measurement, seconds: float) -> str:
    """Operations per second where arithmetic sets the speed of light, else bytes per second."""
    if measured.light_seconds > ARITHMETIC * measured.bytes_moved / bandwidth(measured.ceilings):
        return f"{measured.flops / seconds / 1e12:,.1f} TFLOP/s"
    return f"{measured.bytes_moved / seconds / 1e9:,.0f} GB/s"


def annotated(kept: Kept) -> Iterator[tuple[str, list[Line]]]:
    """Every source file that asked for memory, line by line."""
    total = sum(line.sectors + line.wavefronts for line in kept.report.traffic)
    for name, text in kept.sources.items():
        asked: dict[int, list[LineTraffic]] = defaultdict(list)
        for access in kept.report.traffic:
            if access.file == name:
                asked[access.line].append(access)
        if asked:
            lines = enumerate(text.splitlines(), start=1)
            yield name, [Line(number, line, asked[number], share(asked[number], total)) for number, line in lines]


def share(accesses: Sequence[LineTraffic], total: int) -> float:
    return sum(access.sectors + access.wavefronts for access in accesses) / total


@dataclass(frozen=True)
class Axis:
    """A logarithmic axis from `low` to `high`, drawn between the coordinates `begin` and `end`."""

    low: float
    high: float
    begin: float
    end: float

    def __call__(self, value: float) -> float:
        along = math.log(value / self.low) / math.log(self.high / self.low)
        return round(self.begin + along * (self.end - self.begin), 1)

    @property
    def ticks(self) -> list[float]:
        """The powers of ten within."""
        exponents = range(math.ceil(math.log10(self.low) - 1e-9), math.floor(math.log10(self.high) + 1e-9) + 1)
        return [10.0**exponent for exponent in exponents]


@dataclass(frozen=True)
class Mark:
    """One run on the roofline, in the picture's coordinates. label_y: where its name stands, if it is named.

    side: 1 if the name stands to the right, -1 if to the left.
    """

    role: str
    name: str
    stem: str
    x: float
    y: float
    said: str
    side: int = 1
    label_y: float | None = None


class Roof:
    """The roofline of one device with every kernel that computes: operations per second over operations per byte.

    Kernels that only move data have no place on that axis; `moving` holds their names. Source: Williams, Waterman and
    Patterson, Communications of the ACM 52(4), 2009; the ceilings are those measured beside the kernels.
    """

    WIDTH, HEIGHT = 720.0, 420.0
    LEFT, RIGHT, TOP, BOTTOM = 70.0, 20.0, 20.0, 50.0
    LABEL_WIDTH, LABEL_HEIGHT = 150.0, 15.0

    def __init__(self, device: str, reports: Sequence[Report], roles: Sequence[str]) -> None:
        self.device = device
        self.roles = roles
        self.runs = [(report, measured) for report in reports if (measured := report.measurement) is not None]
        computing = [(report, measured) for report, measured in self.runs if measured.flops]
        self.moving = [_name(report) for report, measured in self.runs if not measured.flops]
        ceilings = {name: rate for _, measured in self.runs for name, rate in measured.ceilings.items()}
        self.memory = bandwidth(ceilings)
        self.products = {name.removeprefix("matmul_"): rate for name, rate in ceilings.items() if "matmul_" in name}
        ridges = [rate / self.memory for rate in self.products.values()]
        places = [measured.flops / measured.bytes_moved for _, measured in computing]
        self.x = Axis(
            min(*places, *ridges, 0.1) / 3, 6 * max(*places, *ridges, 1.0), self.LEFT, self.WIDTH - self.RIGHT
        )
        self.ridge = max(ridges, default=self.x.high)
        rates = [measured.flops / bar.seconds for _, measured in computing for bar in bars(measured)]
        slowest = min(*rates, self.x.low * self.memory) / 3
        self.y = Axis(slowest, 2 * self.ridge * self.memory, self.HEIGHT - self.BOTTOM, self.TOP)
        self.marks = self._labelled([mark for run in computing for mark in self._marks(*run)])

    @property
    def slope(self) -> tuple[float, float, float, float]:
        """The memory roof, as x1, y1, x2, y2."""
        low, high = self.x.low, self.ridge
        return self.x(low), self.y(low * self.memory), self.x(high), self.y(high * self.memory)

    @property
    def flats(self) -> list[tuple[float, float, str]]:
        """The roof of each matrix product that was measured: where it begins, its height, what it is."""
        return [
            (self.x(rate / self.memory), self.y(rate), f"{name} product, {rate / 1e12:,.0f} TFLOP/s")
            for name, rate in self.products.items()
        ]

    def _marks(self, report: Report, measured: Measurement) -> Iterator[Mark]:
        for bar in bars(measured):
            if bar.role in self.roles:
                name, rate = _name(report), measured.flops / bar.seconds
                said = f"{name}, {bar.role}: {bar.share:.0%} of the speed of light"
                stem = report.exercise.partition("/")[2]
                yield Mark(bar.role, name, stem, self.x(measured.flops / measured.bytes_moved), self.y(rate), said)

    def _labelled(self, marks: Sequence[Mark]) -> list[Mark]:
        """Each kernel's main mark gets its name, moved down until it covers no other name in the same column."""
        placed: list[tuple[float, float]] = []
        found = []
        for mark in sorted(marks, key=lambda mark: (self.roles.index(mark.role), mark.x, mark.y)):
            if mark.role != self.roles[-1]:
                found.append(mark)
                continue
            y = mark.y
            while any(abs(mark.x - x) < self.LABEL_WIDTH and abs(y - other) < self.LABEL_HEIGHT for x, other in placed):
                y += self.LABEL_HEIGHT / 3
            placed.append((mark.x, y))
            side = -1 if mark.x > self.WIDTH - self.LABEL_WIDTH else 1
            found.append(dataclasses.replace(mark, side=side, label_y=round(y, 1)))
        return found


def _name(report: Report) -> str:
    """The exercise's name, without phase, week and letter."""
    return report.exercise.partition("/")[2].partition("_")[2]
