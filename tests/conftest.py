"""A checkout of one small exercise, so that the grader is tested without a compiler or a GPU."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from kernelpath.course.registry import Item
from kernelpath.grading import grade
from kernelpath.verdict import Report

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
    bytes_moved=lambda n: 8 * n,
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
def doubling(tmp_path: Path) -> Item:
    """The exercise `double` (Python alone, no kernel) in a checkout of its own."""
    for tree in ("checks", "phases", "solutions"):
        (tmp_path / tree / "1_architecture").mkdir(parents=True)
    item = Item(tmp_path, "1_architecture/w01a_double")
    item.declaration.write_text(DECLARATION)
    item.lesson.write_text(LESSON)
    item.solution.write_text("def double(x):\n    return 2 * x\n")
    return item


@pytest.fixture
def grade_text(doubling: Item, tmp_path: Path) -> Callable[[str], Report]:
    """Grades Python source as a submission to `doubling`."""

    def run(source: str) -> Report:
        submission = tmp_path / "submission.py"
        submission.write_text("import torch\n\n\n" + source)
        return grade.grade(doubling, submission, device="cpu", seed=1)

    return run
