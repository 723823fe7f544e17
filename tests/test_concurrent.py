"""Test that concurrent gradings of one file, such as `kp watch` next to `kp check`, do not disturb each other."""

from __future__ import annotations

import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from kernelpath.course import registry
from kernelpath.course.registry import ExerciseRef
from kernelpath.grading import grade
from kernelpath.verdict import Report
from kernelpath.work import forkserver, runner
from tests.few_cases import grade_in_few_cases, has_few_cases

GRADINGS = 3
STAGGER_SECONDS = 0.4


@dataclass
class _SharedServer:
    """The state of a single fork server for all threads, which imports torch and the compilers only once."""

    server: forkserver.ForkServer | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    group: forkserver.ServerGroup | None = None


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Use an empty cache, so that every grading compiles, and long time limits, so that load fails no test."""
    monkeypatch.setenv("KERNELPATH_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(runner, "CASE_SECONDS", 120.0)
    monkeypatch.setattr(forkserver, "_REAP_SECONDS", 120.0)
    monkeypatch.setattr(forkserver, "_thread_state", _SharedServer())
    forkserver.get_server()


def without_times(report: Report) -> Report:
    """Return the report without its times, which differ between runs."""
    cases = tuple(replace(case, seconds=0.0) for case in report.cases)
    return replace(report, cases=cases, seconds=0.0, compile_seconds=0.0)


def grade_later(item: ExerciseRef, delay: float) -> Report:
    time.sleep(delay)
    if has_few_cases(registry.load(item)):
        return grade_in_few_cases(item, item.solution, seed=1, addresses=False)
    return grade.grade(item, item.solution, device="cpu", seed=1)


@pytest.mark.parametrize(
    "name",
    ["vector_add_triton", *(pytest.param(name, marks=pytest.mark.weekly) for name in ("vector_add", "vector_copy"))],
)
def test_concurrent_gradings_of_a_file_have_equal_reports(name: str) -> None:
    item = registry.find(name)
    with ThreadPoolExecutor(GRADINGS) as pool:
        delays = [number * STAGGER_SECONDS for number in range(GRADINGS)]
        reports = list(pool.map(grade_later, [item] * GRADINGS, delays))
    first = reports[0]
    assert first.verdict.passed, first.cause
    assert len(first.cases) > 1
    assert first.traffic
    for report in reports[1:]:
        assert without_times(report) == without_times(first)


def test_the_end_of_a_grading_does_not_remove_files_of_another(doubling: ExerciseRef) -> None:
    doubling.solution.write_text(
        "import os, tempfile, time\n"
        "def double(x):\n"
        "    file = tempfile.NamedTemporaryFile()\n"
        "    time.sleep(1.0)\n"
        "    assert os.listdir('.') == [os.path.basename(file.name)]\n"
        "    return 2 * x\n"
    )
    with ThreadPoolExecutor(3) as pool:
        reports = list(pool.map(grade_later, [doubling] * 3, [0.0, 0.7, 1.4]))
    assert [(report.verdict.value, report.cause) for report in reports] == [("PASSED", "")] * 3
