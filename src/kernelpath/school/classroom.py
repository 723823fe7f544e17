"""Grades a class: one folder per learner, in parallel, and again only what changed.

`grade_class` writes below its output folder

    grades.csv                a line for each learner and exercise
    grades.json               the same with every report, what it takes to know whether it is still valid, and the
                              secret of the run, from which everything was drawn
    gradescope/LEARNER.json   the results.json that Gradescope reads
"""

from __future__ import annotations

import hashlib
import os
import secrets
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, as_completed
from contextlib import suppress
from functools import cache, partial
from pathlib import Path

from kernelpath import files, words
from kernelpath.course.registry import Item
from kernelpath.grading import devices, grade
from kernelpath.grading.pool import Pool
from kernelpath.grading.workers import OneDevice
from kernelpath.school import gradebook
from kernelpath.school.gradebook import UNFINISHED, Grade
from kernelpath.school.handed_in import Entry, entries
from kernelpath.verdict import Report, Verdict, encode
from kernelpath.work.workspace import contents

_SAVE_SECONDS = 30.0

Engine = Callable[[grade.Device, int | None], tuple[OneDevice, Executor]]
"""Where gradings run: from a device and a number of jobs, the device that was found, and an executor.

The executor gets a function and its arguments, of which the first is an Entry; it may give the function the same entry
with copies of its files. Raises grade.Usage. So may a future's result, which ends the run, and Lost, which does not.
"""


def this_machine(device: grade.Device, jobs: int | None) -> tuple[OneDevice, Executor]:
    """The engine without a cluster: a thread for each GPU, else as many as the cores and the memory allow."""
    where = devices.resolve(device)
    return where, Pool(where, jobs)


def grade_class(
    folder: Path,
    out: Path,
    items: Sequence[Item],
    *,
    device: grade.Device = "auto",
    seed: int | None = None,
    secret: str = "",
    jobs: int | None = None,
    engine: Engine = this_machine,
    on_graded: Callable[[Grade, int, int], None] = lambda grade, done, of: None,
) -> list[Grade]:
    """Grade every learner of `folder` on `items` and write the results below `out`; returns them in order.

    secret: draws sizes and inputs, others for each learner, exercise and content, so that no table of right answers
    can be handed in. Without one it is that of the grades below `out`, or a new one; it is kept with the grades, and
    repeats the run. seed: in place of that, the same sizes and inputs for all. jobs: how many at a time; one on each
    GPU, where they would disturb each other's time, else as many as cores and memory allow. engine: where they run, as
    cluster.at gives it. on_graded: called after each, with how many are done.
    Raises grade.Usage, spec.DeclarationError, and NotWritten or OSError where the results cannot be written.
    """
    found = entries(folder, items)
    secret = secret or gradebook.secret(out) or new_secret()
    each = partial(entry_seed, secret) if seed is None else seed
    return grade_entries(
        found, folder, out, device=device, seed=each, secret=secret, jobs=jobs, engine=engine, on_graded=on_graded
    )


def new_secret() -> str:
    """Return a secret that nobody guesses, for a run."""
    return secrets.token_hex(16)


def derive_seed(secret: str, *names: str) -> int:
    """Return the seed that a secret gives for what these names name together."""
    key = encode([secret, *names]).encode()
    return int.from_bytes(hashlib.sha256(key).digest()[:4], "big")


def entry_seed(secret: str, entry: Entry) -> int:
    """Return the seed for one learner's submission to one exercise.

    A report shows its seed. Therefore a submission that has changed gets another one, also with the secret of a run
    before: a learner may have read that seed, and knows what it draws.
    """
    return derive_seed(secret, entry.learner, entry.item.stem, _submitted_digest(entry))


