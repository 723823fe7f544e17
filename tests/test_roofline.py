"""Compare the light time from measured ceilings with hand-computed numbers."""

from __future__ import annotations

import pytest
import torch

from kernelpath.grading import roofline
from kernelpath.work import ceilings
from kernelpath.work.stopwatch import Stopwatch

CEILINGS = {"copy": 4.0e12, "read": 4.4e12, "fill": 4.5e12, "matmul_bfloat16": 800e12}


def test_the_light_time_of_bytes_uses_the_faster_of_copy_and_read() -> None:
    assert roofline.light_seconds(4_400_000_000, 0, CEILINGS) == pytest.approx(1e-3)


def test_the_light_time_is_the_longer_of_memory_and_arithmetic() -> None:
    nbytes = 3 * 2 * 8192**2
    assert roofline.light_seconds(nbytes, 2 * 8192**3, CEILINGS, "bfloat16") == pytest.approx(2 * 8192**3 / 800e12)
    assert roofline.light_seconds(nbytes, 1000, CEILINGS, "bfloat16") == pytest.approx(nbytes / 4.4e12)


def test_operations_without_a_dtype_do_not_count() -> None:
    assert roofline.light_seconds(4400, 10**15, CEILINGS) == pytest.approx(1e-9)


def test_a_ceiling_that_was_not_measured_is_an_error() -> None:
    with pytest.raises(KeyError, match="matmul_float16"):
        roofline.light_seconds(1, 1, CEILINGS, "float16")


@pytest.mark.parametrize(("share", "expected"), [(0.5, True), (0.84, True), (0.86, False), (1.0, False), (3.0, False)])
def test_too_fast_has_a_margin_for_the_error_of_the_ceilings(share: float, expected: bool) -> None:
    assert roofline.too_fast(share * 1e-3, 1e-3) is expected


def test_a_kernel_that_only_writes_at_the_fill_rate_is_not_too_fast() -> None:
    assert not roofline.too_fast(1e9 / 4.8e12, roofline.light_seconds(10**9, 0, CEILINGS))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int8"])
def test_measured_ceilings_are_plausible(dtype: str) -> None:
    measured = ceilings.measure(Stopwatch(), dtype)
    assert set(measured) == {"copy", "read", "fill", f"matmul_{dtype}"}
    assert 0.9 < measured["read"] / measured["copy"] < 1.3
    assert 0.9 < measured["fill"] / measured["copy"] < 1.3
    assert measured[f"matmul_{dtype}"] > 5 * measured["read"]
