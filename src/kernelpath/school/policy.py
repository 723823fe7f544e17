"""Read what a teacher decides: the points of each exercise, deadlines, late days. A TOML file, given by --policy.

    timezone = "Europe/Berlin"      # of every time below, and in the table of times, that has no offset of its own
    times = "submitted.csv"         # when each learner handed in: columns learner, submitted, and perhaps exercise
    points = 10                     # of each exercise; without it an exercise has a point for each star
    full_stars = 1                  # with how many stars an exercise has all its points; without it, with all of them

    [late]
    percent_per_day = 10            # of an exercise's points, for each day that has begun
    free_days = 3                   # that cost nothing, for each learner in all, used in the order of the deadlines
    most_days = 5                   # after which nothing counts
    grace_minutes = 10

    [weeks.3]                       # of each exercise of week 3
    deadline = 2026-10-05T23:59:00  # or a date, which ends with that day

    [exercises.transpose]
    points = 20
    deadline = 2026-10-12

    [extensions]                    # days, for all deadlines of one learner
    "Ada Lovelace" = 2

`times` decides where the time of a submission comes from. A table is what the platform recorded that collected the
files. times = "files" takes the newest modification time of the files of a submission instead, which is right where
they were copied from the learners' home directories, and wrong where a download has set it. The date of a git commit is
not offered: it is what the learner's computer says, or what the learner writes there.
"""

from __future__ import annotations

import csv
import difflib
import io
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, time, timedelta, timezone, tzinfo
from pathlib import Path
from typing import Any, Literal
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import tomlkit
import tomlkit.exceptions

from kernelpath import files
from kernelpath.course import registry
from kernelpath.course.registry import Item, LookupFailed
from kernelpath.school.gradebook import inert

_MOST_BYTES = 1 << 24
"""Of a policy, and of a table of times."""

FILES = "files"
"""The value of `times` that stands for modification times."""


class PolicyError(Exception):
    """The policy, or its table of times, cannot be used. The message names file and key, and says what to do."""


@dataclass(frozen=True)
class LateRule:
    """What a late submission costs. most_days: None where a submission counts however late it is."""

    percent_per_day: float
    free_days: int = 0
    most_days: int | None = None
    grace_minutes: int = 0


@dataclass(frozen=True)
class Policy:
    """A teacher's decisions. The default has a point for each star, and no deadlines.

    points, deadlines: by the stem of an exercise; an exercise without points here has a point for each star.
    full_stars: with how many stars an exercise has all its points; None where it needs all of them.
    named: the exercises that have a table of their own, whether or not anybody handed them in.
    by_files: whether modification times decide; else `times` does, by learner and the stem of an exercise, or "" for
    all exercises of a learner.
    """

    points: Mapping[str, float] = field(default_factory=dict)
    deadlines: Mapping[str, datetime] = field(default_factory=dict)
    full_stars: int | None = None
    late: LateRule | None = None
    extensions: Mapping[str, int] = field(default_factory=dict)
    named: Sequence[Item] = ()
    by_files: bool = False
    times: Mapping[tuple[str, str], datetime] = field(default_factory=dict)
    zone: tzinfo = timezone.utc

    def deadline(self, learner: str, exercise: str) -> datetime | None:
        """Return the deadline of a learner, extension included; None where the exercise has no deadline."""
        deadline = self.deadlines.get(exercise)
        if deadline is None:
            return None
        # Days of the calendar: across a change of the clocks, 23:59 stays 23:59.
        extended = deadline + timedelta(days=self.extensions.get(learner, 0))
        return extended.replace(fold=deadline.fold)  # a sum of datetimes forgets it

    def submitted(self, learner: str, exercise: str, python_file: Path | None) -> datetime | None:
        """Return when a learner handed in an exercise; None where nobody knows."""
        if self.by_files and python_file is not None:
            modified = max((path.stat().st_mtime for path in files.submitted(python_file)), default=None)
            return None if modified is None else datetime.fromtimestamp(modified, self.zone)
        # Spreadsheets have a name that begins with "=" in the form in which grades.csv gives it to them.
        forms = dict.fromkeys((learner, inert(learner)))
        keys = [(form, key) for key in (exercise, "") for form in forms]
        return next((self.times[key] for key in keys if key in self.times), None)


