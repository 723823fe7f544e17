"""Test the steps of every ladder: correct values, the counts that the notebooks state, and no early disclosure."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from kernelpath.course import registry
from kernelpath.course.ladder import LadderStep, read_ladder, step_files
from kernelpath.course.progress import EMPTY_RECORD, Progress
from kernelpath.show import cells, ladders, notebook
from warpcheck import simulated_gpu
from warpcheck.target import SM_90A

LADDERS = {item.name: read_ladder(item) for item in registry.exercises() if step_files(item)}


def steps_of(name: str) -> list[object]:
    return [pytest.param(step, id=step.name) for step in LADDERS[name].values()]


def test_each_ladder_is_numbered_from_one_and_every_step_states_its_idea() -> None:
    for steps in LADDERS.values():
        assert [step.number for step in steps.values()] == list(range(1, len(steps) + 1))
        assert all(step.title for step in steps.values())


@pytest.mark.parametrize("step", steps_of("transpose"))
@pytest.mark.parametrize(("width", "loads"), [(32, 4), (32, 16), (64, 8)])
def test_a_transpose_through_tiles_requests_nothing_twice(step: LadderStep, width: int, loads: int) -> None:
    x = torch.randn(64, 128)
    assert torch.equal(step(x, width, loads), x.t())
    requested = notebook.asked(step, x, width, loads)
    # Each element is loaded and stored once, 8 bytes. A column access moves a 32-byte sector for 4 bytes: (1 + 8) / 2.
    assert requested.bytes == 8 * x.numel() * (4.5 if step.name == "naive" else 1)
    conflicts = {"naive": 0, "tile": 16.5}.get(step.name, 1)
    assert requested.wavefronts == requested.least_wavefronts * conflicts


@pytest.mark.parametrize("step", steps_of("sgemm_registers"))
def test_each_step_of_sgemm_reads_shared_memory_less_often(step: LadderStep) -> None:
    """Wavefronts are stated per cycle of arithmetic, which is 128 multiply-adds."""
    a, b = torch.randn(2, 128, 128)
    torch.testing.assert_close(step(a, b), a @ b, atol=1e-4, rtol=1e-4)
    # ptxas reads four steps of A at once in `tile` and `column`.
    wavefronts = {"naive": 0, "tile": 6, "column": 2.5, "outputs": 2, "vectors": 0.75, "warp_tiles": 0.5}[step.name]
    assert notebook.count(step, a, b).totals.shared_load_wavefronts == wavefronts * 128**3 / 128


@pytest.mark.parametrize("width", [8, 32])
def test_a_tile_divides_the_traffic_of_a_gemm_by_its_width(width: int) -> None:
    a, b = torch.randn(2, 64, 64)
    tile = LADDERS["sgemm_registers"]["tile"]
    torch.testing.assert_close(tile(a, b, width), a @ b, atol=1e-4, rtol=1e-4)
    assert notebook.asked(tile, a, b, width).bytes == 8 * 64**3 // width + 4 * 64**2


def test_eight_by_eight_outputs_read_shared_memory_once_per_cycle() -> None:
    a, b = torch.randn(2, 128, 128)
    outputs = LADDERS["sgemm_registers"]["outputs"]
    torch.testing.assert_close(outputs(a, b, 128, 8), a @ b, atol=1e-4, rtol=1e-4)
    assert notebook.count(outputs, a, b, 128, 8).totals.shared_load_wavefronts == 128**3 / 128


@pytest.mark.parametrize("options", [{}, {"resident": 1}], ids=["", "one block per SM"])
@pytest.mark.parametrize("step", steps_of("reduction"))
def test_every_sum_is_right_and_loads_each_float_once(step: LadderStep, options: dict[str, int]) -> None:
    x = torch.rand(20_004)
    for _ in range(2):  # the second call finds what the first left behind
        torch.testing.assert_close(step(x, **options)[0], x.sum())
    requested = notebook.asked(lambda: step(x, **options))
    atomics = {"grid_stride": 8 if options else 64, "bytes_in_flight": 5, "last_block": 5}
    assert requested.same_address == atomics.get(step.name, 0)
    assert 4 * x.numel() <= requested.bytes < 1.1 * 4 * x.numel()


@pytest.mark.parametrize("constant", [True, False])
@pytest.mark.parametrize("step", steps_of("histogram"))
def test_lanes_conflict_in_shared_memory_unless_each_has_a_copy(step: LadderStep, constant: bool) -> None:
    x = torch.full((1 << 14,), 7, dtype=torch.uint8)
    assert torch.equal(step(x, constant), torch.bincount(x, minlength=256).int())
    accesses = notebook.count(step, x, constant).accesses
    atomics = [access for access in accesses if access.shared and access.same_address]
    wavefronts = 1 if step.name == "lane" or constant else 32  # ptxas has lanes that add 1 counted
    assert all(access.wavefronts == wavefronts * access.requests for access in atomics)


@pytest.mark.parametrize("step", steps_of("tensorop_gemm"))
def test_a_gemm_by_mma_sync_is_right_and_the_swizzle_removes_conflicts(step: LadderStep) -> None:
    rng = torch.Generator().manual_seed(0)
    a, b = (torch.randint(-3, 4, shape, generator=rng).bfloat16() for shape in ((128, 192), (192, 256)))
    assert torch.equal(step(a, b), (a.float() @ b.float()).bfloat16())
    instructions = 128 * 256 * 192 / (16 * 8 * 16)
    assert (notebook.asked(step, a, b).wavefronts / instructions > 8) == (step.number < 3)


@pytest.mark.parametrize("num_stages", [2, 4])
def test_a_gemm_is_right_with_other_numbers_of_stages(num_stages: int) -> None:
    rng = torch.Generator().manual_seed(0)
    a, b = (torch.randint(-3, 4, shape, generator=rng).bfloat16() for shape in ((128, 192), (192, 256)))
    kernel = LADDERS["tensorop_gemm"]["stages"]
    assert torch.equal(kernel(a, b, block_m=64, num_stages=num_stages), (a.float() @ b.float()).bfloat16())


def test_the_steps_in_triton_are_right() -> None:
    """The test needs its own process, because activating the frontend replaces Triton's driver permanently."""
    run = [sys.executable, "-m", "tests.triton_ladders"]
    process = subprocess.run(run, capture_output=True, text=True, cwd=Path(__file__).parents[1])
    assert process.returncode == 0, process.stderr[-2000:]
    assert process.stdout.split() == ["gelu_triton", "layernorm", "layernorm_backward", "flash_attention"]


