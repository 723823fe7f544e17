"""Grade a class: one folder per learner, in parallel, and again only what changed.

`grade_class` writes below its output folder

    grades.csv                a line for each learner and exercise
    grades.json               the same with every report, the key that tells whether a report is still valid, and the
                              secret of the run, which determines all seeds
    gradescope/LEARNER.json   the results.json that Gradescope reads
"""

from __future__ import annotations

import hashlib
import os
import secrets
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Executor, as_completed
from contextlib import suppress
from functools import cache, partial
from pathlib import Path

from kernelpath import files, words
from kernelpath.course.registry import ExerciseRef
from kernelpath.grading import devices, grade
from kernelpath.grading.devices import OneDevice
from kernelpath.grading.pool import Pool
from kernelpath.school import gradebook
from kernelpath.school.gradebook import UNFINISHED, Grade
from kernelpath.school.handed_in import Entry, all_entries
from kernelpath.verdict import Report, Verdict, encode
from kernelpath.work.workspace import contents

# A run that is killed loses the gradings of this time, at most.
_SAVE_SECONDS = 30.0

# Returns the device and an executor of gradings, from a requested device and a number of jobs.
#
# The executor gets a function and its arguments, of which the first is an Entry; it may call the function with copies
# of the entry's files. Raises grade.Usage. A future's result may raise grade.Usage, which ends the run, or GradingLost,
# which does not.
Engine = Callable[[grade.Device, int | None], tuple[OneDevice, Executor]]


def this_machine(device: grade.Device, jobs: int | None) -> tuple[OneDevice, Executor]:
    """Return the engine without a cluster: a thread for each GPU, else as many as the cores and memory allow."""
    resolved = devices.resolve(device)
    return resolved, Pool(resolved, jobs)


def grade_class(
    folder: Path,
    out: Path,
    items: Sequence[ExerciseRef],
    *,
    device: grade.Device = "auto",
    seed: int | None = None,
    secret: str = "",
    jobs: int | None = None,
    engine: Engine = this_machine,
    on_graded: Callable[[Grade, int, int], None] = lambda grade, done, of: None,
) -> list[Grade]:
    """Grade every learner of `folder` on `items`, write the results below `out` and return them in order.

    Args:
        seed: Fixes the same sizes and inputs for all, instead of `secret`.
        secret: Determines sizes and inputs, different for each learner, exercise and content, so that no table of right
            answers can be handed in. The default is the secret of the grades below `out`, or a new one. It is saved
            with the grades, and repeats the run.
        jobs: The number of gradings at a time. The default is one on each GPU, where more would disturb each other's
            times, else as many as cores and memory allow.
        engine: Where gradings run, as `cluster.engine_at` returns it.
        on_graded: Called after each grading, with the numbers done and in total.

    Raises grade.Usage, spec.DeclarationError, and ResultsNotWritten or OSError.
    """
    found_entries = all_entries(folder, items)
    secret = secret or gradebook.read_secret(out) or generate_secret()
    seed_of_entry = partial(entry_seed, secret) if seed is None else seed
    return grade_entries(
        found_entries,
        folder,
        out,
        device=device,
        seed=seed_of_entry,
        secret=secret,
        jobs=jobs,
        engine=engine,
        on_graded=on_graded,
    )


def generate_secret() -> str:
    """Return an unguessable secret for a run."""
    return secrets.token_hex(16)


def derive_seed(secret: str, *names: str) -> int:
    """Derive a seed from a secret and names."""
    # JSON keeps the boundaries of the names: ("a", "bc") and ("ab", "c") have different seeds.
    key = encode([secret, *names]).encode()
    return int.from_bytes(hashlib.sha256(key).digest()[:4], "big")


def entry_seed(secret: str, entry: Entry) -> int:
    """Return the seed for one learner's submission to one exercise.

    A report shows its seed. Therefore a changed submission gets another seed, even with the secret of an earlier run:
    the learner may have read the old seed and knows its inputs.
    """
    return derive_seed(secret, entry.learner, entry.item.path_id, _submitted_digest(entry))


