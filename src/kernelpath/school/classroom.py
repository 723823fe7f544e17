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
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch

from kernelpath.course import registry
from kernelpath.course.progress import write_atomically
from kernelpath.course.registry import Item
from kernelpath.device import gpu
from kernelpath.grading import grade
from kernelpath.verdict import Report, Verdict
from kernelpath.work import forkserver

UNFINISHED = ""
"""The key of a grade that holds for nothing: the next run tries again."""

_CHUNK = 1 << 20
_SAVE_SECONDS = 30.0


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

    In a whole checkout that is the one below phases/. Links that leave the learner's folder are not followed.
    Raises grade.Usage for a folder without learners.
    """
    learners = sorted(path for path in folder.iterdir() if path.is_dir() and not path.name.startswith("."))
    if not learners:
        raise grade.Usage(f"{folder} holds no folders; give one that has a folder for each learner")
    return [entry for learner in learners for entry in _entries(learner, items)]


def _entries(learner: Path, items: Sequence[Item]) -> Iterator[Entry]:
    wanted = {item.solution.name for item in items}
    found = [path for path in learner.rglob("*.py") if path.name in wanted]
    for item in items:
        own = [path for path in found if path.name == item.solution.name]
        yield Entry(learner.name, item, _handed_in(learner, item, own))


def _handed_in(learner: Path, item: Item, found: Sequence[Path]) -> Path | None:
    found = sorted(found, key=lambda path: _precedence(path, learner, item))
    return next((path for path in found if _own(path, learner) and _own_if_any(path, learner)), None)


def _precedence(path: Path, learner: Path, item: Item) -> tuple[bool, int, Path]:
    """A checkout also has files of this name in checks/ and solutions/; otherwise the shallowest comes first."""
    place = path.relative_to(learner)
    return not place.match(f"phases/{item.stem}.py"), len(place.parts), place


def _own(path: Path, learner: Path) -> bool:
    return path.is_file() and path.resolve().is_relative_to(learner.resolve())


def _own_if_any(path: Path, learner: Path) -> bool:
    """Whether the kernel beside a Python file, where there is one, is the learner's own."""
    kernel = path.with_suffix(".cu")
    return not kernel.exists() or _own(kernel, learner)


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

    seed: the same for all, so that all get the same sizes and inputs. jobs: how many at a time; one on each GPU, where
    they would disturb each other's time, else one for each processor. tell: called after each, with how many are done.
    Raises grade.Usage and spec.DeclarationError.
    """
    where = grade.resolve_device(device)
    most = {item.stem: _most_stars(item, where) for item in items}
    found = entries(folder, items)
    out.mkdir(parents=True, exist_ok=True)
    known = _read(out / "grades.json")
    keys = {entry: _key(entry, where, seed) for entry in found}
    done = {entry: known[key] for entry, key in keys.items() if key in known}
    pool = _one_a_gpu(jobs) if where == "cuda" else ThreadPoolExecutor(jobs or os.cpu_count())
    todo = [entry for entry in found if entry not in done]
    waiting = {pool.submit(_grade, entry, keys[entry], where, seed, (folder, out)): entry for entry in todo}
    saved = time.monotonic()
    try:
        for future in as_completed(waiting):
            done[waiting[future]] = future.result()
            tell(future.result(), len(done), len(found))
            if time.monotonic() > saved + _SAVE_SECONDS:
                _write(out, [done[entry] for entry in found if entry in done], most)
                saved = time.monotonic()
    finally:
        pool.shutdown(cancel_futures=True)
        _write(out, [done[entry] for entry in found if entry in done], most)
    return [done[entry] for entry in found]


def _one_a_gpu(jobs: int | None) -> ThreadPoolExecutor:
    """A thread for each GPU, which is the only one that its workers see."""
    indices = list(range(torch.cuda.device_count()))[:jobs]

    def take() -> None:
        index = indices.pop()
        torch.cuda.set_device(index)
        forkserver.set_environment(CUDA_VISIBLE_DEVICES=gpu.gpu_id(index))

    return ThreadPoolExecutor(len(indices), initializer=take)


def _most_stars(item: Item, device: str) -> int:
    """On this device; the third is for the share of the reference kernel's speed, if that is at hand."""
    most = item.stars if device == "cuda" else 1
    return most if item.files("solutions") else min(most, 2)


def _grade(entry: Entry, key: str, device: grade.Device, seed: int, hidden: Sequence[Path]) -> Grade:
    if entry.file is None:
        return Grade(entry.learner, entry.item.stem, key, None)
    try:
        with grade.Session(entry.item, entry.file, device=device, hidden=hidden) as check:
            return Grade(entry.learner, entry.item.stem, key, check(seed=seed))
    except (grade.Usage, OSError) as error:
        return Grade(entry.learner, entry.item.stem, UNFINISHED, _ungraded(entry, seed, str(error)))


