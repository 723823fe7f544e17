"""The web page of a learner's progress: one static HTML file from what kp check saved; nothing is graded again."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date
from functools import cached_property
from itertools import groupby
from pathlib import Path

from markupsafe import Markup

from kernelpath import words
from kernelpath.course import registry
from kernelpath.course.progress import Kept, Progress, Record
from kernelpath.course.registry import Item
from kernelpath.grading.roofline import bandwidth
from kernelpath.show import results, roofline, source, templates, view
from kernelpath.show.source import Line
from kernelpath.verdict import Measurement, Report, Verdict

ARITHMETIC = 1.01
"""A ceiling this many times slower than memory alone would allow is that of arithmetic."""

_INCHES_OF_A_NAME = 0.15
_ROOM_AT_THE_RIGHT = 25  # times the largest intensity: what the roofs are stands there, beside the marks
"""Height of a roofline for each name in it, from 30 on."""

YOURS, REFERENCE, BASELINE = "yours", "reference", "baseline"


@dataclass(frozen=True)
class Bar:
    """One run. rate: its bandwidth in words. length: its speed over the fastest's. share: of the measured ceiling."""

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
        """In a word, for the color: passed, tried or new."""
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
        if self.last is None:
            return {}
        return source.of_report(self.last.report.traffic, self.last.report.instructions, self.last.sources)


def page(root: Path, records: Sequence[tuple[Item, Record]], kept: Progress) -> str:
    """The page as HTML, from the progress and the reports kept of the checkout at `root`.

    Raises ValidationError where a file of results/ cannot be understood.
    """
    exercises = [
        Exercise(item, record, kept.kept(item.stem), kept.kept(item.stem, "timed")) for item, record in records
    ]
    own = _by_device(exercise.timed.report for exercise in exercises if exercise.timed)
    recorded = {machine.gpu: machine.timed for machine in results.machines(registry.course(root)) if machine.timed}
    others = {device: reports for device, reports in recorded.items() if device not in own}
    return templates.render(
        "report.html",
        exercises=exercises,
        weeks={week: list(group) for week, group in groupby(exercises, key=lambda exercise: exercise.item.week)},
        roofs=[Roofed(device, reports, (BASELINE, REFERENCE, YOURS)) for device, reports in own.items()],
        recorded=[Roofed(device, reports, (BASELINE, REFERENCE)) for device, reports in others.items()],
        bars=bars,
        columns=source.columns,
        colored=_colored,
        mood=view.mood,
        titles={item.stem: item.title for item, _ in records},
        scores=kept.scores(),
        today=date.today().isoformat(),
    )


def _colored(file: str, lines: Sequence[Line]) -> list[Markup]:
    return source.colored(lines, "cuda" if Path(file).suffix == ".cu" else "python")


def _by_device(reports: Iterable[Report]) -> dict[str, list[Report]]:
    found: dict[str, list[Report]] = {}
    for report in reports:
        found.setdefault(report.device, []).append(report)
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
    """Operations per second where arithmetic sets the measured ceiling, else bytes per second."""
    if measured.light_seconds > ARITHMETIC * measured.compulsory_bytes / bandwidth(measured.ceilings):
        return words.arithmetic(measured.flops / seconds)
    return words.bandwidth(measured.compulsory_bytes / seconds)


@dataclass(frozen=True)
class Roofed:
    """The roofline of one device with the runs of some roles; the last role's marks are named."""

    device: str
    reports: Sequence[Report]
    roles: Sequence[str]

    @property
    def runs(self) -> list[tuple[Report, Measurement]]:
        return [(report, report.measurement) for report in self.reports if report.measurement is not None]

    @property
    def moving(self) -> list[str]:
        """The kernels without arithmetic, which have no place on a roofline."""
        return [_name(report) for report, measured in self.runs if not measured.flops]

    @cached_property
    def marks(self) -> list[roofline.Mark]:
        return [
            self._mark(report, measured, bar)
            for role in self.roles
            for report, measured in self.runs
            for bar in bars(measured)
            if measured.flops and bar.role == role
        ]

    def _mark(self, report: Report, measured: Measurement, bar: Bar) -> roofline.Mark:
        return roofline.Mark(
            label=bar.role,
            intensity=measured.flops / measured.compulsory_bytes,
            rate=measured.flops / bar.seconds,
            name=_name(report) if bar.role == self.roles[-1] else "",
            link=f"#{report.exercise.partition('/')[2]}",
            hover=f"{_name(report)}, {bar.role}: {words.share(bar.share)} of the measured ceiling",
        )

    @property
    def roof(self) -> roofline.Roof:
        return roofline.Roof.measured({name: rate for _, one in self.runs for name, rate in one.ceilings.items()})

    @property
    def svg(self) -> Markup:
        hovers = {f"mark-{place}": mark.hover for place, mark in enumerate(self.marks)}
        named = sum(bool(mark.name) for mark in self.marks)
        inches = (8, max(4.6, _INCHES_OF_A_NAME * named))
        right = _ROOM_AT_THE_RIGHT * max((mark.intensity for mark in self.marks), default=0.0)
        figure = roofline.draw(self.marks, self.roof, inches=inches, right=right)
        return templates.svg(figure, f"Roofline of {self.device}", hovers)


def _name(report: Report) -> str:
    """The exercise's name, without phase, week and letter."""
    return report.exercise.partition("/")[2].partition("_")[2]