def grade_entries(
    requested_entries: Sequence[Entry],
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
    """Grade the entries that were found in the learners' folders, as `grade_class` does.

    Args:
        seed: The seed of all entries, or of each.
        secret: Saved with the grades.
    """
    resolved, pool = engine(device, jobs)
    stars_by_exercise = {
        item.path_id: max_stars(item, resolved) for item in {entry.item for entry in requested_entries}
    }
    out.mkdir(parents=True, exist_ok=True)
    earlier_grades = gradebook.read(out)
    seeds = {entry: seed if isinstance(seed, int) else seed(entry) for entry in requested_entries}
    keys = {entry: _grade_key(entry, resolved, seeds[entry]) for entry in requested_entries}
    done = {entry: earlier_grades[key] for entry, key in keys.items() if key in earlier_grades}
    pending = [entry for entry in requested_entries if entry not in done]
    last_saved = time.monotonic()
    try:
        # The folders of the class and of the results are hidden from every submission.
        entries_by_future = {
            pool.submit(_grade, entry, keys[entry], resolved, seeds[entry], (folder, out)): entry for entry in pending
        }
        for future in as_completed(entries_by_future):
            entry = entries_by_future[future]
            try:
                done[entry] = future.result()
            except GradingLost as error:
                done[entry] = _retry_later(entry, seeds[entry], str(error))
            on_graded(done[entry], len(done), len(requested_entries))
            if time.monotonic() > last_saved + _SAVE_SECONDS:
                with suppress(OSError):  # a full disk, which the last attempt reports
                    gradebook.write(
                        out, [done[entry] for entry in requested_entries if entry in done], stars_by_exercise, secret
                    )
                last_saved = time.monotonic()
    finally:
        # This also follows Ctrl-C and a Usage error: what was graded until then is saved.
        pool.shutdown(cancel_futures=True)
        graded = [done[entry] for entry in requested_entries if entry in done]
        try:
            gradebook.write(out, graded, stars_by_exercise, secret)
        except OSError as error:
            raise ResultsNotWritten(error, graded) from error
    return graded


class GradingLost(Exception):
    """An engine could not grade an entry. The message says why; the next run tries again."""


class ResultsNotWritten(OSError):
    """The results could not be written.

    Attributes:
        grades: The results.
    """

    def __init__(self, error: OSError, grades: Sequence[Grade]) -> None:
        super().__init__(error.errno, error.strerror, error.filename)
        self.grades = grades


def max_stars(item: ExerciseRef, device: str) -> int:
    """Return the stars that an exercise gives on this device.

    The third star compares with the reference kernel, so it needs the solution.
    """
    maximum = item.stars if device == "cuda" else 1
    return maximum if item.files("solutions") else min(maximum, 2)


def _grade(entry: Entry, key: str, device: grade.Device, seed: int, hidden: Sequence[Path]) -> Grade:
    learner = entry.learner
    path_id = entry.item.path_id
    if entry.file is None:
        unusable = (
            _report_without_grading(entry, seed, Verdict.COMPILE_ERROR, entry.unusable) if entry.unusable else None
        )
        return Grade(learner, path_id, key, unusable, entry.unchanged)
    try:
        # No other grading of this file is expected, so compilers' output is not kept.
        job = grade.Job.create(entry.item, entry.file, device=device, hidden=hidden, keep=False, home=entry.home)
        with grade.Session(job) as check:
            return Grade(learner, path_id, key, check(seed=seed))
    except (grade.Usage, OSError) as error:
        cause = str(error)
    except Exception as error:  # no learner's file may stop the grading of the others
        cause = f"the grader failed: {type(error).__name__}: {error}"
    return _retry_later(entry, seed, cause)


def _retry_later(entry: Entry, seed: int, cause: str) -> Grade:
    """Return the grade of an entry that the next run tries again."""
    report = _report_without_grading(entry, seed, Verdict.UNAVAILABLE, cause)
    return Grade(entry.learner, entry.item.path_id, UNFINISHED, report)


def _report_without_grading(entry: Entry, seed: int, verdict: Verdict, cause: str) -> Report:
    """Return the report of an entry that was not run."""
    item = entry.item
    return Report(item.path_id, item.title, str(entry.file or ""), "", seed, verdict, words.shown(cause))


def exercise_digest(item: ExerciseRef) -> str:
    """Return a digest of everything that a verdict depends on, except the submission, the device and the seed."""
    return _grade_key(Entry("", item, None), "", 0)


def _grade_key(entry: Entry, device: str, seed: int) -> str:
    """Return a digest of learner, submission, declaration, reference kernel, grader, versions, device and seed."""
    parts = (
        entry.learner,
        entry.item.path_id,
        entry.unusable,
        entry.unchanged,
        device,
        seed,
        sorted(grade.versions().items()),
        _grader_digest(),
    )
    digest = hashlib.sha256(repr(parts).encode())
    submitted = _submitted_digest(entry)
    if submitted == UNFINISHED:
        return UNFINISHED
    digest.update(submitted.encode())
    try:
        for path in filter(Path.is_file, (entry.item.declaration, entry.item.grader, *entry.item.files("expert"))):
            digest.update(path.name.encode() + b"\0" + path.read_bytes())
    except OSError:
        return UNFINISHED
    return digest.hexdigest()


def _submitted_digest(entry: Entry) -> str:
    """Return a digest of the submitted files, or of the reason why there are none; UNFINISHED if unclear."""
    if entry.file is None:
        return "nothing"
    digest = hashlib.sha256()
    try:
        for name, content in contents(entry.file).items():
            # Digests have one length and names no NUL byte, so that no two sets of files look alike.
            digest.update(os.fsencode(name) + b"\0" + hashlib.sha256(content).digest())
    except files.Unreadable as error:
        digest.update(str(error).encode("utf-8", "backslashreplace"))
    except OSError:
        return UNFINISHED
    return digest.hexdigest()


@cache
def _grader_digest() -> str:
    """Return a digest of the grader's sources: an update may fix a wrong verdict, which invalidates old grades."""
    return hashlib.sha256(b"\0".join(path.read_bytes() for path in files.grader_sources())).hexdigest()


def describe_skipped(folder: Path, own_files: Iterable[Path] = ()) -> list[str]:
    """Return a sentence for each entry of the folder that is not graded.

    Args:
        own_files: The teacher's own files, which are not mentioned.
    """
    own_paths = {os.path.realpath(path) for path in own_files}  # unlike Path.resolve, it accepts circular links
    sentences = []
    for path in sorted(folder.iterdir()):
        reason = _reason_to_skip(path)
        if reason and os.path.realpath(path) not in own_paths:
            sentences.append(f"{words.escaped(path.name)} {reason}")
    return sentences


def _reason_to_skip(path: Path) -> str:
    """Return why an entry has nothing to grade, or "" for a learner's folder that is not empty."""
    if path.is_symlink() and not path.exists():
        return "is a link to nothing"
    if not path.is_dir():
        return "is a file; a learner has a folder"
    if path.name.startswith("."):
        return "begins with a dot, as folders of tools do; rename it if it is a learner's"
    try:
        with os.scandir(path) as entries:
            return "" if any(entries) else "is empty"
    except OSError as error:
        return f"cannot be read: {error.strerror}"
