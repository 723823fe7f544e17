"""Read a teacher's policy: the points of each exercise, deadlines, late days. A TOML file, given by --policy.

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

`times` decides where the time of a submission comes from. A table has the times that the platform recorded when it
collected the files. times = "files" takes the newest modification time of the files of a submission, which is right if
they were copied from the learners' home directories, and wrong if a download has set it. The date of a git commit is
not supported, because learners and their computers can set it to any value.
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
from kernelpath.course.registry import ExerciseRef, LookupFailed
from kernelpath.school.gradebook import neutralize

# The size limit of a policy and of a table of times.
_MAX_BYTES = 1 << 24

# The value of `times` that selects modification times.
FROM_FILES = "files"


class PolicyError(Exception):
    """A policy or its table of times is invalid. The message names file and key, and says what to do."""


@dataclass(frozen=True)
class LateRule:
    """The cost of a late submission.

    Attributes:
        most_days: None if a submission counts however late it is.
    """

    percent_per_day: float
    free_days: int = 0
    most_days: int | None = None
    grace_minutes: int = 0


@dataclass(frozen=True)
class Policy:
    """A teacher's decisions. The default has a point for each star, and no deadlines.

    Attributes:
        points: The points by the path id of an exercise. An exercise without points has a point for each star.
        deadlines: The deadlines by the path id of an exercise.
        full_stars: The stars that give all points of an exercise; None if all stars are required.
        named: The exercises that have a table of their own, whether or not anybody handed them in.
        by_files: Whether modification times decide. Otherwise `times` does.
        times: The times by learner and the path id of an exercise, or "" for all exercises of a learner.
    """

    points: Mapping[str, float] = field(default_factory=dict)
    deadlines: Mapping[str, datetime] = field(default_factory=dict)
    full_stars: int | None = None
    late: LateRule | None = None
    extensions: Mapping[str, int] = field(default_factory=dict)
    named: Sequence[ExerciseRef] = ()
    by_files: bool = False
    times: Mapping[tuple[str, str], datetime] = field(default_factory=dict)
    zone: tzinfo = timezone.utc

    def deadline(self, learner: str, exercise: str) -> datetime | None:
        """Return the deadline of a learner, including an extension, or None if the exercise has no deadline."""
        deadline = self.deadlines.get(exercise)
        if deadline is None:
            return None
        # Days of the calendar: across a change of the clocks, 23:59 stays 23:59.
        extended = deadline + timedelta(days=self.extensions.get(learner, 0))
        return extended.replace(fold=deadline.fold)  # the sum of a datetime and a timedelta has fold=0

    def submitted(self, learner: str, exercise: str, python_file: Path | None) -> datetime | None:
        """Return when a learner handed in an exercise, or None if nobody knows."""
        if self.by_files and python_file is not None:
            modified = max((path.stat().st_mtime for path in files.submitted(python_file)), default=None)
            return None if modified is None else datetime.fromtimestamp(modified, self.zone)
        # A spreadsheet has a name that begins with "=" in the escaped spelling of grades.csv.
        spellings = dict.fromkeys((learner, neutralize(learner)))
        keys = [(spelling, key) for key in (exercise, "") for spelling in spellings]
        return next((self.times[key] for key in keys if key in self.times), None)


def read_policy(path: Path, root: Path | None = None) -> Policy:
    """Read a policy, and the table of times that it names, for the course at `root`. Raises PolicyError."""
    try:
        document = tomlkit.parse(files.read_source(path, _MAX_BYTES).decode("utf-8-sig")).unwrap()
    except files.Unreadable as error:
        raise PolicyError(f"{path}: {error}") from error
    except (tomlkit.exceptions.TOMLKitError, ValueError, RecursionError) as error:
        raise PolicyError(f"{path} is not TOML: {error}") from error
    top = _Table(path.name, "", document)
    zone = _read_zone(top)
    default_points, default_deadline = _take_points_and_deadline(top, zone)
    full_stars = top.take_whole_number("full_stars", minimum=1, maximum=3)
    late_table = top.take_table("late")
    weeks = top.take_tables("weeks")
    exercises = top.take_tables("exercises")
    extensions_table = top.take_table("extensions") or _Table(path.name, "extensions", {})
    extensions = {name: extensions_table.take_whole_number(name) or 0 for name in extensions_table.names()}
    times_name = top.take_text("times")
    top.reject_unknown_keys()

    points: dict[str, float] = {}
    deadlines: dict[str, datetime] = {}
    named: dict[ExerciseRef, None] = {}

    def apply(items: Iterable[ExerciseRef], item_points: float | None, item_deadline: datetime | None) -> None:
        for item in items:
            if item_points is not None:
                points[item.path_id] = item_points
            if item_deadline is not None:
                deadlines[item.path_id] = item_deadline

    all_items = registry.exercises(root)
    # A week overrides the defaults, and an exercise overrides its week.
    apply(all_items, default_points, default_deadline)
    for key, table in weeks.items():
        apply(_items_of_week(key, all_items, table), *_take_points_and_deadline(table, zone))
        table.reject_unknown_keys()
    for key, table in exercises.items():
        item = _item_of_name(key, root, table)
        if item in named:
            raise PolicyError(f"{path.name}: two tables are about {item.name}; keep one")
        named[item] = None
        apply([item], *_take_points_and_deadline(table, zone))
        table.reject_unknown_keys()

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
    by_files = times_name == FROM_FILES
    times = {} if by_files or times_name is None else _read_times(path.parent / times_name, zone, root)
    return Policy(points, deadlines, full_stars, late, extensions, tuple(named), by_files, times, zone or timezone.utc)


def unmatched(policy: Policy, learners: Iterable[str]) -> list[str]:
    """Return the learners in the policy or its table of times that the class does not have."""
    names = {spelling for learner in learners for spelling in (learner, neutralize(learner))}
    return sorted({*policy.extensions, *(learner for learner, _ in policy.times)} - names)


def _take_points_and_deadline(table: _Table, zone: tzinfo | None) -> tuple[float | None, datetime | None]:
    return table.take_number("points"), table.take_moment("deadline", zone)


def _late_rule(table: _Table) -> LateRule:
    percent = table.take_number("percent_per_day", maximum=100)
    if percent is None:
        raise PolicyError(f"{table.file} lacks percent_per_day in [late]; it is a number from 0 to 100")
    rule = LateRule(
        percent,
        table.take_whole_number("free_days") or 0,
        table.take_whole_number("most_days"),
        table.take_whole_number("grace_minutes") or 0,
    )
    table.reject_unknown_keys()
    return rule


def _read_zone(top: _Table) -> tzinfo | None:
    name = top.take_text("timezone")
    if name is None:
        return None
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise PolicyError(
            f'{top.file}: timezone = "{name}" is not known on this machine; write a name such as "Europe/Berlin"'
        ) from error


def _items_of_week(key: str, all_items: Sequence[ExerciseRef], table: _Table) -> list[ExerciseRef]:
    items = [item for item in all_items if str(item.week) == key]
    if not items:
        weeks = f"{all_items[0].week} to {all_items[-1].week}"
        raise PolicyError(f"{table.file}: [{table.name}] is no week of the course; its weeks are {weeks}")
    return items


def _item_of_name(key: str, root: Path | None, table: _Table) -> ExerciseRef:
    try:
        return registry.find(key, root)
    except LookupFailed as error:
        raise PolicyError(f"{table.file}: [{table.name}]: {error}") from error


class _Table:
    """A table of the policy, from which keys are taken with a type. A key that is left at the end is unknown."""

    def __init__(self, file: str, name: str, content: Mapping[str, Any]) -> None:
        self.file = file
        self.name = name
        self._remaining = dict(content)
        self._taken_keys: list[str] = []

    def names(self) -> list[str]:
        return list(self._remaining)

    def reject_unknown_keys(self) -> None:
        """Raise PolicyError for a key that was not taken."""
        for key in self._remaining:
            similar = difflib.get_close_matches(key, self._taken_keys, n=1)
            hint = f"did you mean {similar[0]}?" if similar else f"the keys are {', '.join(self._taken_keys)}"
            raise PolicyError(f"{self.file}: unknown key {self._full_key(key)}; {hint}")

    def take_text(self, key: str) -> str | None:
        value = self._take(key)
        if value is not None and (not isinstance(value, str) or not value):
            raise self._type_error(key, value, "a text in quotes")
        return value

    def take_number(self, key: str, maximum: float = 1e6) -> float | None:
        value = self._take(key)
        if value is not None and (
            isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= maximum
        ):
            raise self._type_error(key, value, f"a number from 0 to {maximum:,.0f}")
        return value

    def take_whole_number(self, key: str, minimum: int = 0, maximum: int = 100_000) -> int | None:
        value = self._take(key)
        # bool is a subclass of int, and `true` is not a number.
        if value is not None and not (type(value) is int and minimum <= value <= maximum):
            raise self._type_error(key, value, f"a whole number from {minimum} to {maximum:,}")
        return value

    def take_moment(self, key: str, zone: tzinfo | None) -> datetime | None:
        """Take a time, or a date, which stands for the end of that day. Raises PolicyError without a zone."""
        value = self._take(key)
        if value is None:
            return None
        # datetime is a subclass of date, so it is tested first.
        if isinstance(value, datetime):
            moment = value
        elif isinstance(value, date):
            moment = datetime.combine(value + timedelta(days=1), time())
        else:
            raise self._type_error(key, value, "a date or a time without quotes, such as 2026-10-05T23:59:00")
        return _in_zone(
            moment, zone, f"{self.file}: {self._full_key(key)} = {value}", fold=1
        )  # of an ambiguous time the later, in favor of the learner

    def take_table(self, key: str) -> _Table | None:
        value = self._take(key)
        if value is None:
            return None
        if not isinstance(value, dict):
            raise self._type_error(key, value, f"a table, which begins with [{key}]")
        return _Table(self.file, self._full_key(key), value)

    def take_tables(self, key: str) -> dict[str, _Table]:
        """Take a table of tables, such as weeks for [weeks.3]."""
        table = self.take_table(key)
        if table is None:
            return {}
        tables = {name: table.take_table(name) for name in table.names()}
        return {name: inner for name, inner in tables.items() if inner is not None}

    def _take(self, key: str) -> Any:
        self._taken_keys.append(key)
        return self._remaining.pop(key, None)

    def _full_key(self, key: str) -> str:
        return f"{self.name}.{key}" if self.name else key

    def _type_error(self, key: str, value: Any, kind: str) -> PolicyError:
        return PolicyError(f"{self.file}: {self._full_key(key)} = {value!r} is not {kind}")


def _in_zone(moment: datetime, zone: tzinfo | None, place: str, fold: Literal[0, 1]) -> datetime:
    """Add a zone to a moment that has none.

    Args:
        fold: Whether a moment in an hour that the clocks repeat is in the first (0) or the second (1) of them.
    """
    if moment.tzinfo is not None:
        return moment
    if zone is None:
        raise PolicyError(
            f'{place} has no offset; add timezone = "Europe/Berlin" or the like, or write +02:00 behind it'
        )
    moment = moment.replace(tzinfo=zone, fold=fold)
    round_trip = moment.astimezone(timezone.utc).astimezone(zone)
    if round_trip.replace(tzinfo=None) != moment.replace(tzinfo=None):
        raise PolicyError(f"{place} does not exist in {zone}: the clocks skip that hour")
    return moment


def _read_times(path: Path, zone: tzinfo | None, root: Path | None) -> dict[tuple[str, str], datetime]:
    """Read when learners handed in. Of several rows for a learner and exercise, the latest counts, as of files."""
    try:
        text = files.read_source(path, _MAX_BYTES).decode("utf-8-sig")
    except files.Unreadable as error:
        raise PolicyError(f"{path}: {error}; it is the table that the policy's key times names") from error
    except UnicodeDecodeError as error:
        raise PolicyError(f"{path.name} is not UTF-8; save it as CSV in UTF-8") from error
    delimiter = ";" if ";" in text.partition("\n")[0] else ","  # spreadsheets write ";" in locales with decimal commas
    try:
        rows = list(csv.DictReader(io.StringIO(text), delimiter=delimiter))
    except csv.Error as error:
        raise PolicyError(f"{path.name} is not a table: {error}") from error
    columns = set(rows[0] if rows else ())
    if not {"learner", "submitted"} <= columns:
        raise PolicyError(
            f"{path.name} needs a heading with the columns learner and submitted, and a row for each learner"
        )
    path_ids: dict[str, str] = {"": ""}
    times: dict[tuple[str, str], datetime] = {}
    for number, row in enumerate(rows, start=2):
        learner = (row["learner"] or "").strip()
        submitted = (row["submitted"] or "").strip()
        if not learner or not submitted:
            continue  # a learner who handed in nothing
        name = (row.get("exercise") or "").strip()
        place = f"{path.name}, row {number}"
        if name not in path_ids:
            try:
                path_ids[name] = registry.find(name, root).path_id
            except LookupFailed as error:
                raise PolicyError(f"{place}: {error}") from error
        moment = _parse_time(submitted, zone, place)
        key = learner, path_ids[name]
        times[key] = max(moment, times.get(key, moment))
    return times


_OFFSET = re.compile(r"\s*(?:(?P<utc>Z|UTC|GMT)|(?P<hours>[+-]\d\d):?(?P<minutes>\d\d))\Z", re.IGNORECASE)


def _parse_time(text: str, zone: tzinfo | None, place: str) -> datetime:
    """Parse a time as platforms and git write it: 2026-10-05T23:59:00Z, 2026-10-05 23:59:00 +0200."""
    iso = _OFFSET.sub(lambda match: "+00:00" if match["utc"] else f"{match['hours']}:{match['minutes']}", text)
    try:
        if ":" not in text:
            raise ValueError("a date without a time")
        moment = datetime.fromisoformat(iso)
    except ValueError as error:
        raise PolicyError(f"{place}: {text!r} is not a time such as 2026-10-05T23:59:00+02:00") from error
    return _in_zone(
        moment, zone, f"{place}: {text}", fold=0
    )  # of an ambiguous time the earlier, in favor of the learner
