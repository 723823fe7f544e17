"""Every exercise: its stub is not started, and its solution passes. The rest of what it must be is test_dev's."""

from __future__ import annotations

import pytest
import torch

from kernelpath.course import registry
from kernelpath.course.registry import Item
from kernelpath.dev import controls
from kernelpath.grading.grade import grade
from kernelpath.verdict import Verdict
from tests.conftest import Solutions

pytestmark = pytest.mark.parametrize("item", registry.exercises(), ids=lambda item: item.name)


def test_the_stub_is_not_started(item: Item) -> None:
    assert grade(item, item.stub, device="cpu").verdict is Verdict.NOT_STARTED


def test_the_solution_passes_on_the_cpu(item: Item, solutions: Solutions) -> None:
    report = solutions.report(item)
    assert report.verdict is Verdict.PASSED, report.cause


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_the_solution_takes_all_stars_on_a_gpu(item: Item) -> None:
    report = grade(item, item.solution, device="cuda")
    if report.verdict is Verdict.UNAVAILABLE:
        pytest.skip(report.cause)
    assert (report.verdict, report.stars) == (Verdict.PASSED, item.stars), report.cause


def test_wrong_answers_are_rejected(item: Item) -> None:
    assert list(controls.find_violations(item)) == []
