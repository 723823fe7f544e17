"""Test the self-test: it finds its planted faults and reports a fault that was not found."""

from __future__ import annotations

from dataclasses import replace

import pytest

from warpcheck import errors, selftest
from warpcheck.errors import Fault, FaultKind
from warpcheck.selftest_triton import TRITON

CUDA = selftest.CUDA
PLANTED = [*(("CUDA C++", fault) for fault in CUDA), *(("Triton", fault) for fault in TRITON)]


@pytest.mark.parametrize(("language", "planted"), PLANTED, ids=lambda value: getattr(value, "mistake", value))
def test_a_planted_fault_is_found(language: str, planted: selftest.PlantedKernel) -> None:
    outcome = selftest.try_planted(planted, language)
    assert outcome.problem == ""
    assert outcome.line == planted.expected_line


def test_every_kind_of_fault_is_planted() -> None:
    kinds = {type(Fault(kind, "", "", "", 0, (0,) * 3, (0,) * 3)).__name__ for kind in FaultKind}
    assert {planted.fault for planted in CUDA} == kinds | {"Deadlock"}
    assert all(hasattr(errors, planted.fault) for planted in TRITON)


def test_the_self_test_covers_the_installed_languages() -> None:
    assert list(selftest.languages()) == ["CUDA C++", "Triton"]


FIRST = CUDA[0]


@pytest.mark.parametrize(
    ("planted", "problem"),
    [
        (replace(FIRST, wrong=FIRST.right), "the fault was not found"),
        (replace(FIRST, fault="Race"), "found OutOfBounds instead: "),
        (replace(FIRST, wrong="no C++"), "found CompileError instead: "),
        (replace(FIRST, right="no C++"), "the corrected kernel does not run: CompileError: "),
        (replace(FIRST, line="int i ="), "found in line 3 instead of line 2"),
        (replace(FIRST, right=FIRST.wrong), "the corrected kernel has a fault: "),
    ],
)
def test_an_unexpected_outcome_is_a_problem(planted: selftest.PlantedFault, problem: str) -> None:
    assert selftest.try_planted(planted, "CUDA C++").problem.startswith(problem)
