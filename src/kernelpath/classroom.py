"""Grades a class: one folder a learner, in parallel, again only where something changed.

`grade_class` writes below its output folder

    grades.csv                a line for each learner and exercise
    grades.json               the same with every report, and what it takes to know whether it is still valid
    gradescope/LEARNER.json   the results.json that Gradescope reads
"""

from __future__ import annotations

import csv
import dataclasses
import hashlib
import io
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernelpath import grade, registry
from kernelpath.progress import write_atomically
from kernelpath.registry import Item
from kernelpath.verdict import Report, Verdict

STARS = 3
"""The most that an exercise gives on a GPU; without one it gives a single star."""

_LARGEST_FILE = 1 << 20


@dataclass(frozen=True)
class Entry:
    """One learner's submission to one exercise. `file` is None where nothing was handed in."""

    learner: str
    item: Item
    file: Path | None


@dataclass(frozen=True)
class Grade:
    """An entry's report, and the key that says for which contents, device and seed it holds."""

    learner: str
    exercise: str
    key: str
    report: Report | None


def entries(folder: Path, items: Sequence[Item]) -> list[Entry]:
    """Every learner's file for every exercise, found by its name anywhere in the learner's folder.

    Links that leave the folder are not followed. Raises grade.Usage for a folder without learners.
    """
    learners = sorted(path for path in folder.iterdir() if path.is_dir() and not path.name.startswith("."))
    if not learners:
        raise grade.Usage(f"{folder} holds no folders; give one that has a folder for each learner")
    return [Entry(learner.name, item, _handed_in(learner, item)) for learner in learners for item in items]


def _handed_in(learner: Path, item: Item) -> Path | None:
    home = learner.resolve()
    found = sorted(learner.rglob(item.solution.name), key=lambda path: (len(path.parts), path))
    return next((path for path in found if path.is_file() and path.resolve().is_relative_to(home)), None)


def grade_class(
    folder: Path,
    out: Path,
    items: Sequence[Item],
    *,
    device: grade.Device = "auto",
    seed: int = 0,
    jobs: int | None = None,
    tell: Callable[[Grade, int, int], None] = lambda grade, done, of: None,
) -> list[Grade]:
    """Grade every learner of `folder` on `items` and write the results below `out`; returns them in order.

    seed: the same for all, so that all get the same sizes and inputs. jobs: how many at a time; one on a GPU, where
    they would disturb each other's time, else one for each processor. tell: called after each, with how many are done.
    """
    out.mkdir(parents=True, exist_ok=True)
    known = _read(out / "grades.json")
    where = grade.resolve_device(device)
    found = entries(folder, items)
    hidden = (folder, out)
    done: dict[tuple[str, str], Grade] = {}
    with ThreadPoolExecutor(1 if where == "cuda" else jobs or os.cpu_count()) as pool:
        futures = [pool.submit(_grade, entry, known, where, seed, hidden) for entry in found]
        try:
            for future in as_completed(futures):
                graded = future.result()
                done[graded.learner, graded.exercise] = graded
                tell(graded, len(done), len(found))
        finally:
            pool.shutdown(cancel_futures=True)
            _write(out, [done[key] for key in sorted(done)])
    return [done[entry.learner, entry.item.stem] for entry in found]


def _grade(
    entry: Entry, known: Mapping[tuple[str, str], Grade], device: grade.Device, seed: int, hidden: Sequence[Path]
) -> Grade:
    key = _key(entry, device, seed)
    before = known.get((entry.learner, entry.item.stem))
    if before is not None and before.key == key:
        return before
    if entry.file is None:
        return Grade(entry.learner, entry.item.stem, key, None)
    with grade.Session(entry.item, entry.file, device=device, hidden=hidden) as check:
        return Grade(entry.learner, entry.item.stem, key, check(seed=seed))


def _key(entry: Entry, device: str, seed: int) -> str:
    """Changes with the submission, the declaration, the reference kernel, the versions, the device and the seed."""
    digest = hashlib.sha256(repr((device, seed, sorted(grade.versions().items()))).encode())
    submitted = (entry.file, entry.file.with_suffix(".cu")) if entry.file else ()
    for path in (entry.item.declaration, *entry.item.files("solutions"), *submitted):
        if path.is_file():
            digest.update(path.name.encode() + b"\0")
            with path.open("rb") as file:
                digest.update(file.read(_LARGEST_FILE))
    return digest.hexdigest()


def _read(path: Path) -> dict[tuple[str, str], Grade]:
    """The grades of an earlier run; none where the file is absent or of another version."""
    try:
        rows = json.loads(path.read_text(encoding="utf-8"))["grades"]
        grades = [
            Grade(**{**row, "report": row["report"] and Report.from_json(json.dumps(row["report"]))}) for row in rows
        ]
    except (OSError, ValueError, KeyError, TypeError):
        return {}
    return {(graded.learner, graded.exercise): graded for graded in grades}


def _write(out: Path, grades: Sequence[Grade]) -> None:
    rows = [dataclasses.asdict(graded) for graded in grades]
    write_atomically(out / "grades.json", json.dumps({"grades": rows}, indent=1, allow_nan=False) + "\n")
    write_atomically(out / "grades.csv", _csv(grades))
    (out / "gradescope").mkdir(exist_ok=True)
    for learner in dict.fromkeys(graded.learner for graded in grades):
        own = [graded for graded in grades if graded.learner == learner]
        write_atomically(out / "gradescope" / f"{learner}.json", json.dumps(gradescope(own), indent=1) + "\n")


def _csv(grades: Sequence[Grade]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(("learner", "exercise", "verdict", "stars", "speedup", "cause", "file", "line", "seed", "device"))
    writer.writerows(_row(graded) for graded in grades)
    return text.getvalue()


def _row(graded: Grade) -> tuple[Any, ...]:
    report = graded.report
    if report is None:
        return (graded.learner, graded.exercise, "NOT_HANDED_IN", 0, "", "", "", "", "", "")
    speedup = f"{report.measurement.speedup.median:.3f}" if report.measurement else ""
    cause = " ".join(report.cause.split())
    told = (report.verdict.value, report.stars, speedup, cause, report.file, report.line or "")
    return (graded.learner, graded.exercise, *told, report.seed, report.device)


def gradescope(grades: Sequence[Grade]) -> dict[str, Any]:
    """One learner's grades as Gradescope's results.json: a test for each exercise, a point for each star."""
    tests = list(_tests(grades))
    return {"score": sum(test["score"] for test in tests), "visibility": "visible", "tests": tests}


def _tests(grades: Sequence[Grade]) -> Iterator[dict[str, Any]]:
    for graded in grades:
        report = graded.report
        most = STARS if report is not None and report.measurement is not None else 1
        said = "nothing was handed in" if report is None else f"{report.verdict.value}: {_said(report)}"
        passed = report is not None and report.verdict is Verdict.PASSED
        yield {
            "name": graded.exercise,
            "score": report.stars if report else 0,
            "max_score": most,
            "status": "passed" if passed else "failed",
            "output": said,
        }


def _said(report: Report) -> str:
    return report.cause or "; ".join((report.verdict.meaning, *(f"not measured: {x}" for x in report.not_measured)))


def default_items(folder: Path) -> list[Item]:
    """The exercises that anybody in the class handed in."""
    return [item for item in registry.exercises() if any(folder.glob(f"*/**/{item.solution.name}"))]
