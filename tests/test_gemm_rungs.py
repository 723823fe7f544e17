"""The rungs of week 22: each is right, and asks L2 for what its tile and its cluster say."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from kernelpath.show import gemm_rungs
from kernelpath.show.counting import count
from warpcheck import simulated_gpu
from warpcheck.target import SM_90A

M, N, K = 256, 512, 320  # five steps in rings of four stages; four or eight tiles of two blocks


@pytest.fixture
def hopper(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(simulated_gpu, "_target", SM_90A)
    few = SimpleNamespace(multi_processor_count=2)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device=None: few)


@pytest.mark.parametrize("name", gemm_rungs.RUNGS)
def test_a_rung_is_right_and_loads_each_tile_once(name: str, hopper: None) -> None:
    rung, rng = gemm_rungs.RUNGS[name], torch.Generator().manual_seed(0)
    a, b = (torch.randint(-4, 5, shape, generator=rng).bfloat16() for shape in ((M, K), (K, N)))
    totals = count(gemm_rungs.matmul, a, b, rung).totals
    assert torch.equal(gemm_rungs.matmul(a, b, rung), (a.float() @ b.float()).bfloat16())
    tiles = M // gemm_rungs.ROWS * (N // rung.columns)
    assert totals.bulk_load_bytes == tiles * 2 * K * (gemm_rungs.ROWS + rung.columns // rung.peers)
    assert totals.bulk_store_bytes == (2 * M * N if rung.staged else 0)
