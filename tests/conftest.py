"""A checkout of one small exercise, so that the grader is tested without a compiler or a GPU."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kernelpath.course.registry import ExerciseRef
from kernelpath.grading import grade
from kernelpath.show import graded
from kernelpath.verdict import Report
from tests.browser import browser as browser
from tests.direct import Caller

GradeText = Callable[[str], Report]

DECLARATION = '''"""Doubling: the least exercise there is."""
import torch
from kernelpath.course.problem import Problem, Tolerance
from kernelpath.course.spec import Exercise


def inputs(rng, n):
    return (torch.randn(n, generator=rng, device=rng.device) + 1,)


PROBLEM = Problem(
    inputs=inputs,
    cases=({"n": 1}, {"n": 1000}),
    vary=("n",),
    reference=lambda x: 2 * x.double(),
    tolerance={"float32": Tolerance(1e-6, 1e-6)},
    compulsory_bytes=lambda n: 8 * n,
)
EXERCISE = Exercise(
    entry="double",
    problem=PROBLEM,
    kind="python",
)
'''

LESSON = """\
## Hint 1

a

## Hint 2

b

## Hint 3

c

## Question

?

Answer: 1

Why: because

## Explanation

done
"""


@pytest.fixture
def doubling(tmp_path: Path) -> ExerciseRef:
    """The exercise `double` (Python alone, no kernel) in a checkout of its own."""
    for tree in ("checks", "phases", "solutions"):
        (tmp_path / tree / "1_architecture").mkdir(parents=True)
    item = ExerciseRef(tmp_path, "1_architecture/w01a_double")
    item.declaration.write_text(DECLARATION)
    item.lesson.write_text(LESSON)
    item.solution.write_text("def double(x):\n    return 2 * x\n")
    return item


@pytest.fixture
def grade_text(doubling: ExerciseRef, tmp_path: Path) -> GradeText:
    """Grades Python source as a submission to `doubling`."""

    def run(source: str) -> Report:
        submission = tmp_path / "submission.py"
        submission.write_text("import torch\n\n\n" + source)
        return grade.grade(doubling, submission, device="cpu", seed=1)

    return run


def is_gone(pid: int) -> bool:
    """Whether a process has ended; a zombie has."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return True
    return state == "Z"


class Solutions:
    """The reports of this checkout's reference kernels on the CPU, each graded once in a test run, when it is needed.

    folder: where they are kept, for notebooks (show/graded.py) and for the other processes of pytest-xdist.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def report(self, item: ExerciseRef) -> Report:
        with (self.folder / f"{item.name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            report = graded.load_report(item, self.folder)
            if report is None:
                report = grade.grade(item, item.reference, device="cpu")
                graded.save_report(item, report, self.folder)
        return report


@pytest.fixture(scope="session")
def solutions(tmp_path_factory: pytest.TempPathFactory) -> Solutions:
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "solutions"
    folder.mkdir(exist_ok=True)
    return Solutions(folder)


@pytest.fixture(scope="session")  # a process of tests changes between files, and this takes seconds to start
def caller() -> Iterator[Caller]:
    """The process that calls submissions without a grading; see direct.py."""
    caller = Caller()
    yield caller
    caller.close()
