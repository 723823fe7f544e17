"""What ranks exchanged, as rows of a table: for each algorithm its largest case."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

from kernelpath import words
from kernelpath.verdict import NetworkTraffic

__all__ = ["INTRODUCTION", "algorithm", "headings", "largest", "rows"]

INTRODUCTION = "the rank that sends most, counted; the time of the call, on simulated links:"

_T = TypeVar("_T")


def algorithm(case: Mapping[str, Any]) -> tuple[str, ...]:
    """The parts of a case that choose between algorithms: its words, other than the name of a data type."""
    return tuple(value for name, value in case.items() if isinstance(value, str) and name != "dtype")


def largest(cases: Iterable[tuple[Mapping[str, Any], float, _T]]) -> list[_T]:
    """For each algorithm the value of its largest case, in the order in which the algorithms appear.

    cases: a case, its size and its value.
    """
    chosen: dict[tuple[str, ...], tuple[float, _T]] = {}
    for case, size, value in cases:
        key = algorithm(case)
        if key not in chosen or size > chosen[key][0]:
            chosen[key] = (size, value)
    return [value for _, value in chosen.values()]


def headings(traffic: Sequence[NetworkTraffic]) -> list[str]:
    """The headings of the table's columns."""
    hidden = any(row.hidden is not None for row in traffic)
    return ["case", "messages", "bytes", "time", *(["behind compute"] if hidden else [])]


def rows(traffic: Sequence[NetworkTraffic]) -> list[list[str]]:
    """The cells of the table, one row for the largest case of each algorithm."""
    shown = largest((row.case, row.bytes, row) for row in traffic)
    return [
        [
            words.case(row.case),
            f"{row.messages:,}",
            f"{row.bytes:,}",
            words.seconds(row.seconds),
            *([] if row.hidden is None else [words.share(row.hidden)]),
        ]
        for row in shown
    ]
