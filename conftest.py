"""Which tests of the course and of warpcheck run, in which order, and which of them share a process."""

from __future__ import annotations

import gc

import pytest

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
    """Mark each test with its class and its group, order the classes, and drop tests that were not asked for."""
    for item in items:
        item.add_marker(selection.class_of(item.path))
        if selection.is_weekly(item.path):
            item.add_marker(pytest.mark.weekly)
        item.add_marker(pytest.mark.xdist_group(selection.group_of(item.path, item.name)))
    items.sort(key=lambda item: selection.CLASSES.index(selection.class_of(item.path)))
    number, count = config.getoption("shard")
    chosen = [item for item in items if selection.shard_of(selection.group_of(item.path, item.name), count) == number]
    if revision := config.getoption("changed"):
        changed = selection.changed_paths(config.rootpath, revision)
        chosen = [item for item in chosen if selection.concerns(item.path, item.name, changed)]
    if len(chosen) < len(items):
        config.hook.pytest_deselected(items=set(items) - set(chosen))
        items[:] = chosen


@pytest.hookimpl(tryfirst=True)
def pytest_collection() -> None:
    """Six thousand tests and the modules that they import are no garbage: looking for some took half of collecting."""
    gc.disable()


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """Nor are they any later: each search through all of them took half a second."""
    gc.freeze()
    gc.enable()