def grade_entries(
    found: Sequence[Entry],
    folder: Path,
    out: Path,
    *,
    device: grade.Device = "auto",
    seed: int | Callable[[Entry], int] = 0,
    secret: str = "",
    jobs: int | None = None,
    engine: Engine = this_machine,
    on_graded: Callable[[Grade, int, int], None] = lambda grade, done, of: None,
) -> list[Grade]:
    """As `grade_class`, for what was found in the learners' folders.

    seed: of all, or of each. secret: is kept with the grades.
    """
    where, pool = engine(device, jobs)
    most = {item.stem: most_stars(item, where) for item in {entry.item for entry in found}}
    out.mkdir(parents=True, exist_ok=True)
    known = gradebook.read(out)
    seeds = {entry: seed if isinstance(seed, int) else seed(entry) for entry in found}
    keys = {entry: _key(entry, where, seeds[entry]) for entry in found}
    done = {entry: known[key] for entry, key in keys.items() if key in known}
    todo = [entry for entry in found if entry not in done]
    saved = time.monotonic()
    try:
        waiting = {pool.submit(_grade, entry, keys[entry], where, seeds[entry], (folder, out)): entry for entry in todo}
        for future in as_completed(waiting):
            entry = waiting[future]
            try:
                done[entry] = future.result()
            except Lost as error:
                done[entry] = _ungraded(entry, seeds[entry], str(error))
            on_graded(done[entry], len(done), len(found))
            if time.monotonic() > saved + _SAVE_SECONDS:
                with suppress(OSError):  # a full disk; the last time it is said
                    gradebook.write(out, [done[entry] for entry in found if entry in done], most, secret)
                saved = time.monotonic()
    finally:
        pool.shutdown(cancel_futures=True)
        graded = [done[entry] for entry in found if entry in done]
        try:
            gradebook.write(out, graded, most, secret)
        except OSError as error:
            raise NotWritten(error, graded) from error
    return graded


class Lost(Exception):
    """An engine could not grade one entry. The message says why; the next run tries again."""


class NotWritten(OSError):
    """The results could not be written. grades: what they are."""

    def __init__(self, error: OSError, grades: Sequence[Grade]) -> None:
        super().__init__(error.errno, error.strerror, error.filename)
        self.grades = grades


def most_stars(item: Item, device: str) -> int:
    """On this device; the third is for the share of the reference kernel's speed, if that is at hand."""
    most = item.stars if device == "cuda" else 1
    return most if item.files("solutions") else min(most, 2)


def _grade(entry: Entry, key: str, device: grade.Device, seed: int, hidden: Sequence[Path]) -> Grade:
    learner, stem = entry.learner, entry.item.stem
    if entry.file is None:
        unusable = _without_grading(entry, seed, Verdict.COMPILE_ERROR, entry.unusable) if entry.unusable else None
        return Grade(learner, stem, key, unusable)
    try:
        with grade.Session(entry.item, entry.file, device=device, hidden=hidden, keep=False, home=entry.home) as check:
            return Grade(learner, stem, key, check(seed=seed))
    except (grade.Usage, OSError) as error:
        cause = str(error)
    except Exception as error:  # whatever one learner's file brings about, the others are graded
        cause = f"the grader failed: {type(error).__name__}: {error}"
    return _ungraded(entry, seed, cause)


def _ungraded(entry: Entry, seed: int, cause: str) -> Grade:
    """The grade of an entry that the next run tries again."""
    report = _without_grading(entry, seed, Verdict.UNAVAILABLE, cause)
    return Grade(entry.learner, entry.item.stem, UNFINISHED, report)


def _without_grading(entry: Entry, seed: int, verdict: Verdict, cause: str) -> Report:
    """What stands in place of a report where nothing was run."""
    item = entry.item
    return Report(item.stem, item.title, str(entry.file or ""), "", seed, verdict, words.shown(cause))


def course(item: Item) -> str:
    """Changes with all that a verdict depends on but the submission, the device and the seed."""
    return _key(Entry("", item, None), "", 0)


def _key(entry: Entry, device: str, seed: int) -> str:
    """Changes with learner, submission, declaration, reference kernel, grader, versions, device and seed."""
    told = (entry.learner, entry.item.stem, entry.unusable, device, seed, sorted(grade.versions().items()), _grader())
    digest = hashlib.sha256(repr(told).encode())
    submitted = _submitted_digest(entry)
    if submitted == UNFINISHED:
        return UNFINISHED
    digest.update(submitted.encode())
    try:
        for path in filter(Path.is_file, (entry.item.declaration, *entry.item.files("solutions"))):
            digest.update(path.name.encode() + b"\0" + path.read_bytes())
    except OSError:
        return UNFINISHED
    return digest.hexdigest()


def _submitted_digest(entry: Entry) -> str:
    """Return a digest of what would be graded, or of the reason why it cannot be; UNFINISHED where that is unclear."""
    if entry.file is None:
        return "nothing"
    digest = hashlib.sha256()
    try:
        for name, content in contents(entry.file).items():
            digest.update(os.fsencode(name) + b"\0" + hashlib.sha256(content).digest())
    except files.Unreadable as error:
        digest.update(str(error).encode("utf-8", "backslashreplace"))
    except OSError:
        return UNFINISHED
    return digest.hexdigest()


@cache
def _grader() -> str:
    """Changes with any source of the grader: git pull fixes a wrong verdict, and then no old grade may stand."""
    return hashlib.sha256(b"\0".join(path.read_bytes() for path in files.grader_sources())).hexdigest()
