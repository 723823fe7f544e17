"""The glossary has the words that reports, pictures and faults use."""

from __future__ import annotations

import re
from dataclasses import fields

import pytest

from kernelpath.course import registry
from kernelpath.line_counters import LineInstructions, LineTraffic
from kernelpath.show import book, seen, source, view, weeks
from kernelpath.verdict import Interval, Measurement, Verdict
from warpcheck.counters import LineCounters
from warpcheck.errors import FaultKind

# Labels that are plain English or name what stands beside them.
SAID_BY_ITSELF = {"timed", "yours", "GPU", "line", "file", "access", "memory"}

MEASURED = Measurement(
    {"n": 1},
    1e-3,
    2e-3,
    1e-3,
    Interval(2, 2, 2),
    Interval(1, 1, 1),
    8,
    0,
    1e-3,
    {"copy": 1e12, "read": 1e12},
    24,
    "paired rounds",
)


def labels() -> set[str]:
    """The names beside the numbers of a report, a picture and the tables of counters."""
    rows = {name for name, _ in view.measurement(MEASURED, "NVIDIA H200")}
    counted = {word for kind in (LineTraffic, LineInstructions) for one in fields(kind) for word in one.name.split("_")}
    summed = {word for one in fields(LineCounters) for word in one.name.split("_")}
    columns = {word for column in source.COLUMNS for word in column.split()}
    return (rows | {MEASURED.method} | counted | summed | columns | {"active lanes"}) - SAID_BY_ITSELF


@pytest.fixture(scope="module")
def glossary() -> str:
    entries = book.glossary(registry.root())
    return " ".join(f"{entry.term} {entry.text}" for entry in entries).casefold()


@pytest.mark.parametrize("label", sorted(labels()))
def test_a_label_is_explained(label: str, glossary: str) -> None:
    assert re.search(rf"\b{label.casefold()}", " ".join(glossary.split())), f"explain {label!r}"


@pytest.mark.parametrize("kind", FaultKind)
def test_a_fault_is_explained(kind: FaultKind, glossary: str) -> None:
    assert f"*{kind.value}*" in glossary


@pytest.mark.parametrize("verdict", Verdict)
def test_a_verdict_is_explained(verdict: Verdict, glossary: str) -> None:
    assert f"`{verdict.value.casefold()}` | {verdict.meaning.casefold()}" in glossary


def test_metrics_are_spelled_as_ncu_spells_them(glossary: str) -> None:
    """Unit, counter and roll-up: what `ncu --query-metrics` lists, with a suffix."""
    metrics = re.findall(r"`((?:l1tex|lts|dram|sm|smsp|launch)__\w+(?:\.\w+)*)`", glossary)
    assert len(metrics) > 15
    for metric in metrics:
        rolled_up = r"\.(sum|avg)(\.(per_second|per_cycle_active|pct_of_peak_sustained_active))?|\.(ratio|pct)"
        assert metric.startswith("launch__") or re.search(rf"({rolled_up})$", metric), metric


def test_every_term_is_shown_by_the_course() -> None:
    """Most by a picture, the others by what a cell printed, measured or graded."""
    entries, course = book.glossary(registry.root()), weeks.weeks(registry.root())
    places = seen.find_examples(entries, course)
    assert [entry.term for entry in entries if entry.anchor not in places] == []
    assert sum(bool(place.png) for place in places.values()) > 0.9 * len(entries)
    chosen = {entry.term: places[entry.anchor] for entry in entries if entry.term in seen.FIXED_PLACES}
    assert {term: (place.week.number, place.passage.number) for term, place in chosen.items()} == seen.FIXED_PLACES
    told = {term: (places[term].where, places[term].how) for term in ("wave", "throughput")}
    assert told == {
        "wave": ("Week 11 · Matrix multiplication in Triton: 3 · The order of the programs", "a picture"),
        "throughput": ("Week 5 · Profiling: 5 · The first page of Nsight Compute", "a table"),
    }
