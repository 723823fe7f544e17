"""Test the driver of public test suites: how it counts outcomes, and the page that it writes."""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

FOLDER = Path(__file__).parents[1] / "benchmarks"


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, FOLDER / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses looks up the module of a class there
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def suites() -> ModuleType:
    return load("suites")


def report(test: str, outcome: str, *, when: str = "call", **values: Any) -> dict[str, Any]:
    record = {"event": "report", "test": test, "when": when, "outcome": outcome, "xfail": False, "seconds": 1.0}
    return {**record, "text": "", "launches": 1, "kernels": ["k"], "findings": [], "unsupported": "", **values}


def test_the_shards_of_a_sample_share_no_test() -> None:
    recorder = load("suite_recorder")
    names = [f"test_{number}" for number in range(100)]
    shards = [recorder.choose_tests(names, 30, shard, 3) for shard in range(3)]
    assert [len(shard) for shard in shards] == [10, 10, 10]
    assert len(set.union(*shards)) == 30
    # The choice depends on the names alone, not on the order of collection.
    assert recorder.choose_tests(names[::-1], 30, 1, 3) == shards[1]


MARKED = """
def test_padding(request):
    assert request.node.get_closest_marker("warpcheck").kwargs == {"bounds": "allocation"}

def test_other(request):
    assert request.node.get_closest_marker("warpcheck") is None
"""


def test_markers_are_added_to_the_tests_of_a_suite(suites: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "test_markers.py").write_text(MARKED)
    marker = {"tests": "test_padding", "options": {"bounds": "allocation"}, "reason": "A view has padding."}
    records = tmp_path / "suite-000-00.jsonl"
    settings = {"records": str(records), "sample": 9, "shard": 0, "shards": 1, "finished": [], "markers": [marker]}
    environment = {**os.environ, "WARPCHECK_SUITE": json.dumps(settings), "PYTHONPATH": str(FOLDER)}
    command = [sys.executable, "-m", "pytest", "-p", "suite_recorder", "-p", "no:cacheprovider"]
    subprocess.run([*command, "test_markers.py"], cwd=tmp_path, env=environment, check=True, capture_output=True)

    suite = suites.Suite("suite", "owner/suite", "0", "suite", ["test_markers.py"], markers=[marker])
    row = suites.count_suite(suite, [tmp_path], [])
    assert row["markers"] == [{**marker, "count": 1}]
    assert suites.marker_table([row])[2:] == ['| suite | 1 | `warpcheck(bounds="allocation")` | A view has padding. |']


def test_outcomes_are_read_from_records(suites: ModuleType, tmp_path: Path) -> None:
    fault = {"kind": "race", "kernel": "k", "message": "a race", "file": "k.py", "line": 3, "expected": False}
    records: list[dict[str, Any]] = [{"event": "collected", "count": 9, "chosen": []}]
    for test, reports in {
        "passes": [report("passes", "passed")],
        "skips": [report("skips", "skipped", when="setup")],
        "races": [report("races", "failed", findings=[fault])],
        "catches a fault": [report("catches a fault", "passed", findings=[{**fault, "expected": True}])],
        "cannot": [report("cannot", "failed", unsupported="tex")],
        "fails at the end": [
            report("fails at the end", "passed"),
            report("fails at the end", "failed", when="teardown"),
        ],
    }.items():
        records += [{"event": "started", "test": test}, *reports, {"event": "finished", "test": test}]
    records += [
        {"event": "started", "test": "hangs"},
        {"event": "ended", "test": "hangs", "how": "timeout", "text": ""},
    ]
    records += [{"event": "started", "test": "is cut off"}, report("is cut off", "passed", when="setup")]
    path = tmp_path / "suite-000-00.jsonl"
    path.write_text("\n".join(map(json.dumps, records)) + '\n{"event": "sta')
    outcomes, job = suites.read_outcomes(path)
    assert {outcome.test: outcome.kind for outcome in outcomes} == {
        "passes": "passed",
        "skips": "skipped",
        "races": "fault",
        "catches a fault": "passed",
        "cannot": "unsupported",
        "fails at the end": "failed",
        "hangs": "timeout",
    }
    assert job["count"] == 9


def test_counting_replaces_only_the_rows_of_suites_that_ran(suites: ModuleType, tmp_path: Path) -> None:
    results = tmp_path / "results.json"
    old_row = {"tests": 2, "passed": 1}
    old_rows = [{"suite": "Triton", **old_row}, {"suite": "QuACK", **old_row}]
    results.write_text(json.dumps({"runs": ["old"], "suites": old_rows}))
    records = [
        {"event": "collected", "count": 1, "chosen": []},
        report("a", "passed"),
        {"event": "finished", "test": "a"},
    ]
    (tmp_path / "run.json").write_text('"new"')
    (tmp_path / "quack-000-00.jsonl").write_text("\n".join(map(json.dumps, records)))
    suites.count(argparse.Namespace(records=[tmp_path], results=results))
    document = json.loads(results.read_text())
    assert document["runs"] == ["old", "new"]
    assert [(row["suite"], row["tests"], row["passed"]) for row in document["suites"]] == [
        ("Triton", 2, 1),
        ("QuACK", 1, 1),
    ]


def test_the_page_matches_the_results(suites: ModuleType) -> None:
    document = json.loads((FOLDER / "suites.json").read_text())
    page = suites.PAGE.read_text()
    assert suites.renew_tables(page, document) == page
    assert {row["suite"] for row in document["suites"]} <= {suite.name for suite in suites.read_suites()}
    assert not [group for row in document["suites"] for group in row["groups"] if group["verdict"] == "not read"]
