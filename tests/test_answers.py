"""The answers that notebooks do not measure, against values worked out by hand."""

from __future__ import annotations

import pytest

from kernelpath.show import answers


def test_littles_law() -> None:
    assert answers.threads_in_flight(4e12, 0.5e-6, 4) == pytest.approx(500_000)
    assert answers.bytes_per_thread(4e12, 0.5e-6, 250_000) == pytest.approx(4)


def test_a_product_is_compute_bound_from_the_ridge_on() -> None:
    assert answers.product_intensity(12) == 2
    assert answers.compute_bound_from(2) == 12
    assert answers.compute_bound_from(2.01) == 13


def test_what_tiles_and_outputs_per_thread_save() -> None:
    assert answers.product_bytes(64, 8) == 2 * 64 * 64 * 8 * 4 + 64 * 64 * 4  # a row of 8 tiles, twice, per output
    assert [answers.reads_per_multiply_add(side) for side in (1, 4, 8)] == [2, 0.5, 0.25]
    assert answers.share_of_peak(2) == 1 / 8


@pytest.mark.parametrize(("n", "work"), [(32, 1), (16, 8), (33, (64 / 33) ** 3)])
def test_whole_tiles_do_more_work_than_there_is(n: int, work: float) -> None:
    assert answers.padded_work(n, 32) == pytest.approx(work)


@pytest.mark.parametrize(("columns", "share"), [(1, 0), (768, 0.25), (1024, 0), (1025, 1023 / 2048)])
def test_a_block_is_the_next_power_of_two(columns: int, share: float) -> None:
    assert answers.masked_share(columns) == pytest.approx(share)


def test_a_row_is_dealt_out_to_all_threads() -> None:
    assert answers.values_per_thread(1024, 4) == 8


def test_fusing_pays_until_computing_again_costs_what_it_saves() -> None:
    limit = answers.break_even(3, 4e12, 60e12)
    assert limit == pytest.approx(120)
    assert answers.fused_gain(limit, 3, 4e12, 60e12) == pytest.approx(1)
    assert answers.fused_gain(limit / 2, 3, 4e12, 60e12) > 1 > answers.fused_gain(limit * 2, 3, 4e12, 60e12)
    assert answers.speedup(21, 4) == 5.25


def test_tiles_of_a_wave() -> None:
    assert answers.order_of_tiles(3, 2, group=2) == [0, 2, 1, 3, 4, 5]  # the last group has one row
    assert answers.order_of_tiles(2, 3, group=1) == list(range(6))
    assert answers.panels([0, 2, 1], across=2) == (2, 2)
    assert answers.tail_share(132, 132) == 1
    assert answers.tail_share(133, 132) == pytest.approx(133 / 264)
