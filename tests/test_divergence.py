"""Test the limit on active lanes, and the line that is named for most idle lanes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from kernelpath.course import registry
from kernelpath.course.errors import DeclarationError
from kernelpath.course.spec import Exercise
from kernelpath.grading import grade
from kernelpath.grading.instructions import check_active_lanes, check_case
from kernelpath.line_counters import LineInstructions
from kernelpath.verdict import Report, Verdict

ROOT = Path(__file__).parents[1]
BEFORE = LineInstructions("k.cu", 3, instructions=100, active_lanes=3200)
LOOP = LineInstructions("k.cu", 7, instructions=300, active_lanes=3600, divergent_branches=9)
WORK = LineInstructions("k.cu", 5, instructions=600, active_lanes=4800)
LINES = (BEFORE, LOOP, WORK)


@pytest.fixture(scope="module")
def exercise() -> Exercise:
    return registry.load(registry.find("divergence"))


def test_the_line_with_the_most_idle_lanes_is_named() -> None:
    finding = check_active_lanes(LINES, 11.7, {"n": 8})
    assert finding is not None
    assert (finding.verdict, finding.file, finding.line) == (Verdict.DIVERGENT, "k.cu", 5)
    assert finding.cause == (
        "at n=8: 11.6 of 32 lanes are active in the average instruction, 11.7 are required;"
        " most are idle in line 5 (8 active), and they diverge in line 7"
    )
    assert finding.step == "kp profile {name}"
    assert check_active_lanes(LINES, 11.6, {"n": 8}) is None
    assert check_active_lanes((), 32, {"n": 8}) is None


def test_inactive_lanes_are_not_called_divergent() -> None:
    finding = check_active_lanes([LineInstructions("k.cu", 5, 10, 10)], 2, {"n": 8})
    assert finding is not None
    assert finding.cause.endswith("most are idle in line 5 (1 active)")


def test_the_limit_applies_from_half_the_largest_size_on(exercise: Exercise) -> None:
    n = exercise.largest["n"]
    divergent_lines = [LineInstructions("k.cu", 5, 10, 10)]
    assert check_case(exercise, {"n": n // 2 + 1, "distribution": "mixed"}, (), divergent_lines, 1) is not None
    assert check_case(exercise, {"n": n // 2 - 1, "distribution": "mixed"}, (), divergent_lines, 1) is None
    assert check_case(replace(exercise, active_lanes=None), exercise.largest, (), divergent_lines, 1) is None


@pytest.mark.parametrize("limit", [-1.0, 0.0, 33.0])
def test_an_invalid_limit_of_active_lanes_is_refused(exercise: Exercise, limit: float) -> None:
    with pytest.raises(DeclarationError, match="active_lanes"):
        replace(exercise, active_lanes=limit)


def test_a_report_has_the_lanes_of_every_line(tmp_path: Path) -> None:
    """A divergent kernel with a thread per oscillator is graded, and its counters reach the report."""
    item = registry.find("divergence")
    for file in item.files("expert"):
        (tmp_path / file.name).write_text(file.read_text())
    (tmp_path / "w06c_divergence.cu").write_text((ROOT / "checks" / f"{item.path_id}.cu").read_text())
    launch = tmp_path / "w06c_divergence.py"
    launch.write_text(launch.read_text().replace("TILE = 8 * THREADS", "TILE = THREADS"))
    report = grade.grade(item, launch, device="cpu", seed=1)
    assert report.verdict is Verdict.DIVERGENT, report.cause
    assert report.stars == 0
    assert all(case.verdict.passed for case in report.cases)
    source = (tmp_path / "w06c_divergence.cu").read_text().splitlines()
    of_line = {source[entry.line - 1].strip(): entry for entry in report.instructions if entry.line}
    guard = of_line["if (i >= n) return;"]
    step = of_line["const float v2 = v + H / 2 * a1, a2 = acceleration(position + H / 2 * v1);"]
    assert guard.active == pytest.approx(32, abs=0.1)
    assert 7 < step.active < 9, "steps are on a logarithmic scale: 15 in the mean, and 56 for the longest of 32 lanes"
    assert Report.from_json(report.to_json()).instructions == report.instructions


def test_needless_instructions_do_not_hide_divergence() -> None:
    lines = [LineInstructions("k.cu", 5, 100, 400), LineInstructions("k.cu", 6, 1000, 32_000)]
    assert check_active_lanes(lines, 16, {"n": 8}) is None
    finding = check_active_lanes(lines, 16, {"n": 8}, useful=400)
    assert finding is not None
    assert "4 of 32 lanes" in finding.cause
    assert finding.line == 5
