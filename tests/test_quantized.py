"""Test quantized GEMMs: the model of tensor core accumulation, its error, and 8-bit inputs."""

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


MIN_EXPONENT = {"e4m3": -6, "e5m2": -14}
DTYPES = {"e4m3": torch.float8_e4m3fn, "e5m2": torch.float8_e5m2}


@pytest.mark.parametrize(("of_a", "of_b"), [("e4m3", "e5m2"), ("e5m2", "e4m3")])
def test_the_tensor_core_model_equals_an_h200_bitwise(of_a: str, of_b: str) -> None:
    """Compare with a recorded wgmma whose operands differ by many powers of two."""

    def read_recorded(name: str, dtype: torch.dtype, rows: int) -> torch.Tensor:
        raw = np.frombuffer(bytes.fromhex(RECORDED[f"{of_a} {of_b} f32"][name]), np.uint8).copy()
        return torch.from_numpy(raw).view(dtype).view(rows, -1)

    a = read_recorded("a", DTYPES[of_a], 16)
    b = read_recorded("b", DTYPES[of_b], 8)
    total = read_recorded("d", torch.float32, 16)
    expected = read_recorded("gpu", torch.float32, 16)
    total_on_model = fp8_matmul.tensor_core_sum(
        total.double(), a.double(), b.double(), (MIN_EXPONENT[of_a], MIN_EXPONENT[of_b])
    )
    assert torch.equal(total_on_model.float(), expected)


def relative_error(k: int, promote: int) -> float:
    """Return the largest error of sums of k products of values near 1, relative to their root mean square."""
    rng = torch.Generator().manual_seed(k)
    a, b = ((torch.randn(8, k, generator=rng) + 1).to(torch.float8_e4m3fn) for _ in range(2))
    scale = torch.ones(1, 1)
    exact = fp8_matmul.reference(a, b, scale, scale)
    total = fp8_matmul.summed_at_one_level(a, b, scale, scale, promote=promote)
    return float((total - exact).abs().max() / exact.square().mean().sqrt())


def test_errors_grow_with_k_only_without_promoted_accumulation() -> None:
    """An H200 shows 0.0188 and 0.105 with use_fast_accum at 2,048 and 32,768, and below 0.0005 without."""
    assert 0.01 < relative_error(2048, ONE_LEVEL) < 0.03 < relative_error(8192, ONE_LEVEL) < 0.1
    assert relative_error(2048, 128) < 5e-4
    assert relative_error(8192, 128) < 5e-4


@pytest.mark.parametrize(("promote", "passes"), [(128, True), (512, True), (ONE_LEVEL, False)])
def test_extreme_inputs_distinguish_promoted_accumulation(promote: int, passes: bool) -> None:
    case = fp8_matmul.case(20, 28, 2080, "tensor")
    a, b, scale_a, scale_b = generate_inputs(load(find("fp8_matmul")), case, 5, "cpu", EXTREME)
    output = fp8_matmul.summed_at_one_level(a, b, scale_a, scale_b, promote).bfloat16()
    mismatches = compare.mismatches(
        output, fp8_matmul.reference(a, b, scale_a, scale_b), fp8_matmul.PROBLEM.tolerance["bfloat16"]
    )
    assert bool(mismatches.any()) is not passes


def test_extreme_int8_inputs_exceed_exact_float32_sums() -> None:
    sizes = {"m": 20, "n": 28, "k": 4128}
    a, b, *_ = generate_inputs(load(find("int8_matmul")), {**sizes, "dtype": "int8"}, 5, "cpu", EXTREME)
    halves = a[:, :2064].double() @ b[:, :2064].double().T
    assert float(halves.min()) > 2**24
    assert float((a.double() @ b.double().T).abs().max()) <= 127
    assert int8_matmul.compulsory_bytes(**sizes, dtype="int8") == 20 * 4128 + 28 * 4128 + 4 * 48 + 2 * 20 * 28


def test_misaligned_8_bit_inputs_keep_their_bits() -> None:
    case = fp8_matmul.case(4, 8, 32, "block")
    plain, misaligned = (
        generate_inputs(load(find("fp8_matmul")), case, 7, "cpu", variety)
        for variety in (InputMode(), InputMode(misaligned=1))
    )
    assert misaligned[0].data_ptr() % 16
    assert misaligned[0].dtype == torch.float8_e4m3fn
    assert tensors.to_bytes(misaligned[0]) == tensors.to_bytes(plain[0])
    restored = tensors.from_bytes("float8_e4m3fn", (4, 32), tensors.to_bytes(plain[0]), "cpu")
    assert torch.equal(restored.double(), plain[0].double())
    assert not plain[0].double().isnan().any()