def read_policy(path: Path, at: Path | None = None) -> Policy:
    """Read a policy, and the table of times that it names, for the course at `at`. Raises PolicyError."""
    try:
        document = tomlkit.parse(files.read_source(path, _MOST_BYTES).decode("utf-8-sig")).unwrap()
    except files.Unreadable as error:
        raise PolicyError(f"{path}: {error}") from error
    except (tomlkit.exceptions.TOMLKitError, ValueError, RecursionError) as error:
        raise PolicyError(f"{path} is not TOML: {error}") from error
    top = _Table(path.name, "", document)
    zone = _zone(top)
    default_points, default_deadline = _take_terms(top, zone)
    full_stars = top.take_whole_number("full_stars", least=1, most=3)
    late_table = top.take_table("late")
    weeks = top.take_tables("weeks")
    exercises = top.take_tables("exercises")
    extensions_table = top.take_table("extensions") or _Table(path.name, "extensions", {})
    extensions = {name: extensions_table.take_whole_number(name) or 0 for name in extensions_table.names()}
    times_name = top.take_text("times")
    top.refuse_the_rest()

    points: dict[str, float] = {}
    deadlines: dict[str, datetime] = {}
    named: dict[Item, None] = {}

    def apply(items: Iterable[Item], item_points: float | None, item_deadline: datetime | None) -> None:
        for item in items:
            if item_points is not None:
                points[item.stem] = item_points
            if item_deadline is not None:
                deadlines[item.stem] = item_deadline

    every = registry.exercises(at)
    apply(every, default_points, default_deadline)
    for key, table in weeks.items():
        apply(_of_week(key, every, table), *_take_terms(table, zone))
        table.refuse_the_rest()
    for key, table in exercises.items():
        item = _of_name(key, at, table)
        if item in named:
            raise PolicyError(f"{path.name}: two tables are about {item.name}; keep one")
        named[item] = None
        apply([item], *_take_terms(table, zone))
        table.refuse_the_rest()

    late = None if late_table is None else _late_rule(late_table)
    if deadlines and late is None:
        raise PolicyError(
            f"{path.name} has deadlines, but no [late] table; say what a late day costs: [late] percent_per_day = 10"
        )
    if deadlines and times_name is None:
        raise PolicyError(
            f"{path.name} has deadlines, but does not say where the time of a submission comes from: "
            'add times = "submitted.csv" (a table with the columns learner and submitted), or times = "files" '
            "(the newest modification time of the files)"
        )
    by_files = times_name == FILES
    times = {} if by_files or times_name is None else _read_times(path.parent / times_name, zone, at)
    return Policy(points, deadlines, full_stars, late, extensions, tuple(named), by_files, times, zone or timezone.utc)


def unmatched(policy: Policy, learners: Iterable[str]) -> list[str]:
    """Return the learners that the policy or its table of times names and the class does not have."""
    names = {form for learner in learners for form in (learner, inert(learner))}
    return sorted({*policy.extensions, *(learner for learner, _ in policy.times)} - names)


def _take_terms(table: _Table, zone: tzinfo | None) -> tuple[float | None, datetime | None]:
    return table.take_number("points"), table.take_moment("deadline", zone)


def _late_rule(table: _Table) -> LateRule:
    percent = table.take_number("percent_per_day", most=100)
    if percent is None:
        raise PolicyError(f"{table.file} lacks percent_per_day in [late]; it is a number from 0 to 100")
    rule = LateRule(
        percent,
        table.take_whole_number("free_days") or 0,
        table.take_whole_number("most_days"),
        table.take_whole_number("grace_minutes") or 0,
    )
    table.refuse_the_rest()
    return rule


def _zone(top: _Table) -> tzinfo | None:
    name = top.take_text("timezone")
    if name is None:
        return None
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise PolicyError(
            f'{top.file}: timezone = "{name}" is not known on this machine; write a name such as "Europe/Berlin"'
        ) from error


def _of_week(key: str, every: Sequence[Item], table: _Table) -> list[Item]:
    items = [item for item in every if str(item.week) == key]
    if not items:
        weeks = f"{every[0].week} to {every[-1].week}"
        raise PolicyError(f"{table.file}: [{table.name}] is no week of the course; its weeks are {weeks}")
    return items


def _of_name(key: str, at: Path | None, table: _Table) -> Item:
    try:
        return registry.find(key, at)
    except LookupFailed as error:
        raise PolicyError(f"{table.file}: [{table.name}]: {error}") from error


