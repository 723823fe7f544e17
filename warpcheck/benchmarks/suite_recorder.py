"""A plugin of pytest that chooses a part of a suite's tests and records each outcome as soon as it is known.

`suites.py` loads this module with `-p suite_recorder`. The environment variable WARPCHECK_SUITE holds its settings as
JSON: the file of records, the number of tests to choose, the shard, the tests that are left out, and the markers
`warpcheck` that tests get.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from typing import Any

import pytest

MAX_TEXT = 12_000
"""The number of characters that are kept of a failure. Its end has the error and warpcheck's part."""

_settings: dict[str, Any] = json.loads(os.environ.get("WARPCHECK_SUITE", "{}"))


def _record(**values: Any) -> None:
    with open(_settings["records"], "a") as file:  # opened for each record, so that a crash loses nothing
        file.write(json.dumps({"time": time.time(), **values}) + "\n")


def choose_tests(names: list[str], sample: int, shard: int, shards: int) -> set[str]:
    """Return one shard's part of a sample that depends on the names of the tests alone.

    The order of a hash spreads the sample over all parameters, and makes it the same in every run and on every machine.
    """
    ranked = sorted(names, key=lambda name: hashlib.sha256(name.encode()).digest())
    return set(ranked[:sample][shard::shards])


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    names = [item.nodeid for item in items]
    chosen = choose_tests(names, _settings["sample"], _settings["shard"], _settings["shards"])
    chosen -= set(_settings["finished"])
    deselected = [item for item in items if item.nodeid not in chosen]
    if deselected:
        config.hook.pytest_deselected(items=deselected)
    items[:] = [item for item in items if item.nodeid in chosen]
    for marker in _settings["markers"]:
        for item in items:
            if marker["tests"] in item.nodeid:
                item.add_marker(pytest.mark.warpcheck(**marker["options"]))
    _record(event="collected", count=len(names), chosen=[item.nodeid for item in items])


def pytest_collectreport(report: pytest.CollectReport) -> None:
    if report.failed:
        _record(event="collection failed", test=report.nodeid, text=report.longreprtext[-MAX_TEXT:])


def pytest_runtest_logstart(nodeid: str) -> None:
    _record(event="started", test=nodeid)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    attached = getattr(report, "warpcheck", {})
    text = report.longreprtext if report.failed or report.skipped else ""
    _record(
        event="report",
        test=report.nodeid,
        when=report.when,
        outcome=report.outcome,
        xfail=hasattr(report, "wasxfail"),
        seconds=round(report.duration, 3),
        text=text[-MAX_TEXT:],
        launches=attached.get("counts", {}).get("launches", 0),
        kernels=attached.get("counts", {}).get("kernels", []),
        findings=attached.get("findings", []),
        unsupported=attached.get("not_checked", ""),
    )


def pytest_runtest_logfinish(nodeid: str) -> None:
    _record(event="finished", test=nodeid)
