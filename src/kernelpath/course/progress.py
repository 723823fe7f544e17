"""What a learner has achieved so far: one small JSON file in the checkout, never the learner's sources."""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Literal

from kernelpath.files import write_atomically
from kernelpath.verdict import Report, ValidationError, Verdict, decode, encode

FOLDER = ".kernelpath"
"""The folder of the checkout that holds what kernelpath keeps. It ignores itself in git."""

_LOCK_SECONDS = 5.0


class NotSaved(Exception):
    """The progress could not be written. The message says why and what to do."""


@dataclass(frozen=True)
class Record:
    """One exercise. passed: the date of the first pass. hints: how many were seen before it.

    best_seconds: the least median time of the benchmark case, by name of GPU.
    """

    passed: str | None = None
    stars: int = 0
    hints: int = 0
    best_seconds: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        numbers = (self.stars, self.hints, *self.best_seconds.values())
        if not all(isinstance(number, (int, float)) for number in numbers):
            raise TypeError("stars, hints and best_seconds must be numbers")
        if not isinstance(self.passed, (str, type(None))):
            raise TypeError("passed must be a date")


NOTHING = Record()


@dataclass(frozen=True)
class _Saved:
    """The contents of the progress file: records by stem."""

    exercises: dict[str, Record]


@dataclass(frozen=True)
class Kept:
    """A report with the sources that were graded, by file name."""

    report: Report
    sources: Mapping[str, str]


@dataclass(frozen=True)
class Score:
    """What a checkpoint came to: the certificate's score where there is one, else that of the last try."""

    checkpoint: int
    date: str
    device: str
    score: int
    passed: bool


@dataclass(frozen=True)
class Progress:
    """The progress file of the checkout at `root`.

    warn: is told in one sentence when the file was broken and has been set aside.
    """

    root: Path
    warn: Callable[[str], None] = print

    @property
    def path(self) -> Path:
        return self.root / FOLDER / "progress.json"

    def records(self) -> dict[str, Record]:
        """What is known by stem. A file that cannot be understood is kept under another name and counts as empty."""
        try:
            return _parse(self.path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return {}
        except OSError as error:
            self.warn(f"{self.path} cannot be read ({error.strerror}); continuing without saved progress")
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            self.warn(f"{self.path} is broken ({error}); {self._set_aside()}")
        return {}

    def update(self, stem: str, change: Callable[[Record], Record]) -> Record:
        """Replace one record by `change(record)`, safe against other processes. Raises NotSaved."""
        try:
            folder(self.root)
            with _locked(self.path.with_suffix(".lock")):
                records = self.records()
                records[stem] = change(records.get(stem, NOTHING))
                write_atomically(self.path, _format(records))
        except OSError as error:
            raise NotSaved(f"progress was not saved: {error.strerror}: {error.filename or self.path}") from error
        return records[stem]

    def keep(self, report: Report, sources: Sequence[Path]) -> None:
        """Keep the last report of the exercise, and the last one that was timed, with the sources. Raises NotSaved."""
        texts = {path.name: path.read_text(encoding="utf-8", errors="replace") for path in sources if path.is_file()}
        text = encode(Kept(report, texts)) + "\n"
        kinds = ("last",) if report.measurement is None else ("last", "timed")
        try:
            for kind in kinds:
                path = self._report(report.exercise, kind)
                folder(self.root)
                path.parent.mkdir(exist_ok=True)
                write_atomically(path, text)
        except OSError as error:
            raise NotSaved(f"the report was not saved: {error.strerror}: {error.filename or self.path}") from error

    def kept(self, stem: str, kind: Literal["last", "timed"] = "last") -> Kept | None:
        """The exercise's report of that kind; None where nothing that can be understood was kept."""
        try:
            return decode(self._report(stem, kind).read_bytes(), Kept)
        except FileNotFoundError:
            return None
        except (OSError, ValidationError) as error:
            why = "was not saved by this version" if isinstance(error, ValidationError) else "cannot be read"
            self.warn(f"{self._report(stem, kind)} {why} ({error}); the next kp check replaces it")
            return None

    def keep_try(self, checkpoint: int, certificate: str) -> None:
        """Keep a checkpoint's last try, as the JSON of its certificate. Raises NotSaved."""
        path = self._try(checkpoint)
        try:
            folder(self.root)
            path.parent.mkdir(exist_ok=True)
            write_atomically(path, certificate)
        except OSError as error:
            raise NotSaved(f"the score was not saved: {error.strerror}: {error.filename or path}") from error

    def scores(self) -> list[Score]:
        """Of every checkpoint that was tried, in order."""
        found = {}
        for path in [*self._try("*").parent.glob(self._try("*").name), *(self.root / FOLDER).glob("checkpoint*.json")]:
            try:
                told = json.loads(path.read_text(encoding="utf-8"))["certificate"]
                fields = {key: told[key] for key in ("checkpoint", "date", "device", "score")}
                found[fields["checkpoint"]] = Score(**fields, passed=not told["missing"])
            except (OSError, ValueError, KeyError, TypeError) as error:
                self.warn(f"{path} is ignored ({error!r}); the next kp checkpoint replaces it")
        return [found[number] for number in sorted(found)]

    def _try(self, checkpoint: int | str) -> Path:
        return self.root / FOLDER / "reports" / f"checkpoint{checkpoint}.last.json"

    def _report(self, stem: str, kind: str) -> Path:
        return self.root / FOLDER / "reports" / f"{stem.partition('/')[2]}.{kind}.json"

    def _set_aside(self) -> str:
        number = 1
        while (aside := self.path.with_name(f"progress.broken-{number}.json")).exists():
            number += 1
        try:
            self.path.rename(aside)
        except OSError as error:
            return f"it cannot be set aside ({error.strerror}); fix or remove it"
        return f"it was renamed to {aside.name}, and progress starts over"


def with_report(record: Record, report: Report) -> Record:
    """The record after one more report: a pass, a star or a time is never lost to a later, worse one."""
    if report.verdict is not Verdict.PASSED:
        return record
    best = dict(record.best_seconds)
    if report.measurement is not None:
        best[report.device] = min(report.measurement.seconds, best.get(report.device, float("inf")))
    return dataclasses.replace(
        record,
        passed=record.passed or date.today().isoformat(),
        stars=max(record.stars, report.stars),
        best_seconds=best,
    )


def folder(root: Path) -> Path:
    """The folder for what kernelpath keeps in the checkout at `root`, made if need be. Raises OSError."""
    kept = root / FOLDER
    kept.mkdir(exist_ok=True)
    ignore = kept / ".gitignore"
    if not ignore.exists():
        ignore.write_text("*\n", encoding="utf-8")
    return kept


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold the lock of a file. Raises NotSaved where another process does not give it up, and OSError."""
    give_up = time.monotonic() + _LOCK_SECONDS
    with path.open("wb") as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError as error:
                if time.monotonic() > give_up:
                    told = f"another kp has held {path} for {_LOCK_SECONDS:.0f} s; end it"
                    raise NotSaved(f"progress was not saved: {told}") from error
            time.sleep(0.01)
        yield


def _parse(text: str) -> dict[str, Record]:
    return decode(text, _Saved).exercises


def _format(records: Mapping[str, Record]) -> str:
    return encode(_Saved(dict(sorted(records.items()))), indent=1) + "\n"
