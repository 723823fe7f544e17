"""Format the traffic of ranks as rows of a table, for each algorithm its largest case."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

from kernelpath import words
from kernelpath.verdict import NetworkTraffic

__all__ = ["INTRODUCTION", "algorithm", "headings", "largest", "rows"]

INTRODUCTION = "the rank that sends most, counted; the time of the call, on simulated links:"

_T = TypeVar("_T")


def algorithm(case: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the parts of a case that choose between algorithms: its strings, other than the data type."""
    return tuple(value for name, value in case.items() if isinstance(value, str) and name != "dtype")


def largest(cases: Iterable[tuple[Mapping[str, Any], float, _T]]) -> list[_T]:
    """Return the value of each algorithm's largest case, in the order in which the algorithms appear.

    Args:
        cases: Triples of a case, its size and its value.
    """
    largest_by_algorithm: dict[tuple[str, ...], tuple[float, _T]] = {}
    for case, size, value in cases:
        key = algorithm(case)
        if key not in largest_by_algorithm or size > largest_by_algorithm[key][0]:
            largest_by_algorithm[key] = (size, value)
    return [value for _, value in largest_by_algorithm.values()]


def headings(traffic: Sequence[NetworkTraffic]) -> list[str]:
    """Return the headings of the table's columns."""
    hidden = any(row.hidden is not None for row in traffic)
    return ["case", "messages", "bytes", "time", *(["behind compute"] if hidden else [])]


def rows(traffic: Sequence[NetworkTraffic]) -> list[list[str]]:
    """Return the cells of the table, a row for the largest case of each algorithm."""
    largest_rows = largest((row.case, row.bytes, row) for row in traffic)
    return [
        [
            words.case(row.case),
            f"{row.messages:,}",
            f"{row.bytes:,}",
            words.seconds(row.seconds),
            *([] if row.hidden is None else [words.share(row.hidden)]),
        ]
        for row in largest_rows
    ]
