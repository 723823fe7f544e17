"""Save what a learner has achieved: one small JSON file in the checkout, never the learner's sources."""

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

# The folder in the checkout for saved data. It ignores itself in git.
FOLDER = ".kernelpath"

_LOCK_SECONDS = 5.0


class NotSaved(Exception):
    """The progress could not be written. The message says why and what to do."""


@dataclass(frozen=True)
class Record:
    """The record of one exercise.

    Attributes:
        passed: The date of the first pass.
        hints: The number of hints that were seen before the first pass.
        best_seconds: The least median time of the benchmark case, by name of GPU.
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


EMPTY_RECORD = Record()


@dataclass(frozen=True)
class _ProgressFile:
    """The contents of the progress file: records by path id."""

    exercises: dict[str, Record]


@dataclass(frozen=True)
class SavedReport:
    """A report with the sources that were graded, by file name."""

    report: Report
    sources: Mapping[str, str]


@dataclass(frozen=True)
class CheckpointScore:
    """The result of a checkpoint: the certificate's score if there is one, else that of the last attempt."""

    checkpoint: int
    date: str
    device: str
    score: int
    passed: bool


@dataclass(frozen=True)
class Progress:
    """The progress file of the checkout at `root`.

    Attributes:
        warn: Called with a sentence if the file was broken and has been renamed.
    """

    root: Path
    warn: Callable[[str], None] = print

    @property
    def path(self) -> Path:
        return self.root / FOLDER / "progress.json"

    def records(self) -> dict[str, Record]:
        """Return the records by path id. A broken file is renamed and counts as empty."""
        try:
            return _parse(self.path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return {}
        except OSError as error:
            self.warn(f"{self.path} cannot be read ({error.strerror}); continuing without saved progress")
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            self.warn(f"{self.path} is broken ({error}); {self._rename_broken_file()}")
        return {}

    def update(self, path_id: str, change: Callable[[Record], Record]) -> Record:
        """Replace one record by `change(record)`, safe against other processes. Raises NotSaved."""
        try:
            folder(self.root)
            # The lock is on a file of its own: write_atomically replaces the progress file, and a lock belongs to one
            # inode.
            with _locked(self.path.with_suffix(".lock")):
                # The records are read inside the lock: another process may have changed them meanwhile.
                records = self.records()
                records[path_id] = change(records.get(path_id, EMPTY_RECORD))
                write_atomically(self.path, _format(records))
        except OSError as error:
            raise NotSaved(f"progress was not saved: {error.strerror}: {error.filename or self.path}") from error
        return records[path_id]

    def save_report(self, report: Report, sources: Sequence[Path]) -> None:
        """Save the last report of the exercise, and the last report with a time, with the sources. Raises NotSaved."""
        texts = {path.name: path.read_text(encoding="utf-8", errors="replace") for path in sources if path.is_file()}
        text = encode(SavedReport(report, texts)) + "\n"
        # A later check without a GPU must not replace the report that has a time.
        kinds = ("last",) if report.measurement is None else ("last", "timed")
        try:
            for kind in kinds:
                path = self._report_path(report.exercise, kind)
                folder(self.root)
                path.parent.mkdir(exist_ok=True)
                write_atomically(path, text)
        except OSError as error:
            raise NotSaved(f"the report was not saved: {error.strerror}: {error.filename or self.path}") from error

    def load_report(self, path_id: str, kind: Literal["last", "timed"] = "last") -> SavedReport | None:
        """Return the exercise's report of that kind, or None without a valid one."""
        try:
            return decode(self._report_path(path_id, kind).read_bytes(), SavedReport)
        except FileNotFoundError:
            return None
        except (OSError, ValidationError) as error:
            why = "was not saved by this version" if isinstance(error, ValidationError) else "cannot be read"
            self.warn(f"{self._report_path(path_id, kind)} {why} ({error}); the next kp check replaces it")
            return None

    def save_attempt(self, checkpoint: int, certificate: str) -> None:
        """Save a checkpoint's last attempt, as the JSON of its certificate. Raises NotSaved."""
        path = self._attempt_path(checkpoint)
        try:
            folder(self.root)
            path.parent.mkdir(exist_ok=True)
            write_atomically(path, certificate)
        except OSError as error:
            raise NotSaved(f"the score was not saved: {error.strerror}: {error.filename or path}") from error

    def scores(self) -> list[CheckpointScore]:
        """Return the score of every checkpoint that was tried, in order."""
        # Certificates are read after attempts, and replace them.
        score_by_checkpoint = {}
        for path in [
            *self._attempt_path("*").parent.glob(self._attempt_path("*").name),
            *(self.root / FOLDER).glob("checkpoint*.json"),
        ]:
            try:
                certificate = json.loads(path.read_text(encoding="utf-8"))["certificate"]
                fields = {key: certificate[key] for key in ("checkpoint", "date", "device", "score")}
                score_by_checkpoint[fields["checkpoint"]] = CheckpointScore(**fields, passed=not certificate["missing"])
            except (OSError, ValueError, KeyError, TypeError) as error:
                self.warn(f"{path} is ignored ({error!r}); the next kp checkpoint replaces it")
        return [score_by_checkpoint[number] for number in sorted(score_by_checkpoint)]

    def _attempt_path(self, checkpoint: int | str) -> Path:
        return self.root / FOLDER / "reports" / f"checkpoint{checkpoint}.last.json"

    def _report_path(self, path_id: str, kind: str) -> Path:
        return self.root / FOLDER / "reports" / f"{path_id.partition('/')[2]}.{kind}.json"

    def _rename_broken_file(self) -> str:
        number = 1
        # An earlier broken file may still hold what somebody wants to restore.
        while (new_path := self.path.with_name(f"progress.broken-{number}.json")).exists():
            number += 1
        try:
            self.path.rename(new_path)
        except OSError as error:
            return f"it cannot be set aside ({error.strerror}); fix or remove it"
        return f"it was renamed to {new_path.name}, and progress starts over"


def with_report(record: Record, report: Report) -> Record:
    """Return the record after one more report. A later, worse report never removes a pass, a star or a time."""
    if report.verdict is not Verdict.PASSED:
        return record
    best = dict(record.best_seconds)
    # Times on different GPUs do not compare.
    if report.measurement is not None:
        best[report.device] = min(report.measurement.seconds, best.get(report.device, float("inf")))
    return dataclasses.replace(
        record,
        passed=record.passed or date.today().isoformat(),
        stars=max(record.stars, report.stars),
        best_seconds=best,
    )


def folder(root: Path) -> Path:
    """Return the folder for saved data in the checkout at `root`, and create it if needed. Raises OSError."""
    saved_folder = root / FOLDER
    saved_folder.mkdir(exist_ok=True)
    ignore = saved_folder / ".gitignore"
    if not ignore.exists():
        # The folder ignores itself, so that a learner's repository needs no entry for it.
        ignore.write_text("*\n", encoding="utf-8")
    return saved_folder


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold the lock of a file. Raises NotSaved if another process does not release it, and OSError."""
    deadline = time.monotonic() + _LOCK_SECONDS
    with path.open("wb") as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError as error:
                if time.monotonic() > deadline:
                    reason = f"another kp has held {path} for {_LOCK_SECONDS:.0f} s; end it"
                    raise NotSaved(f"progress was not saved: {reason}") from error
            time.sleep(0.01)
        yield


def _parse(text: str) -> dict[str, Record]:
    return decode(text, _ProgressFile).exercises


def _format(records: Mapping[str, Record]) -> str:
    return encode(_ProgressFile(dict(sorted(records.items()))), indent=1) + "\n"
