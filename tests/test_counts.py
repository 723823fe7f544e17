"""Test the comparison of kernels by their counters."""

from __future__ import annotations

import pytest
from rich.console import Console

from kernelpath.line_counters import CallCounts, LineInstructions, LineTraffic
from kernelpath.show import view

REFERENCE = CallCounts(elements=1000, requests=100, wavefronts=50, instructions=2000, bytes=8000)


def test_the_counts_of_all_lines_are_summed() -> None:
    traffic = [
        LineTraffic("a.cu", 3, "load from", "x", requests=10, sectors=40),
        LineTraffic("a.cu", 4, "store to", "tile", requests=10, wavefronts=20),
    ]
    instructions = [LineInstructions("a.cu", line, 100, 3200) for line in (3, 4)]
    counts = CallCounts.of_lines(320, traffic, instructions)
    assert counts == CallCounts(elements=320, requests=20, wavefronts=20, instructions=200, bytes=1280)


@pytest.mark.parametrize(
    ("yours", "expected_advice"),
    [
        (CallCounts(1000, 100, 50, 2000, 24_000), "Yours needs 3× the bytes of the reference"),
        (CallCounts(1000, 400, 50, 2500, 8000), "Yours needs 4× the requests of the reference: wider accesses"),
        (CallCounts(1000, 100, 75, 2000, 8000), "Yours needs 1.5× the wavefronts of the reference"),
        (CallCounts(2000, 200, 100, 6000, 16_000), "Yours needs 1.5× the instructions of the reference"),
        (CallCounts(1000, 105, 50, 1500, 8000), "nothing left to gain"),
    ],
)
def test_the_largest_difference_is_described(yours: CallCounts, expected_advice: str) -> None:
    assert expected_advice in view.describe_gain(yours, REFERENCE)


def test_a_counter_of_zero_in_the_reference_gives_no_ratio() -> None:
    reference = CallCounts(elements=1000, requests=100, wavefronts=0, instructions=2000, bytes=8000)
    assert "nothing left to gain" in view.describe_gain(REFERENCE, reference)


def test_the_table_has_a_column_for_each_kernel() -> None:
    console = Console(width=100, record=True)
    console.print(view.counts_table({"yours": REFERENCE, "reference": REFERENCE}))
    text = console.export_text()
    assert "bytes per element" in text
    assert text.splitlines()[1].split()[-2:] == ["8", "8"]
