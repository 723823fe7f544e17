"""Test the answers that notebooks do not measure against values computed by hand."""

from __future__ import annotations

import pytest

from kernelpath.show import answers


def test_littles_law() -> None:
    assert answers.threads_in_flight(4e12, 0.5e-6, 4) == pytest.approx(500_000)
    assert answers.bytes_per_thread(4e12, 0.5e-6, 250_000) == pytest.approx(4)


def test_a_gemm_is_compute_bound_from_the_ridge_on() -> None:
    assert answers.product_intensity(12) == 2
    assert answers.compute_bound_from(2) == 12
    assert answers.compute_bound_from(2.01) == 13


def test_savings_of_tiles_and_outputs_per_thread() -> None:
    assert answers.product_bytes(64, 8) == 2 * 64 * 64 * 8 * 4 + 64 * 64 * 4  # a row of 8 tiles, twice, per output
    assert [answers.reads_per_multiply_add(side) for side in (1, 4, 8)] == [2, 0.5, 0.25]
    assert answers.share_of_peak(2) == 1 / 8


@pytest.mark.parametrize(("n", "work"), [(32, 1), (16, 8), (33, (64 / 33) ** 3)])
def test_partial_tiles_cost_the_work_of_full_tiles(n: int, work: float) -> None:
    assert answers.padded_work(n, 32) == pytest.approx(work)


@pytest.mark.parametrize(("columns", "share"), [(1, 0), (768, 0.25), (1024, 0), (1025, 1023 / 2048)])
def test_a_block_is_the_next_power_of_two(columns: int, share: float) -> None:
    assert answers.masked_share(columns) == pytest.approx(share)


def test_a_row_is_distributed_to_all_threads() -> None:
    assert answers.values_per_thread(1024, 4) == 8


def test_fusion_pays_until_recomputation_costs_more() -> None:
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


def test_amdahls_law_of_a_training_step() -> None:
    assert answers.time_after(100, 12, 4) == 91


def test_histograms_in_shared_memory() -> None:
    assert answers.tree_barriers(256) == 9  # one after the loads, and one for each of 128, 64, …, 1
    assert answers.share_of_additions(264, 256, 2**28) == pytest.approx(1 / 3972, rel=1e-3)
    assert answers.counters_kib(65_536, 32) == 256
    assert [answers.blocks_of_counters(65_536, bits) for bits in (32, 16, 8)] == [0, 1, 3]


def test_stages_hide_a_latency_behind_the_arithmetic_of_tiles() -> None:
    assert answers.tile_cycles(128, 256, 8) == 2048
    assert answers.mma_cycles(128, 256, 64) == 1536
    assert answers.stages_for(1600, 2048, in_use=1) == 2
    assert answers.stages_for(1600, 1000, in_use=1) == 3
    assert answers.stages_that_fit(128, 256, 64) == 4
    assert answers.fresh_stages(4, 3) == answers.fresh_stages(3, 4) == 3
    assert answers.pipeline_place(7, stages=5) == (2, 1)
    assert answers.turns_waited(4) == 3


def test_tensor_cores() -> None:
    assert answers.mma_over_ffma() == 64
    assert answers.mma_busy(32, 32) == pytest.approx(4 / 3)
    assert answers.mma_busy(64, 64) == pytest.approx(2 / 3)
    assert answers.products_in_int32(128) == 131_071
    assert answers.gemm_intensity(4096, 1) == 2 * 4096 / 4
    ratio, share = answers.promotion(128)
    assert (ratio, share) == (128, 0.2)
    assert answers.ldmatrix_bytes(64, warps=4) == 2 * 5 * 64 * 64
    assert [answers.accumulator_place(register) for register in (0, 13)] == [(0, 0), (3, 1)]


def test_bytes_and_edges_of_tiles() -> None:
    assert answers.fewer_accesses(4) == 4
    assert answers.balanced_side(2e12, 4e12) == 4
    assert answers.padded_stages_kib(4, 8, 128, 256, padding=4) == 48.5
    assert answers.useful_share(128, 128, 16) == 1
    assert answers.useful_share(130, 64, 130) == pytest.approx(130**2 / 192**2)


def test_attention() -> None:
    assert answers.attention_trips(4096, 128) == 32
    assert answers.scores_terabytes(32, 262_144) == pytest.approx(4.398, rel=1e-3)
    assert answers.attention_cycles(64, 128, 128) == 1024
    assert answers.exponential_cycles(64, 128) == 512
    assert answers.causal_tiles(4, 2) == (12 / 10, 2 / 3)


def test_bytes_of_caches_and_logits() -> None:
    assert answers.cache_bytes(heads=128, key=192, value=128) == 81_920
    assert answers.tokens_with_equal_bytes(4096, weight=2, logit=4) == 2048
    assert answers.chunked_loss_bytes(16, 1000) == 192_000
