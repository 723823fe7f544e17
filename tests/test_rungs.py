"""The kernels that notebooks time but do not print are right, and have the traffic and conflicts that the text says."""

from __future__ import annotations

import pytest
import torch

from kernelpath.show import notebook, reductions, rungs
from kernelpath.show.counting import Kernel


@pytest.mark.parametrize("down", [False, True])
@pytest.mark.parametrize(("width", "pitch", "loads"), [(32, 32, 4), (32, 33, 16), (64, 65, 8)])
def test_tiles_transpose_a_matrix_and_ask_for_nothing_twice(width: int, pitch: int, loads: int, down: bool) -> None:
    x = torch.randn(64, 128)
    assert torch.equal(rungs.transpose(x, width, pitch, loads, down), x.t())
    asked = notebook.asked(rungs.transpose, x, width, pitch, loads, down)
    assert asked.bytes == 8 * x.numel()
    assert asked.wavefronts == asked.least_wavefronts * (16.5 if pitch == 32 else 1)


@pytest.mark.parametrize("width", [8, 32])
def test_a_tile_divides_the_traffic_of_a_product_by_its_width(width: int) -> None:
    a, b = torch.randn(2, 64, 64)
    torch.testing.assert_close(rungs.tile(a, b, width), a @ b, atol=1e-4, rtol=1e-4)
    assert notebook.asked(rungs.tile, a, b, width).bytes == 8 * 64**3 // width + 4 * 64**2


def test_four_by_four_outputs_read_shared_memory_once_for_two_multiply_adds() -> None:
    a, b = torch.randn(2, 128, 128)
    torch.testing.assert_close(rungs.outputs(a, b), a @ b, atol=1e-4, rtol=1e-4)
    totals = notebook.count(rungs.outputs, a, b).totals
    assert totals.shared_load_wavefronts == 0.5 * 128**3 / 32


@pytest.mark.parametrize("finish", reductions.FINISHES)
@pytest.mark.parametrize(("width", "loads", "resident"), [(1, 1, 8), (4, 4, 1)])
def test_every_sum_is_right_and_loads_each_float_once(width: int, loads: int, resident: int, finish: str) -> None:
    x = torch.rand(20_004)
    for _ in range(2):  # the second call finds what the first left behind
        torch.testing.assert_close(reductions.vector_sum(x, width, loads, finish, resident)[0], x.sum())
    asked = notebook.asked(reductions.vector_sum, x, width, loads, finish, resident)
    blocks = min(-(-x.numel() // (256 * width * loads)), 8 * resident)
    assert asked.same_address == (blocks if finish in ("atomics", "last block") else 0)
    assert 4 * x.numel() <= asked.bytes < 1.1 * 4 * x.numel()


def test_lanes_meet_in_shared_memory_unless_each_has_a_copy() -> None:
    x = torch.full((1 << 14,), 7, dtype=torch.uint8)
    counts = torch.bincount(x, minlength=256).int()
    for owner in reductions.OWNERS:
        for constant in (True, False):
            assert torch.equal(reductions.histogram(x, owner, constant), counts)
            accesses = notebook.count(reductions.histogram, x, owner, constant).accesses
            atomics = [one for one in accesses if one.shared and one.same_address]
            wavefronts = 1 if owner == "lane" or constant else 32  # ptxas has lanes that add 1 counted
            assert all(one.wavefronts == wavefronts * one.requests for one in atomics)


@pytest.mark.parametrize(
    ("kernel", "wavefronts"),
    [
        (rungs.column, 2.5),  # ptxas reads four steps of A at once
        (lambda a, b: rungs.outputs(a, b, 128, 8), 1.0),
        (rungs.vectors, 0.75),
        (lambda a, b: rungs.vectors(a, b, warp_tiles=True), 0.5),
    ],
    ids=["column", "8 x 8", "vectors", "warp tiles"],
)
def test_each_rung_reads_shared_memory_less_often(kernel: Kernel, wavefronts: float) -> None:
    """In wavefronts over the cycles that 128 multiply-adds each take."""
    a, b = torch.randn(2, 128, 128)
    torch.testing.assert_close(kernel(a, b), a @ b, atol=1e-4, rtol=1e-4)
    assert notebook.count(kernel, a, b).totals.shared_load_wavefronts == wavefronts * 128**3 / 128
