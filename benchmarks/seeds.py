"""Measure how often correct submissions are rejected, and wrong ones pass, over many seeds.

python benchmarks/seeds.py [--seeds N] [--first SEED] [--date] [--jobs N] [--device cpu|cuda] [--kinds KIND ...]
                           [--only NAME ...] [--json FILE]

Kinds: references (the expert kernels, or solutions/), answers (solutions/ that are not references), accepts and rejects
(tests/). A reject may end with any verdict but PASSED, because the seed may determine which of two faults shows first.
Nothing is timed. --date derives the first seed from today's date, so that a scheduled run tries other seeds every week.

For each submission the table shows how often it had the right verdict, and the largest share of its tolerance that any
element used. A reference that uses 0.9 of its tolerance is close to being rejected. The exit status is 1 if any verdict
was wrong.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from functools import cache
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Literal, get_args

import torch

from kernelpath.course import registry
from kernelpath.course.problem import EXACT
from kernelpath.grading import compare, grade

sys.path.insert(0, str(Path(__file__).parents[1]))
from tests import planted
from tests.planted import Planted

Kind = Literal["references", "answers", "accepts", "rejects"]


@dataclass(frozen=True)
class Task:
    """The grading of one solution or planted submission, whose name is for example w01b_vector_add/RACE_no_barrier."""

    kind: Kind
    exercise: str
    name: str
    seed: int
    device: grade.Device


@dataclass(frozen=True)
class Outcome:
    """The outcome of a grading.

    Attributes:
        verdict: The verdict, or "RAISED" if the grader itself failed.
        used: The largest share of its tolerance that an element used.
    """

    task: Task
    verdict: str
    cause: str
    used: float
    seconds: float

    @property
    def is_right(self) -> bool:
        passed = self.verdict == "PASSED"
        return not passed and self.verdict != "RAISED" if self.task.kind == "rejects" else passed


def main() -> None:
    arguments = _arguments()
    first = int(datetime.date.today().strftime("%Y%m%d")) if arguments.date else arguments.first
    tasks = list(_tasks(arguments, range(first, first + arguments.seeds)))
    begin = time.monotonic()
    outcomes: list[Outcome] = []
    with ProcessPoolExecutor(arguments.jobs, get_context("spawn"), initializer=_start) as pool:
        for future in as_completed([pool.submit(_grade, task) for task in tasks]):
            outcomes.append(future.result())
            if not outcomes[-1].is_right:
                print(_describe(outcomes[-1]), flush=True)
            elif len(outcomes) % 50 == 0:
                print(f"{len(outcomes)} of {len(tasks)}, {time.monotonic() - begin:.0f} s", flush=True)
            if arguments.json and len(outcomes) % 50 == 0:
                _write(arguments.json, outcomes)
    if arguments.json:
        _write(arguments.json, outcomes)
    _print_table(outcomes)
    wrong = sum(not outcome.is_right for outcome in outcomes)
    print(f"{wrong} of {len(outcomes)} gradings were wrong, seeds {first} to {first + arguments.seeds - 1}")
    sys.exit(wrong > 0)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="The rate of wrong verdicts over many seeds.")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--first", type=int, default=1)
    parser.add_argument("--date", action="store_true", help="draw the first seed from today's date")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--kinds", nargs="+", choices=get_args(Kind), default=["references", "answers"])
    parser.add_argument("--only", nargs="+", default=[], help="names of exercises")
    parser.add_argument("--json", type=Path, help="write every outcome to this file")
    return parser.parse_args()


def _tasks(arguments: argparse.Namespace, seeds: Sequence[int]) -> Iterator[Task]:
    """Yield the tasks of the last weeks first: they have the longest gradings, and nothing should wait for them."""
    for item in reversed(registry.exercises()):
        if arguments.only and item.name not in arguments.only:
            continue
        submissions: list[tuple[Kind, str]] = []
        if "references" in arguments.kinds:
            submissions.append(("references", item.path_id))
        if "answers" in arguments.kinds and item.solution != item.reference:
            submissions.append(("answers", f"{item.path_id}, answer"))
        for kind, corpus in _corpora(arguments.device).items():
            if kind in arguments.kinds:
                submissions += [(kind, name) for name in sorted(corpus) if registry.find(corpus[name].exercise) == item]
        for kind, name in submissions:
            yield from (Task(kind, item.name, name, seed, arguments.device) for seed in seeds)


@cache
def _corpora(device: grade.Device) -> dict[Kind, dict[str, Planted]]:
    """Return the planted submissions that a device grades, by their names."""
    root = registry.root()
    honest = planted.accepts(root)
    wrong = planted.rejects(root, "gpu" if device == "cuda" else "cpu")
    return {
        "accepts": {submission.name: submission for submission in honest},
        "rejects": {submission.name: submission for submission in wrong},
    }


_largest_used = 0.0


def _start() -> None:
    """Initialize a process of the pool: record the share of its tolerance that every compared output uses."""
    torch.set_num_threads(1)
    compare_exactly = compare.mismatches

    def mismatches(values: Any, truth: Any, tolerance: Any, rms: Any = None, magnitude: Any = None) -> torch.Tensor:
        global _largest_used
        wrong = compare_exactly(values, truth, tolerance, rms, magnitude)
        if truth.is_floating_point() and tolerance != EXACT and not (bool(wrong.any()) and magnitude is None):
            scale = compare.root_mean_square(truth) if rms is None else rms
            allowed = tolerance.rtol * truth.abs() + tolerance.atol * scale
            if magnitude is not None:
                allowed = torch.maximum(allowed, tolerance.rtol * truth.abs() + tolerance.mtol * magnitude)
            error = (values.to(truth.dtype) - truth).abs()
            used = (error / allowed)[torch.isfinite(truth) & (error > 0)]
            _largest_used = max(_largest_used, float(used.max()) if used.numel() else 0.0)
        return wrong

    compare.mismatches = mismatches  # type: ignore[assignment]


def _grade(task: Task) -> Outcome:
    global _largest_used
    _largest_used = 0.0
    begin = time.monotonic()
    item = registry.find(task.exercise)
    with tempfile.TemporaryDirectory() as folder:
        try:
            if task.kind == "references":
                submission = item.reference
            elif task.kind == "answers":
                submission = item.solution
            else:
                submission = _corpora(task.device)[task.kind][task.name].submission(Path(folder))
            report = grade.grade(
                item, submission, device=task.device, seed=task.seed, brief=task.kind == "rejects", timed=False
            )
            verdict, cause = report.verdict.value, report.cause
        except Exception as error:  # a failure of the grader is an outcome, and the other tasks continue
            verdict, cause = "RAISED", f"{type(error).__name__}: {error}"
    return Outcome(task, verdict, cause, _largest_used, time.monotonic() - begin)


def _describe(outcome: Outcome) -> str:
    return f"{outcome.task.name}, seed {outcome.task.seed}: {outcome.verdict} {outcome.cause}"


def _write(file: Path, outcomes: Sequence[Outcome]) -> None:
    file.write_text(json.dumps([asdict(outcome) for outcome in outcomes], indent=0))


def _print_table(outcomes: Sequence[Outcome]) -> None:
    rows: dict[str, list[Outcome]] = defaultdict(list)
    for outcome in outcomes:
        rows[outcome.task.name].append(outcome)
    print(f"{'submission':60} {'right':>7} {'used':>5} {'seconds':>8}")
    for name, group in sorted(rows.items(), key=lambda row: -max(outcome.used for outcome in row[1])):
        right = sum(outcome.is_right for outcome in group)
        used = max(outcome.used for outcome in group)
        seconds = sum(outcome.seconds for outcome in group) / len(group)
        print(f"{name[-60:]:60} {right:>3}/{len(group):<3} {used:>5.2f} {seconds:>8.1f}")


if __name__ == "__main__":
    main()
