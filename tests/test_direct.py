"""Call planted submissions directly (direct.py): wrong ones in a single case, honest ones in few cases.

A submission whose verdict depends on a single call needs no grading. test_rejects.py says which are graded as well.
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
    """Return the folder of all submissions: patches of one program share the compiled form of unchanged kernels."""
    return tmp_path_factory.mktemp("direct")


@direct.parametrize("reject", WRONG, ROOT)
def test_a_wrong_submission_fails_in_its_case(reject: Planted, caller: Caller, folder: Path) -> None:
    outcome = caller.call(reject.exercise, reject.submission(folder), reject.options["case"])
    assert outcome.verdict is reject.verdict, outcome.cause
    assert outcome.cause


@direct.parametrize("honest", HONEST, ROOT)
def test_an_honest_submission_is_right_in_few_cases(honest: Planted, caller: Caller, folder: Path) -> None:
    outcome = caller.call(honest.exercise, honest.submission(folder), direct.FEW)
    assert outcome.verdict is Verdict.PASSED, f"{outcome.label}: {outcome.cause}"


def test_every_run_tests_each_kind_of_submission() -> None:
    wrong = planted.rejects(ROOT, "cpu")
    sentinels = direct.sentinels(ROOT)
    chosen = [reject for reject in wrong if reject in sentinels]
    assert verdicts_by_lane(chosen, is_graded=True) == verdicts_by_lane(wrong, is_graded=True)
    chosen_verdicts = verdicts_by_lane(chosen, is_graded=False)
    all_verdicts = verdicts_by_lane(wrong, is_graded=False)
    assert [set(names) for names in zip(*chosen_verdicts, strict=True)] == [
        set(names) for names in zip(*all_verdicts, strict=True)
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
def test_a_direct_call_has_the_verdict_of_a_grading(
    line: str, verdict: Verdict, cause: str, caller: Caller, tmp_path: Path
) -> None:
    file = tmp_path / "w01b_vector_add.py"
    file.write_text(ENTRY.format(line))
    outcome = caller.call("w01b_vector_add", file, LABEL)
    assert outcome.verdict is verdict, outcome.cause
    assert cause in outcome.cause


def test_a_call_that_exits_or_hangs_does_not_affect_the_next(tmp_path: Path) -> None:
    caller = Caller()
    file = tmp_path / "w01b_vector_add.py"
    file.write_text(ENTRY.format("os._exit(7)"))
    outcome = caller.call("w01b_vector_add", file, LABEL)
    assert (outcome.verdict, outcome.cause) == (Verdict.CRASHED, "the process ended with status 7")
    file.write_text(ENTRY.format("time.sleep(600)"))
    assert caller.call("w01b_vector_add", file, LABEL, seconds=2).verdict is Verdict.TIMED_OUT
    caller.close()


def test_a_target_verdict_is_found_after_another_failure(caller: Caller, tmp_path: Path) -> None:
    file = tmp_path / "w01b_vector_add.py"
    file.write_text(ENTRY.format("assert x.numel() > 1; return x + x"))
    first, targeted = (
        caller.call("w01b_vector_add", file, None, target_verdict=target) for target in (None, Verdict.WRONG_VALUES)
    )
    assert (first.verdict, first.label) == (Verdict.CRASHED, "n=1 offset=0")
    assert targeted.verdict is Verdict.WRONG_VALUES
    assert caller.call("w01b_vector_add", file, targeted.label).verdict is Verdict.WRONG_VALUES
    unmatched = caller.call("w01b_vector_add", file, None, target_verdict=Verdict.RACE)
    assert unmatched == first


def test_large_offsets_are_called_alone(caller: Caller, tmp_path: Path) -> None:
    """A case with offsets past 2^31 is run without counting traffic, so a slow kernel passes it."""
    slow, narrow = (
        planted.named(ROOT, f"w02a_matrix_add/{title}")
        for title in ("TOO_MUCH_TRAFFIC_lanes_down_a_column", "OUT_OF_BOUNDS_offset_in_32_bits")
    )
    outcomes = [
        caller.call(reject.exercise, reject.submission(tmp_path), direct.LARGE_OFFSETS) for reject in (slow, narrow)
    ]
    assert [outcome.verdict for outcome in outcomes] == [Verdict.PASSED, Verdict.OUT_OF_BOUNDS]
    assert "is an offset past 2^31 computed in 32 bits?" in outcomes[1].cause


def test_a_removed_case_is_reported(caller: Caller, tmp_path: Path) -> None:
    outcome = caller.call("w01b_vector_add", tmp_path / "never_read.py", "n=-1")
    assert outcome.verdict is Verdict.UNAVAILABLE
    assert outcome.cause.startswith("there is no case n=-1")
