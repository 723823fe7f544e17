"""Planted submissions that are called directly (direct.py): wrong ones in one case, honest ones in few.

What states a fact of one call needs no grading. Which submissions are graded all the same, test_rejects.py says.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

from kernelpath.verdict import Verdict
from tests import direct, planted
from tests.direct import Caller
from tests.planted import Planted

ROOT = Path(__file__).parents[1]
GRADED = direct.graded(ROOT)
WRONG = [reject for reject in planted.rejects(ROOT, "cpu") if reject not in GRADED]
HONEST = [honest for honest in planted.accepts(ROOT) if honest not in GRADED]


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where submissions are written: patches of one program share what compilers made of kernels that they leave."""
    return tmp_path_factory.mktemp("direct")


@direct.parametrize("reject", WRONG, ROOT)
def test_a_wrong_submission_fails_in_its_case(reject: Planted, caller: Caller, folder: Path) -> None:
    ended = caller.call(reject.exercise, reject.submission(folder), reject.options["case"])
    assert ended.verdict is reject.verdict, ended.cause
    assert ended.cause


@direct.parametrize("honest", HONEST, ROOT)
def test_an_honest_submission_is_right_in_few_cases(honest: Planted, caller: Caller, folder: Path) -> None:
    ended = caller.call(honest.exercise, honest.submission(folder), direct.FEW)
    assert ended.verdict is Verdict.PASSED, f"{ended.label}: {ended.cause}"


def test_every_run_tests_each_kind_of_submission() -> None:
    wrong = planted.rejects(ROOT, "cpu")
    sentinels = direct.sentinels(ROOT)
    chosen = [reject for reject in wrong if reject in sentinels]
    assert verdicts_by_lane(chosen, is_graded=True) == verdicts_by_lane(wrong, is_graded=True)
    called, all_called = verdicts_by_lane(chosen, is_graded=False), verdicts_by_lane(wrong, is_graded=False)
    assert [set(names) for names in zip(*called, strict=True)] == [
        set(names) for names in zip(*all_called, strict=True)
    ]
    assert rows_by_lane(chosen) == rows_by_lane(wrong)
    assert 120 <= len(sentinels) <= 0.15 * (len(wrong) + len(planted.accepts(ROOT)))


def verdicts_by_lane(rejects: Iterable[Planted], is_graded: bool) -> set[tuple[str, Verdict]]:
    return {(direct.lane_of(reject.exercise), reject.verdict) for reject in rejects if (reject in GRADED) == is_graded}


def rows_by_lane(rejects: Iterable[Planted]) -> set[tuple[str, str]]:
    return {(direct.lane_of(reject.exercise), direct.row(reject)) for reject in rejects if reject in GRADED}


ENTRY = "import os, time\n\n\ndef vector_add(x, y):\n    {}\n"
LABEL = "n=257 offset=0"


@pytest.mark.parametrize(
    ("line", "verdict", "cause"),
    [
        ("return x", Verdict.WRONG_TYPE, "the output shares the memory of an input"),
        ("return x + x", Verdict.WRONG_VALUES, ""),
        ("x.zero_(); return x + y", Verdict.MUTATED_INPUT, "an input was written to during the call"),
        ("raise ValueError('no')", Verdict.CRASHED, "ValueError: no"),
    ],
    ids=["returns an input", "is wrong", "changes an input", "raises"],
)
def test_a_call_ends_as_a_grading_would(
    line: str, verdict: Verdict, cause: str, caller: Caller, tmp_path: Path
) -> None:
    file = tmp_path / "w01b_vector_add.py"
    file.write_text(ENTRY.format(line))
    ended = caller.call("w01b_vector_add", file, LABEL)
    assert ended.verdict is verdict, ended.cause
    assert cause in ended.cause


def test_a_call_that_ends_or_hangs_its_process_is_no_other_calls_matter(tmp_path: Path) -> None:
    caller = Caller()
    file = tmp_path / "w01b_vector_add.py"
    file.write_text(ENTRY.format("os._exit(7)"))
    ended = caller.call("w01b_vector_add", file, LABEL)
    assert (ended.verdict, ended.cause) == (Verdict.CRASHED, "the process ended with status 7")
    file.write_text(ENTRY.format("time.sleep(600)"))
    assert caller.call("w01b_vector_add", file, LABEL, seconds=2).verdict is Verdict.TIMED_OUT
    caller.close()


def test_the_verdict_that_is_looked_for_is_found_behind_another(caller: Caller, tmp_path: Path) -> None:
    file = tmp_path / "w01b_vector_add.py"
    file.write_text(ENTRY.format("assert x.numel() > 1; return x + x"))
    first, behind = (
        caller.call("w01b_vector_add", file, None, target_verdict=target) for target in (None, Verdict.WRONG_VALUES)
    )
    assert (first.verdict, first.label) == (Verdict.CRASHED, "n=1 offset=0")
    assert behind.verdict is Verdict.WRONG_VALUES
    assert caller.call("w01b_vector_add", file, behind.label).verdict is Verdict.WRONG_VALUES
    nowhere = caller.call("w01b_vector_add", file, None, target_verdict=Verdict.RACE)
    assert nowhere == first


def test_large_offsets_are_tried_alone(caller: Caller, tmp_path: Path) -> None:
    """A case past 2^31 counts no traffic."""
    slow, narrow = (
        planted.named(ROOT, f"w02a_matrix_add/{title}")
        for title in ("TOO_MUCH_TRAFFIC_lanes_down_a_column", "OUT_OF_BOUNDS_offset_in_32_bits")
    )
    ended = [
        caller.call(reject.exercise, reject.submission(tmp_path), direct.LARGE_OFFSETS) for reject in (slow, narrow)
    ]
    assert [end.verdict for end in ended] == [Verdict.PASSED, Verdict.OUT_OF_BOUNDS]
    assert "is an offset past 2^31 computed in 32 bits?" in ended[1].cause


def test_a_case_that_is_gone_is_named(caller: Caller, tmp_path: Path) -> None:
    ended = caller.call("w01b_vector_add", tmp_path / "never_read.py", "n=-1")
    assert ended.verdict is Verdict.UNAVAILABLE
    assert ended.cause.startswith("there is no case n=-1")
