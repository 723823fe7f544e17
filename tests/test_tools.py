"""Test the tools of the test suite: the cost tables of a test run, and the comparison of verdicts of two computers."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests import suite_costs, verdicts

ROOT = Path(__file__).parents[1]

RESULTS = """<?xml version="1.0"?>
<testsuites><testsuite>
<testcase classname="tests.test_wire" name="test_a[1|2]" time="0.5"/>
<testcase classname="tests.test_wire" name="test_b" time="1.25"/>
<testcase classname="" name="tests.test_cluster" time="0.000"><skipped message="no ray"/></testcase>
<testcase classname="warpcheck.tests.machine.test_wire" name="test_a" time="3"/>
<testcase classname="tests.test_notebook_runs.TestClass" name="test_a" time="20"/>
</testsuite></testsuites>
"""


@pytest.fixture
def tests(tmp_path: Path) -> list[suite_costs.Test]:
    (tmp_path / "tests.xml").write_text(RESULTS)
    return suite_costs.read(tmp_path / "tests.xml")


def test_costs_are_summed_by_class(tests: list[suite_costs.Test]) -> None:
    assert list(suite_costs.by_class(tests))[2:] == ["| unit | 4.8 | 3 |", "| notebooks | 20.0 | 1 |"]


def test_costs_are_summed_by_file_the_most_expensive_first(tests: list[suite_costs.Test]) -> None:
    assert list(suite_costs.by_file(tests, 2))[2:] == [
        "| test_notebook_runs.py | 20.0 | 1 |",
        "| machine/test_wire.py | 3.0 | 1 |",
        "| 1 others | 1.8 | 2 |",
    ]


def test_the_slowest_tests_are_listed_and_their_names_break_no_table(tests: list[suite_costs.Test]) -> None:
    assert list(suite_costs.slowest(tests, 4))[-2:] == [
        "| test_wire.py: test_b | 1.2 |",
        "| test_wire.py: test_a[1\\|2] | 0.5 |",
    ]


def test_a_test_over_the_budget_is_found_unless_it_may_be(
    tests: list[suite_costs.Test], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert [(test.file, test.seconds) for test in suite_costs.over_budget(tests)] == [("test_notebook_runs.py", 20.0)]
    monkeypatch.setattr(suite_costs, "EXEMPT", {"test_a"})
    assert suite_costs.over_budget(tests) == []


def test_costs_are_summed_by_group(tests: list[suite_costs.Test]) -> None:
    assert suite_costs.seconds_by_group(tests) == {
        "test_wire.py": 1.8,
        "machine/test_wire.py": 3.0,
        "test_notebook_runs.py": 20.0,
    }


def test_differences_are_listed_by_exercise_and_part() -> None:
    first: verdicts.Verdicts = {
        "a": {"verdict": "PASSED", "cause": "", "traffic": [1]},
        "b": {"verdict": "PASSED"},
        "c": {"stars": 1},
    }
    second: verdicts.Verdicts = {"a": {"verdict": "RACE", "cause": "", "traffic": [2]}, "b": {"verdict": "PASSED"}}
    assert verdicts.differences(first, second) == {"a": ["traffic", "verdict"], "c": ["stars"]}
    assert verdicts.differences(first, first) == {}


@pytest.mark.parametrize(("there", "status", "result"), [("PASSED", 0, "equal"), ("RACE", 1, "another verdict")])
def test_comparing_verdicts_needs_only_python(there: str, status: int, result: str, tmp_path: Path) -> None:
    files = [tmp_path / "here.json", tmp_path / "there.json"]
    for file, verdict in zip(files, ("PASSED", there), strict=True):
        file.write_text(f'{{"vector_add": {{"verdict": "{verdict}"}}}}')
    command = [sys.executable, "-S", "-I", str(ROOT / "tests" / "verdicts.py"), "--compare", *map(str, files)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (status, f"vector_add: PASSED, {result}\n")
