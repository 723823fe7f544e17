"""The counters that ncu read on a GPU, replayed: requests, sectors and wavefronts of the same launches."""

from __future__ import annotations

import json

import pytest
from patterns import PATTERNS
from test_counters import launch

from kernelpath import registry

RECORDED = [
    (path.stem, json.loads(path.read_text())["counters"])
    for path in sorted((registry.root() / "results").glob("*_hardware.json"))
]


def test_a_gpu_has_been_recorded():
    assert RECORDED
    assert all(set(counters) == {pattern.name for pattern in PATTERNS} for _, counters in RECORDED)


@pytest.mark.parametrize("pattern", PATTERNS, ids=lambda pattern: pattern.name)
@pytest.mark.parametrize(("gpu", "counters"), RECORDED, ids=[gpu for gpu, _ in RECORDED])
def test_counts_what_the_hardware_counts(gpu, counters, pattern):
    totals = launch(pattern).totals
    assert {name: getattr(totals, name) for name in counters[pattern.name]} == counters[pattern.name]
