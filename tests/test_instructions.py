"""Test the limits on instructions: the width of accesses, integer and special instructions, and local memory."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from kernelpath.course import registry
from kernelpath.course.errors import DeclarationError
from kernelpath.course.spec import Exercise, Instructions
from kernelpath.grading import grade, instructions
from kernelpath.grading.instructions import (
    check_access_width,
    check_integer_instructions,
    check_local_memory,
    check_special_functions,
)
from kernelpath.line_counters import LineInstructions, LineTraffic
from kernelpath.verdict import Verdict
from warpcheck.assembler import Assembled, Instruction
from warpcheck.counters import LineCounters, by_line
from warpcheck.instruction_classes import DIVISION
from warpcheck.lowered_kernel import Lowered

ROOT = Path(__file__).parents[1]


def access(number: int, lanes: int, nbytes: int, kind: str = "load from", sectors: int = 1) -> LineTraffic:
    return LineTraffic("k.cu", number, kind, "x", lanes // 32, sectors=sectors, lanes=lanes, bytes=lanes * nbytes)


@pytest.fixture(scope="module")
def exercise() -> Exercise:
    return registry.load(registry.find("ptx"))


def test_the_line_with_the_most_narrow_accesses_is_named() -> None:
    lines = [access(3, 10_000, 16), access(5, 10_000, 8), access(7, 10_000, 4, "store to")]
    finding = check_access_width(lines, 16)
    assert finding is not None
    assert (finding.verdict, finding.file, finding.line) == (Verdict.TOO_MANY_INSTRUCTIONS, "k.cu", 7)
    assert finding.cause == "line 7, store to x: 4 bytes per instruction, 16 are required"
    assert finding.step == "kp profile {name} --sass"
    assert check_access_width(lines, 4) is None


def test_a_few_narrow_accesses_are_allowed() -> None:
    """Narrow accesses may exceed the required number by 32 plus 2%: 233 of 10,077, and 308 narrow lanes add 231."""
    wide_access = access(3, 10_000, 16)
    assert check_access_width([wide_access, access(4, 308, 4)], 16) is None
    assert check_access_width([wide_access, access(4, 316, 4)], 16) is not None
    assert check_access_width([access(4, 32, 4)], 16) is None


def test_shared_memory_is_not_limited() -> None:
    assert check_access_width([access(4, 10_000, 4, sectors=0)], 16) is None


def test_integers_are_counted_for_each_element() -> None:
    lines = [LineInstructions("k.cu", 0, 0, 0, integer=5000), LineInstructions("k.cu", 9, 0, 0, integer=3000)]
    finding = check_integer_instructions(lines, 7.9, 1000)
    assert finding is not None
    assert (finding.verdict, finding.line) == (Verdict.TOO_MANY_INSTRUCTIONS, 9)
    assert finding.cause == (
        "8 integer instructions per element, at most 7.9 are allowed; most in line 9: 3 (a division is many)"
    )
    assert check_integer_instructions(lines, 8, 1000) is None
    assert check_integer_instructions([], 8, 0) is None


def test_special_functions_are_counted_for_each_element() -> None:
    lines = [LineInstructions("k.py", 0, 0, 0, special=5000), LineInstructions("k.py", 9, 0, 0, special=3000)]
    finding = check_special_functions(lines, 7.9, 1000)
    assert finding is not None
    assert (finding.verdict, finding.line) == (Verdict.TOO_MANY_INSTRUCTIONS, 9)
    assert finding.cause == "8 special functions per element, at most 7.9 are allowed; most in line 9: 3"
    assert check_special_functions(lines, 8, 1000) is None
    assert check_special_functions([], 8, 0) is None


def test_special_functions_are_those_of_their_unit() -> None:
    counters = LineCounters(instructions={"special function": 64, "float32": 96})
    assert LineInstructions.from_counters("k.py", 4, counters).special == 64


def test_local_memory_is_named_by_the_line_of_its_first_access() -> None:
    sass = [Instruction(4, "STG.E [R2.64], R4"), Instruction(0, "STL [R1], R4"), Instruction(6, "@P0 LDL R4, [R1]")]
    finding = check_local_memory(Assembled(24, 16, 20, 64, b""), sass, "/a/k.cu")
    assert finding is not None
    assert (finding.verdict, finding.line) == (Verdict.TOO_MANY_INSTRUCTIONS, 6)
    assert finding.cause == (
        "line 6: ptxas: 16 bytes stack frame, 20 bytes spill stores, 64 bytes spill loads:"
        " some of a thread's data is not in registers"
    )
    assert check_local_memory(Assembled(24, 0, 0, 0, b""), sass, "k.cu") is None


def test_only_the_largest_case_is_limited(exercise: Exercise) -> None:
    lines = [access(3, 10_000, 4)]
    finding = instructions.check_case(exercise, exercise.largest, lines, (), 1)
    assert finding is not None
    assert finding.cause.startswith("at rows=192 columns=1024 pad=8: line 3, load from x: 4 bytes per instruction")
    assert instructions.check_case(exercise, dict(exercise.largest), lines, (), 1) is None
    assert (
        instructions.check_case(replace(exercise, instructions=Instructions()), exercise.largest, lines, (), 1) is None
    )


@pytest.mark.parametrize("limits", [{"access_bytes": 12}, {"access_bytes": 32}, {"integer": 0.0}, {"special": 0.0}])
def test_an_invalid_limit_on_instructions_is_refused(limits: dict[str, float]) -> None:
    with pytest.raises(DeclarationError, match="instructions"):
        Instructions(**limits)  # type: ignore[arg-type]


def test_a_division_counts_as_the_instructions_that_it_becomes() -> None:
    names = ("add.s32", "div.u32", "@rem.s64", "div.rn.f32", "setp.lt.s32")
    block = [*((4, name) for name in names), (5, "mov.u32")]
    lowered = Lowered("", warp_bytes=0, shared_bytes=0, local_bytes=0, shared={}, blocks=[block])
    lines = by_line(lowered, [[2, 64, 0]], [])
    assert lines[4].integer_instructions == 64 * (2 + DIVISION["32"] + DIVISION["64"])
    assert lines[5].integer_instructions == 0
    counters = LineInstructions.from_counters("k.cu", 4, lines[4])
    assert counters == LineInstructions("k.cu", 4, 10, 320, 0, lines[4].integer_instructions)


def test_a_report_has_the_widths_and_the_integers_of_every_line(tmp_path: Path) -> None:
    """The original kernel of the exercise is graded, and its counters reach the report."""
    item = registry.find("ptx")
    (tmp_path / "w07d_ptx.cu").write_text((ROOT / "checks" / f"{item.path_id}.cu").read_text())
    launch = tmp_path / "w07d_ptx.py"
    stub = (ROOT / "phases" / f"{item.path_id}.py").read_text()
    launch.write_text("".join(line for line in stub.splitlines(keepends=True) if "NotImplemented" not in line))
    report = grade.grade(item, launch, device="cpu", seed=1)
    assert report.verdict is Verdict.TOO_MANY_INSTRUCTIONS, report.cause
    assert all(case.verdict.passed for case in report.cases)
    source = (tmp_path / "w07d_ptx.cu").read_text().splitlines()
    loads = next(entry for entry in report.traffic if entry.access == "load from")
    assert source[loads.line - 1].strip().startswith("taken[count++] = x[")
    assert (loads.bytes_per_access, loads.lanes, loads.bytes) == (4, 192 * 1024, 4 * 192 * 1024)
    assert sum(entry.integer for entry in report.instructions) / (192 * 1024) == pytest.approx(46, abs=1)