@pytest.mark.parametrize("step", steps_of("persistent_gemm"))
def test_a_gemm_by_wgmma_is_right_and_loads_each_tile_once(step: LadderStep, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(simulated_gpu, "_target", SM_90A)
    two_sms = SimpleNamespace(multi_processor_count=2)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device=None: two_sms)
    # Five k-tiles in rings of four stages; four or eight tiles of two blocks.
    m, n, k = 256, 512, 320
    rng = torch.Generator().manual_seed(0)
    a, b = (torch.randint(-4, 5, shape, generator=rng).bfloat16() for shape in ((m, k), (k, n)))
    totals = notebook.count(step, a, b).totals
    assert torch.equal(step(a, b), (a.float() @ b.float()).bfloat16())
    block_m = 128
    block_n = 128 if step.number < 3 else 256
    cluster = 2 if step.name == "clusters" else 1
    tiles = m // block_m * (n // block_n)
    assert totals.bulk_load_bytes == tiles * 2 * k * (block_m + block_n // cluster)
    assert totals.bulk_store_bytes == (2 * m * n if step.number > 3 else 0)


def test_each_shown_step_is_a_difference_to_the_previous_step() -> None:
    shown_steps = list(ladders.rungs(LADDERS["transpose"].values()))
    assert [text for _, text in shown_steps[0].lines] == shown_steps[0].step.source.splitlines()
    padding = shown_steps[2].lines
    assert ("-", "    __shared__ float tile[WIDTH][WIDTH];") in padding
    assert ("+", "    __shared__ float tile[WIDTH][WIDTH + 1];") in padding
    assert len([sign for sign, _ in padding if sign in "+-"]) == 2


def test_steps_and_answers_are_withheld_until_a_pass(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("KERNELPATH_TREE", raising=False)
    monkeypatch.delenv("KERNELPATH_RUN_THROUGH", raising=False)
    item = registry.find("transpose")
    records: dict[str, object] = {}
    monkeypatch.setattr(Progress, "records", lambda self: records)
    notebook.steps("transpose")
    output = capsys.readouterr().out
    assert "4 steps lead to transpose: Naive, A tile in shared memory" in output
    assert "kp check transpose" in output
    assert "__shared__" not in output
    with pytest.raises(cells.Stop, match="after you have passed transpose"):
        notebook.after_pass("transpose")
    records[item.path_id] = EMPTY_RECORD
    with pytest.raises(cells.Stop):
        notebook.after_pass("transpose")
    records[item.path_id] = SimpleNamespace(passed="2026-01-01")
    notebook.after_pass("transpose")
    notebook.steps("transpose")
    assert "+     __shared__ float tile[WIDTH][WIDTH + 1];" in capsys.readouterr().out


def test_notebooks_print_a_ladder_after_the_check() -> None:
    for name in LADDERS:
        path = registry.find(name).notebook
        assert path is not None
        sources = ["".join(cell["source"]) for cell in json.loads(path.read_text("utf-8"))["cells"]]
        (ladder_cell,) = [number for number, source in enumerate(sources) if f'notebook.steps("{name}")' in source]
        (check_cell,) = [number for number, source in enumerate(sources) if f'notebook.check("{name}")' in source]
        assert check_cell < ladder_cell
