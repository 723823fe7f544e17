"""Which tests of the course and of warpcheck run, in which order, and which of them share a process."""

from __future__ import annotations

import gc
import json
import math
from pathlib import Path
from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling

from machine import hypothesis_profiles as hypothesis_profiles  # loads the profile
from tests import selection


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--shard", type=selection.parse_shard, default=(1, 1), metavar="K/N", help="run only part K of N of the tests"
    )
    parser.addoption(
        "--changed", metavar="REVISION", help="run only tests that concern what differs from this Git revision"
    )


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark each test with its class, sort the groups by their seconds, and drop tests that were not asked for."""
    groups = {item: selection.group_of(item.path, item.name) for item in items}
    for item in items:
        item.add_marker(selection.class_of(item.path))
        if selection.is_weekly(item.path):
            item.add_marker(pytest.mark.weekly)
    # The groups that take longest come first, so that no process ends long before the others. Nobody knows how long new
    # ones take.
    seconds = json.loads(selection.GROUP_SECONDS.read_text())
    items.sort(key=lambda item: -seconds.get(groups[item], math.inf))
    number, count = config.getoption("shard")
    chosen = [item for item in items if selection.shard_of(groups[item], count) == number]
    if revision := config.getoption("changed"):
        changed = selection.changed_paths(config.rootpath, revision)
        chosen = [item for item in chosen if selection.concerns(item.path, item.name, changed)]
    if len(chosen) < len(items):
        config.hook.pytest_deselected(items=set(items) - set(chosen))
        items[:] = chosen


class GroupScheduling(LoadScopeScheduling):  # type: ignore[misc]
    """Gives each group of tests to one process of pytest-xdist.

    Its own scheduler for groups reads them from the identifiers of tests. Since pytest 9.2, pytest-xdist 3.8 cannot
    write them there, and gives the tests of one group to all processes.
    """

    def _split_scope(self, nodeid: str) -> str:
        path, _, name = nodeid.partition("::")
        return selection.group_of(Path(path), name)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> GroupScheduling:
    return GroupScheduling(config, log)


@pytest.hookimpl(tryfirst=True)
def pytest_collection() -> None:
    """Six thousand tests and the modules that they import are no garbage: looking for some took half of collecting."""
    gc.disable()


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """Nor are they any later: each search through all of them took half a second."""
    gc.freeze()
    gc.enable()
