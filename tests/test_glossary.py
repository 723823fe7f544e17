"""Test that the glossary explains the terms of reports, pictures, and faults."""

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

# Labels that are plain English or that name an adjacent value.
SELF_EXPLANATORY = {"timed", "yours", "GPU", "line", "file", "access", "memory"}

MEASUREMENT = Measurement(
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
    """Return the labels of the numbers in a report, in a picture, and in the tables of counters."""
    rows = {name for name, _ in view.measurement(MEASUREMENT, "NVIDIA H200")}
    line_fields = {
        word for kind in (LineTraffic, LineInstructions) for field in fields(kind) for word in field.name.split("_")
    }
    counter_fields = {word for field in fields(LineCounters) for word in field.name.split("_")}
    columns = {word for column in source.COLUMNS for word in column.split()}
    return (rows | {MEASUREMENT.method} | line_fields | counter_fields | columns | {"active lanes"}) - SELF_EXPLANATORY


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


def test_metrics_have_the_spelling_of_ncu(glossary: str) -> None:
    """A metric consists of unit, counter and roll-up: a name from `ncu --query-metrics` with a suffix."""
    metrics = re.findall(r"`((?:l1tex|lts|dram|sm|smsp|launch)__\w+(?:\.\w+)*)`", glossary)
    assert len(metrics) > 15
    for metric in metrics:
        rolled_up = r"\.(sum|avg)(\.(per_second|per_cycle_active|pct_of_peak_sustained_active))?|\.(ratio|pct)"
        assert metric.startswith("launch__") or re.search(rf"({rolled_up})$", metric), metric


def test_every_term_has_an_example_in_the_course() -> None:
    """Most terms have a picture as their example; the rest have printed, measured, or graded output of a cell."""
    entries = book.glossary(registry.root())
    course = weeks.weeks(registry.root())
    places = seen.find_examples(entries, course)
    assert [entry.term for entry in entries if entry.anchor not in places] == []
    assert sum(bool(place.png) for place in places.values()) > 0.9 * len(entries)
    chosen = {entry.term: places[entry.anchor] for entry in entries if entry.term in seen.FIXED_PLACES}
    assert {term: (place.week.number, place.passage.number) for term, place in chosen.items()} == seen.FIXED_PLACES
    places_of_terms = {term: (places[term].where, places[term].how) for term in ("wave", "throughput")}
    assert places_of_terms == {
        "wave": ("Week 11 · Matrix multiplication in Triton: 3 · The order of the programs", "a picture"),
        "throughput": ("Week 5 · Profiling: 5 · The first page of Nsight Compute", "a table"),
    }
