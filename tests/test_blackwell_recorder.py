"""Test benchmarks/blackwell.py on the PTX machine: it must find the machine's assumptions, and differences to them."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

sys.path.insert(0, "benchmarks")

import blackwell

CASES = {blackwell.name_of(case): case for case in blackwell.scaled.CASES}
NVFP4 = CASES["mxf4nvf4.block_scale.block16 e2m1 e2m1 ue8m0"]


@pytest.mark.parametrize(("name", "bits"), [("mxf8f6f4.block_scale e4m3 e5m2 ue8m0", [25]), ("f8f6f4 e2m1 e4m3", [25])])
def test_the_alignment_of_sums_is_found(name: str, bits: list[int]) -> None:
    recorded = blackwell.record_scaled_sums(blackwell.run_on_machine, replace(CASES[name], n=32))
    assert recorded == {"differing": 0, "elements": 128 * 32, "alignments": bits}


@pytest.mark.parametrize("of_b", [False, True])
def test_the_place_of_each_scale_factor_is_found(of_b: bool) -> None:
    rows = 64 if of_b else 128
    places = blackwell.record_scale_places(blackwell.run_on_machine, replace(NVFP4, n=64), of_b)
    assert places == [[row % 32, row // 32, block] for block in range(4) for row in range(rows)]


def test_an_accumulator_in_float16_clears_upper_halves() -> None:
    recorded = blackwell.record_plain_sums(blackwell.run_on_machine, "f16", "f16")
    assert recorded == {"differing": 0, "elements": 128 * 32, "upper halves": [0]}


def test_differences_are_counted() -> None:
    """A GPU that rounds its sums differently must be reported, here imitated by changed outputs."""

    def run(text: str, arrays: Sequence[Any], numbers: Sequence[int]) -> None:
        blackwell.run_on_machine(text, arrays, numbers)
        d = arrays[1]
        if d.dtype == np.float32:
            d[:, 0] = np.nextafter(d[:, 0], np.float32(np.inf))
        else:
            d[0, 0] ^= 1

    recorded = blackwell.record_scaled_sums(run, replace(NVFP4, n=16))
    assert recorded["differing"] == 128
    assert recorded["alignments"] == []
    assert not blackwell.record_copy(run, "128x128b", 0)["equal"]
    assert blackwell.record_copy(blackwell.run_on_machine, "128x128b", 4) == {"equal": True}


def test_a_shift_moves_each_lane_to_the_one_before_it() -> None:
    assert blackwell.record_shift(blackwell.run_on_machine) == [*range(1, 32), 31]