class _Table:
    """A table of the policy, from which keys are taken by their kinds. What is left at the end is unknown."""

    def __init__(self, file: str, name: str, content: Mapping[str, Any]) -> None:
        self.file = file
        self.name = name
        self._left = dict(content)
        self._known: list[str] = []

    def names(self) -> list[str]:
        return list(self._left)

    def refuse_the_rest(self) -> None:
        """Raise PolicyError for a key that nothing has taken."""
        for key in self._left:
            near = difflib.get_close_matches(key, self._known, n=1)
            meant = f"did you mean {near[0]}?" if near else f"the keys are {', '.join(self._known)}"
            raise PolicyError(f"{self.file}: unknown key {self._named(key)}; {meant}")

    def take_text(self, key: str) -> str | None:
        value = self._take(key)
        if value is not None and (not isinstance(value, str) or not value):
            raise self._unlike(key, value, "a text in quotes")
        return value

    def take_number(self, key: str, most: float = 1e6) -> float | None:
        value = self._take(key)
        if value is not None and (
            isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= most
        ):
            raise self._unlike(key, value, f"a number from 0 to {most:,.0f}")
        return value

    def take_whole_number(self, key: str, least: int = 0, most: int = 100_000) -> int | None:
        value = self._take(key)
        if value is not None and not (type(value) is int and least <= value <= most):
            raise self._unlike(key, value, f"a whole number from {least} to {most:,}")
        return value

    def take_moment(self, key: str, zone: tzinfo | None) -> datetime | None:
        """Take a time, or a date, which stands for the end of that day. Raises PolicyError for one without a zone."""
        value = self._take(key)
        if value is None:
            return None
        if isinstance(value, datetime):
            moment = value
        elif isinstance(value, date):
            moment = datetime.combine(value + timedelta(days=1), time())
        else:
            raise self._unlike(key, value, "a date or a time without quotes, such as 2026-10-05T23:59:00")
        return _in_zone(moment, zone, f"{self.file}: {self._named(key)} = {value}", fold=1)  # the later of two

    def take_table(self, key: str) -> _Table | None:
        value = self._take(key)
        if value is None:
            return None
        if not isinstance(value, dict):
            raise self._unlike(key, value, f"a table, which begins with [{key}]")
        return _Table(self.file, self._named(key), value)

    def take_tables(self, key: str) -> dict[str, _Table]:
        """Take a table of tables, such as weeks for [weeks.3]."""
        table = self.take_table(key)
        if table is None:
            return {}
        tables = {name: table.take_table(name) for name in table.names()}
        return {name: inner for name, inner in tables.items() if inner is not None}

    def _take(self, key: str) -> Any:
        self._known.append(key)
        return self._left.pop(key, None)

    def _named(self, key: str) -> str:
        return f"{self.name}.{key}" if self.name else key

    def _unlike(self, key: str, value: Any, kind: str) -> PolicyError:
        return PolicyError(f"{self.file}: {self._named(key)} = {value!r} is not {kind}")


def _in_zone(moment: datetime, zone: tzinfo | None, where: str, fold: Literal[0, 1]) -> datetime:
    """Return a moment with its zone.

    fold: of an hour that the clocks repeat, whether the moment is in the first or in the second one.
    """
    if moment.tzinfo is not None:
        return moment
    if zone is None:
        raise PolicyError(
            f'{where} has no offset; add timezone = "Europe/Berlin" or the like, or write +02:00 behind it'
        )
    moment = moment.replace(tzinfo=zone, fold=fold)
    there_and_back = moment.astimezone(timezone.utc).astimezone(zone)
    if there_and_back.replace(tzinfo=None) != moment.replace(tzinfo=None):
        raise PolicyError(f"{where} does not exist in {zone}: the clocks skip that hour")
    return moment


def _read_times(path: Path, zone: tzinfo | None, at: Path | None) -> dict[tuple[str, str], datetime]:
    """Read when learners handed in. Of several rows for one learner and exercise the latest counts, as its files do."""
    try:
        text = files.read_source(path, _MOST_BYTES).decode("utf-8-sig")
    except files.Unreadable as error:
        raise PolicyError(f"{path}: {error}; it is the table that the policy's key times names") from error
    except UnicodeDecodeError as error:
        raise PolicyError(f"{path.name} is not UTF-8; save it as CSV in UTF-8") from error
    delimiter = ";" if ";" in text.partition("\n")[0] else ","  # as spreadsheets write where "," is in numbers
    try:
        rows = list(csv.DictReader(io.StringIO(text), delimiter=delimiter))
    except csv.Error as error:
        raise PolicyError(f"{path.name} is not a table: {error}") from error
    columns = set(rows[0] if rows else ())
    if not {"learner", "submitted"} <= columns:
        raise PolicyError(
            f"{path.name} needs a heading with the columns learner and submitted, and a row for each learner"
        )
    stems: dict[str, str] = {"": ""}
    times: dict[tuple[str, str], datetime] = {}
    for number, row in enumerate(rows, start=2):
        learner, submitted = (row["learner"] or "").strip(), (row["submitted"] or "").strip()
        if not learner or not submitted:
            continue  # a learner who handed in nothing
        name = (row.get("exercise") or "").strip()
        where = f"{path.name}, row {number}"
        if name not in stems:
            try:
                stems[name] = registry.find(name, at).stem
            except LookupFailed as error:
                raise PolicyError(f"{where}: {error}") from error
        moment = _parse_time(submitted, zone, where)
        key = learner, stems[name]
        times[key] = max(moment, times.get(key, moment))
    return times


_OFFSET = re.compile(r"\s*(?:(?P<utc>Z|UTC|GMT)|(?P<hours>[+-]\d\d):?(?P<minutes>\d\d))\Z", re.IGNORECASE)


def _parse_time(text: str, zone: tzinfo | None, where: str) -> datetime:
    """Parse a time as platforms and git write it: 2026-10-05T23:59:00Z, 2026-10-05 23:59:00 +0200."""
    iso = _OFFSET.sub(lambda match: "+00:00" if match["utc"] else f"{match['hours']}:{match['minutes']}", text)
    try:
        if ":" not in text:
            raise ValueError("a date without a time")
        moment = datetime.fromisoformat(iso)
    except ValueError as error:
        raise PolicyError(f"{where}: {text!r} is not a time such as 2026-10-05T23:59:00+02:00") from error
    return _in_zone(moment, zone, f"{where}: {text}", fold=0)  # of two the earlier, as nobody knows