def _ungraded(entry: Entry, seed: int, cause: str) -> Report:
    """What stands in the place of a report where grading itself failed."""
    item = entry.item
    return Report(item.stem, item.title, str(entry.file), "", seed, Verdict.UNAVAILABLE, cause)


def _key(entry: Entry, device: str, seed: int) -> str:
    """Changes with learner, submission, declaration, reference kernel, grader, versions, device and seed."""
    told = (entry.learner, device, seed, sorted(grade.versions().items()), _grader())
    digest = hashlib.sha256(repr(told).encode())
    submitted = (entry.file, entry.file.with_suffix(".cu")) if entry.file else ()
    try:
        for path in filter(Path.is_file, (entry.item.declaration, *entry.item.files("solutions"), *submitted)):
            digest.update(path.name.encode() + b"\0")
            with path.open("rb") as file:
                while chunk := file.read(_CHUNK):
                    digest.update(chunk)
    except OSError:
        return UNFINISHED
    return digest.hexdigest()


@cache
def _grader() -> str:
    """Changes with the grader's source: git pull mends a wrong verdict, and then no old grade may stand."""
    sources = sorted(Path(__file__).parent.rglob("*.py"))
    return hashlib.sha256(b"\0".join(path.read_bytes() for path in sources)).hexdigest()


def _read(path: Path) -> dict[str, Grade]:
    """The grades of an earlier run by their key; none where the file is absent or of another version."""
    try:
        rows = json.loads(path.read_text(encoding="utf-8"))["grades"]
        grades = [
            Grade(**{**row, "report": row["report"] and Report.from_json(json.dumps(row["report"]))}) for row in rows
        ]
    except (OSError, ValueError, KeyError, TypeError):
        return {}
    return {graded.key: graded for graded in grades if graded.key != UNFINISHED}


def _write(out: Path, grades: Sequence[Grade], most: Mapping[str, int]) -> None:
    rows = [dataclasses.asdict(graded) for graded in grades]
    write_atomically(out / "grades.json", json.dumps({"grades": rows}, indent=1, allow_nan=False) + "\n")
    write_atomically(out / "grades.csv", _csv(grades))
    (out / "gradescope").mkdir(exist_ok=True)
    for learner in dict.fromkeys(graded.learner for graded in grades):
        own = [graded for graded in grades if graded.learner == learner]
        write_atomically(out / "gradescope" / f"{learner}.json", json.dumps(gradescope(own, most), indent=1) + "\n")


def _csv(grades: Sequence[Grade]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(("learner", "exercise", "verdict", "stars", "speedup", "cause", "file", "line", "seed", "device"))
    writer.writerows(map(_inert, _row(graded)) for graded in grades)
    return text.getvalue().encode(errors="backslashreplace").decode()  # a folder's name may be no UTF-8


def _inert(cell: Any) -> Any:
    """A cell that no spreadsheet takes for a formula: a learner names a folder, and has a say in a cause."""
    return f"'{cell}" if isinstance(cell, str) and cell.startswith(("=", "+", "-", "@", "\t", "\r")) else cell


def _row(graded: Grade) -> tuple[Any, ...]:
    report = graded.report
    if report is None:
        return (graded.learner, graded.exercise, "NOT_HANDED_IN", 0, "", "", "", "", "", "")
    speedup = f"{report.measurement.speedup.median:.3f}" if report.measurement else ""
    cause = " ".join(report.cause.split())
    told = (report.verdict.value, report.stars, speedup, cause, report.file, report.line or "")
    return (graded.learner, graded.exercise, *told, report.seed, report.device)


def gradescope(grades: Sequence[Grade], most: Mapping[str, int]) -> dict[str, Any]:
    """One learner's grades as Gradescope's results.json: a test for each exercise, a point for each star.

    most: the stars that each exercise, by its stem, gives on this device.
    """
    tests = [_test(graded, most[graded.exercise]) for graded in grades]
    return {"score": sum(test["score"] for test in tests), "visibility": "visible", "tests": tests}


def _test(graded: Grade, most: int) -> dict[str, Any]:
    report = graded.report
    return {
        "name": graded.exercise,
        "score": report.stars if report else 0,
        "max_score": most,
        "status": "passed" if report and report.verdict.passed else "failed",
        "output": f"{report.verdict.value}: {_said(report)}" if report else "nothing was handed in",
    }


def _said(report: Report) -> str:
    return report.cause or "; ".join((report.verdict.meaning, *(f"not measured: {x}" for x in report.not_measured)))


def default_items(folder: Path) -> list[Item]:
    """The exercises that anybody in the class handed in."""
    names = {path.name for path in folder.glob("*/**/*.py")}
    return [item for item in registry.exercises() if item.solution.name in names]
