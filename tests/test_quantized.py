"""Quantized products: what a tensor core's sum is, how far one is off, and inputs of 8 bits."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from kernelpath.course.inputs import EXTREME, InputMode, generate_inputs
from kernelpath.course.problems import fp8_matmul, int8_matmul
from kernelpath.course.registry import find, load
from kernelpath.grading import compare
from kernelpath.work import tensors

MACHINE = Path(__file__).parents[1] / "warpcheck" / "tests" / "machine"
RECORDED = json.loads((MACHINE / "recorded_wgmma.json").read_text())["sums"]
ONE_LEVEL = 1 << 30


LEAST = {"e4m3": -6, "e5m2": -14}
DTYPES = {"e4m3": torch.float8_e4m3fn, "e5m2": torch.float8_e5m2}


@pytest.mark.parametrize(("of_a", "of_b"), [("e4m3", "e5m2"), ("e5m2", "e4m3")])
def test_the_model_of_a_tensor_core_gives_an_h200s_bits(of_a: str, of_b: str) -> None:
    """Of a wgmma with operands that differ by many powers of two."""

    def recorded(name: str, dtype: torch.dtype, rows: int) -> torch.Tensor:
        raw = np.frombuffer(bytes.fromhex(RECORDED[f"{of_a} {of_b} f32"][name]), np.uint8).copy()
        return torch.from_numpy(raw).view(dtype).view(rows, -1)

    a, b = recorded("a", DTYPES[of_a], 16), recorded("b", DTYPES[of_b], 8)
    total, expected = recorded("d", torch.float32, 16), recorded("gpu", torch.float32, 16)
    found = fp8_matmul.tensor_core_sum(total.double(), a.double(), b.double(), (LEAST[of_a], LEAST[of_b]))
    assert torch.equal(found.float(), expected)


def off(k: int, promote: int) -> float:
    """The largest error of sums of k products of values near 1, over their root mean square."""
    rng = torch.Generator().manual_seed(k)
    a, b = ((torch.randn(8, k, generator=rng) + 1).to(torch.float8_e4m3fn) for _ in range(2))
    one = torch.ones(1, 1)
    exact = fp8_matmul.reference(a, b, one, one)
    found = fp8_matmul.summed_at_one_level(a, b, one, one, promote=promote)
    return float((found - exact).abs().max() / exact.square().mean().sqrt())


def test_errors_of_one_level_grow_with_k_and_those_of_two_do_not() -> None:
    """As on an H200: 0.0188 and 0.105 with use_fast_accum at 2,048 and 32,768, and below 0.0005 without."""
    assert 0.01 < off(2048, ONE_LEVEL) < 0.03 < off(8192, ONE_LEVEL) < 0.1
    assert off(2048, 128) < 5e-4
    assert off(8192, 128) < 5e-4


@pytest.mark.parametrize(("promote", "passes"), [(128, True), (512, True), (ONE_LEVEL, False)])
def test_extreme_values_tell_two_levels_of_sums_from_one(promote: int, passes: bool) -> None:
    case = fp8_matmul.case(20, 28, 2080, "tensor")
    a, b, scale_a, scale_b = generate_inputs(load(find("fp8_matmul")), case, 5, "cpu", EXTREME)
    found = fp8_matmul.summed_at_one_level(a, b, scale_a, scale_b, promote).bfloat16()
    wrong = compare.mismatches(
        found, fp8_matmul.reference(a, b, scale_a, scale_b), fp8_matmul.PROBLEM.tolerance["bfloat16"]
    )
    assert bool(wrong.any()) is not passes


def test_extreme_sums_of_int8_pass_the_bits_of_a_float32() -> None:
    sizes = {"m": 20, "n": 28, "k": 4128}
    a, b, *_ = generate_inputs(load(find("int8_matmul")), {**sizes, "dtype": "int8"}, 5, "cpu", EXTREME)
    halves = a[:, :2064].double() @ b[:, :2064].double().T
    assert float(halves.min()) > 2**24
    assert float((a.double() @ b.double().T).abs().max()) <= 127
    assert int8_matmul.compulsory_bytes(**sizes, dtype="int8") == 20 * 4128 + 28 * 4128 + 4 * 48 + 2 * 20 * 28


def test_numbers_of_8_bits_begin_anywhere_and_keep_their_bits() -> None:
    case = fp8_matmul.case(4, 8, 32, "block")
    plain, moved = (
        generate_inputs(load(find("fp8_matmul")), case, 7, "cpu", variety)
        for variety in (InputMode(), InputMode(misaligned=1))
    )
    assert moved[0].data_ptr() % 16
    assert moved[0].dtype == torch.float8_e4m3fn
    assert tensors.to_bytes(moved[0]) == tensors.to_bytes(plain[0])
    back = tensors.from_bytes("float8_e4m3fn", (4, 32), tensors.to_bytes(plain[0]), "cpu")
    assert torch.equal(back.double(), plain[0].double())
    assert not plain[0].double().isnan().any()
