"""Render the web page of a learner's progress: one static HTML file from the reports that kp check saved."""

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
from kernelpath.course.progress import Progress, Record, SavedReport
from kernelpath.course.registry import ExerciseRef
from kernelpath.show import datasheet, results, roofline, source, templates, view
from kernelpath.show.source import Line
from kernelpath.verdict import Measurement, Report, Verdict

_INCHES_PER_NAME = 0.15  # height of a roofline for each name in it, from 30 names on
_RIGHT_MARGIN_FACTOR = 25  # times the largest intensity, which leaves room for the labels of the roofs


YOURS = "yours"
REFERENCE = "reference"
BASELINE = "baseline"


@dataclass(frozen=True)
class Bar:
    """One measured run.

    Attributes:
        rate: The bandwidth as text.
        length: The speed relative to the fastest run.
        share: The share of the measured ceiling.
    """

    role: str
    seconds: float
    rate: str
    length: float
    share: float


@dataclass(frozen=True)
class ExerciseProgress:
    """The part of the page about one exercise.

    Attributes:
        last: The report of the last grading, if it was saved.
        timed: The last report with a measurement, if it was saved.
    """

    item: ExerciseRef
    record: Record
    last: SavedReport | None
    timed: SavedReport | None

    @property
    def state(self) -> str:
        """Return the state that determines the color: passed, tried or new."""
        is_started = self.last is not None and self.last.report.verdict is not Verdict.NOT_STARTED
        if self.record.passed:
            return "passed"
        return "tried" if is_started else "new"

    @property
    def earlier(self) -> bool:
        """Return whether the exercise was passed before the last try, which failed."""
        return self.record.passed is not None and self.last is not None and not self.last.report.verdict.passed

    @property
    def measured(self) -> Measurement | None:
        return self.timed.report.measurement if self.timed else None

    @property
    def bars(self) -> list[Bar]:
        return bars(self.measured) if self.measured else []

    @property
    def sources(self) -> dict[str, list[Line]]:
        """Return the sources with their traffic by file name, without files that have none."""
        if self.last is None:
            return {}
        return source.of_report(self.last.report.traffic, self.last.report.instructions, self.last.sources)


def page(root: Path, records: Sequence[tuple[ExerciseRef, Record]], progress: Progress) -> str:
    """Return the page as HTML, from the progress and the reports saved in the checkout at `root`.

    Raises ValidationError if a file of results/ is invalid.
    """
    exercises = [
        ExerciseProgress(item, record, progress.load_report(item.path_id), progress.load_report(item.path_id, "timed"))
        for item, record in records
    ]
    own_reports = _group_by_device(exercise.timed.report for exercise in exercises if exercise.timed)
    recorded_reports = {
        machine.gpu: machine.timed for machine in results.machines(registry.course(root)) if machine.timed
    }
    other_devices = {device: reports for device, reports in recorded_reports.items() if device not in own_reports}
    return templates.render(
        "report.html",
        exercises=exercises,
        weeks={week: list(group) for week, group in groupby(exercises, key=lambda exercise: exercise.item.week)},
        roofs=[
            DeviceRoofline(device, reports, (BASELINE, REFERENCE, YOURS)) for device, reports in own_reports.items()
        ],
        recorded=[DeviceRoofline(device, reports, (BASELINE, REFERENCE)) for device, reports in other_devices.items()],
        bars=bars,
        columns=source.columns,
        colored=_highlight,
        mood=view.mood,
        titles={item.path_id: item.title for item, _ in records},
        scores=progress.scores(),
        today=date.today().isoformat(),
    )


def _highlight(file: str, lines: Sequence[Line]) -> list[Markup]:
    return source.highlight_lines(lines, "cuda" if Path(file).suffix == ".cu" else "python")


def _group_by_device(reports: Iterable[Report]) -> dict[str, list[Report]]:
    reports_by_device: dict[str, list[Report]] = {}
    for report in reports:
        reports_by_device.setdefault(report.device, []).append(report)
    return reports_by_device


def bars(measured: Measurement) -> list[Bar]:
    """Return the bars of the baseline, the learner's kernel and the reference."""
    runs = {BASELINE: measured.baseline_seconds, YOURS: measured.seconds, REFERENCE: measured.reference_seconds}
    timed = {role: seconds for role, seconds in runs.items() if seconds is not None}
    fastest = min(timed.values())
    return [
        Bar(role, seconds, format_rate(measured, seconds), fastest / seconds, measured.light_seconds / seconds)
        for role, seconds in timed.items()
    ]


def format_rate(measured: Measurement, seconds: float) -> str:
    """Format operations per second if arithmetic sets the measured ceiling, else bytes per second."""
    if datasheet.is_compute_bound(measured):
        return words.arithmetic(measured.flops / seconds)
    return words.bandwidth(measured.compulsory_bytes / seconds)


@dataclass(frozen=True)
class DeviceRoofline:
    """The roofline of one device with the runs of some roles, the last of which has named marks."""

    device: str
    reports: Sequence[Report]
    roles: Sequence[str]

    @property
    def runs(self) -> list[tuple[Report, Measurement]]:
        return [(report, report.measurement) for report in self.reports if report.measurement is not None]

    @property
    def moving(self) -> list[str]:
        """Return the kernels without arithmetic, which have no place on a roofline."""
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
        return roofline.Roof.measured(
            {name: format_rate for _, measurement in self.runs for name, format_rate in measurement.ceilings.items()}
        )

    @property
    def svg(self) -> Markup:
        hovers = {f"mark-{index}": mark.hover for index, mark in enumerate(self.marks)}
        named = sum(bool(mark.name) for mark in self.marks)
        inches = (8, max(4.6, _INCHES_PER_NAME * named))
        right = _RIGHT_MARGIN_FACTOR * max((mark.intensity for mark in self.marks), default=0.0)
        figure = roofline.draw(self.marks, self.roof, inches=inches, right=right)
        return templates.svg(figure, f"Roofline of {self.device}", hovers)


def _name(report: Report) -> str:
    """Return the exercise's name without phase, week and letter."""
    return report.exercise.partition("/")[2].partition("_")[2]
