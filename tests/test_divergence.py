"""The limit on active lanes, and the line where most are idle."""

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


def test_the_average_is_over_all_instructions_and_the_line_with_most_idle_lanes_is_named() -> None:
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


def test_lanes_that_never_were_part_nowhere() -> None:
    finding = check_active_lanes([LineInstructions("k.cu", 5, 10, 10)], 2, {"n": 8})
    assert finding is not None
    assert finding.cause.endswith("most are idle in line 5 (1 active)")


def test_a_case_is_limited_from_half_the_largest_ones_bytes_on(exercise: Exercise) -> None:
    n = exercise.largest["n"]
    few = [LineInstructions("k.cu", 5, 10, 10)]
    assert check_case(exercise, {"n": n // 2 + 1, "distribution": "mixed"}, (), few, 1) is not None
    assert check_case(exercise, {"n": n // 2 - 1, "distribution": "mixed"}, (), few, 1) is None
    assert check_case(replace(exercise, active_lanes=None), exercise.largest, (), few, 1) is None


@pytest.mark.parametrize("limit", [-1.0, 0.0, 33.0])
def test_a_limit_that_says_nothing_or_cannot_be_reached_is_refused(exercise: Exercise, limit: float) -> None:
    with pytest.raises(DeclarationError, match="active_lanes"):
        replace(exercise, active_lanes=limit)


def test_a_report_has_the_lanes_of_every_line(tmp_path: Path) -> None:
    """From the counters of the process that runs the kernels to the report, for a thread for each oscillator."""
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
    of_line = {source[one.line - 1].strip(): one for one in report.instructions if one.line}
    guard = of_line["if (i >= n) return;"]
    step = of_line["const float v2 = v + H / 2 * a1, a2 = acceleration(position + H / 2 * v1);"]
    assert guard.active == pytest.approx(32, abs=0.1)
    assert 7 < step.active < 9, "steps on a logarithmic scale: a mean of 15, 56 for the longest of 32"
    assert Report.from_json(report.to_json()).instructions == report.instructions


def test_instructions_that_the_work_does_not_take_hide_nothing() -> None:
    lines = [LineInstructions("k.cu", 5, 100, 400), LineInstructions("k.cu", 6, 1000, 32_000)]
    assert check_active_lanes(lines, 16, {"n": 8}) is None
    finding = check_active_lanes(lines, 16, {"n": 8}, useful=400)
    assert finding is not None
    assert "4 of 32 lanes" in finding.cause
    assert finding.line == 5
