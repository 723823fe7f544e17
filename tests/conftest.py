"""Define fixtures: a checkout of one small exercise, which needs no compiler and no GPU, and shared gradings.

Packages that take seconds to import, such as PyTorch, are imported inside the fixtures, because the controller process
of pytest-xdist imports this file, too, and runs no test.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.browser import browser as browser

if TYPE_CHECKING:
    from kernelpath.course.registry import ExerciseRef
    from kernelpath.verdict import Report
    from tests.direct import Caller

GradeText = Callable[[str], "Report"]

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
    """Return the exercise `double` (plain Python, no kernel) in its own checkout."""
    from kernelpath.course.registry import ExerciseRef

    for tree in ("checks", "phases", "solutions"):
        (tmp_path / tree / "1_architecture").mkdir(parents=True)
    item = ExerciseRef(tmp_path, "1_architecture/w01a_double")
    item.declaration.write_text(DECLARATION)
    item.lesson.write_text(LESSON)
    item.solution.write_text("def double(x):\n    return 2 * x\n")
    return item


@pytest.fixture
def grade_text(doubling: ExerciseRef, tmp_path: Path) -> GradeText:
    """Return a function that grades Python source as a submission to `doubling`."""
    from kernelpath.grading import grade

    def run(source: str) -> Report:
        submission = tmp_path / "submission.py"
        submission.write_text("import torch\n\n\n" + source)
        return grade.grade(doubling, submission, device="cpu", seed=1)

    return run


def is_gone(pid: int) -> bool:
    """Return whether a process has ended; a zombie counts as ended."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return True
    return state == "Z"


class Solutions:
    """Grade the reference kernels of this checkout on the CPU, each on demand and once per test run.

    folder: the folder of the reports, for notebooks (show/graded.py) and the other processes of pytest-xdist.
    few: whether kernels are graded in few cases (few_cases.py).
    """

    def __init__(self, folder: Path, *, few: bool = False) -> None:
        self.folder = folder
        self._few = few
        folder.mkdir(exist_ok=True)

    def in_few_cases(self) -> Solutions:
        """Return the reports on the same kernels in few cases."""
        return Solutions(self.folder / "few", few=True)

    def report(self, item: ExerciseRef) -> Report:
        from kernelpath.course import registry
        from kernelpath.grading import grade
        from kernelpath.show import graded
        from tests.few_cases import grade_in_few_cases, has_few_cases

        with (self.folder / f"{item.name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            report = graded.load_report(item, self.folder)
            if report is None:
                if self._few and has_few_cases(registry.load(item)):
                    report = grade_in_few_cases(item, item.reference, seed=1, addresses=False)
                else:
                    report = grade.grade(item, item.reference, device="cpu")
                graded.save_report(item, report, self.folder)
        return report


@pytest.fixture(scope="session")
def solutions(tmp_path_factory: pytest.TempPathFactory) -> Solutions:
    base = tmp_path_factory.getbasetemp()
    return Solutions((base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "solutions")


@pytest.fixture(scope="session")  # the process takes seconds to start, so test files share it
def caller() -> Iterator[Caller]:
    """Yield the process that calls submissions without a grading; see direct.py."""
    from tests.direct import Caller

    caller = Caller()
    yield caller
    caller.close()
