"""Planted bad submissions: every file in rejects/ gets exactly the verdict that its name begins with.

rejects/any/ is graded on the PTX machine, rejects/gpu/ on a GPU. The folder below is an exercise. A docstring begins
with the row of ROWS that the file stands for.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from kernelpath import grade, registry
from kernelpath.verdict import Verdict

HERE = Path(__file__).parent / "rejects"
ROWS = {*(f"C{row}" for row in range(1, 12)), *(f"T{row}" for row in range(1, 10)), "T11", "S1", "S2", "S3", "H1", "H2"}


def submissions(folder: str) -> list[Path]:
    return sorted((HERE / folder).glob("w*/*.py"))


def verdict_of(submission: Path) -> Verdict:
    return next(verdict for verdict in Verdict if submission.name.startswith(f"{verdict.value}_"))


def name_of(submission: Path) -> str:
    return f"{submission.parent.name}/{submission.stem}"


@pytest.fixture(autouse=True)
def short_deadlines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grade, "CASE_SECONDS", 4.0)


@pytest.mark.parametrize("submission", submissions("any"), ids=name_of)
def test_without_a_gpu(submission: Path) -> None:
    assert_rejected(submission, "cpu")


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("submission", submissions("gpu"), ids=name_of)
def test_on_a_gpu(submission: Path) -> None:
    assert_rejected(submission, "cuda")


def assert_rejected(submission: Path, device: grade.Device) -> None:
    report = grade.grade(registry.find(submission.parent.name), submission, device=device, seed=1)
    assert report.verdict is verdict_of(submission), f"{report.cause}\n{report.printed}"
    assert report.cause
    assert report.stars == (1 if report.verdict is Verdict.TOO_SLOW else 0)
