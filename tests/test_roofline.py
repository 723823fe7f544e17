"""The speed of light by hand-computed numbers, and what the pictures show."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from matplotlib.figure import Figure

from kernelpath.grading import roofline
from kernelpath.grading.timing import Stopwatch
from kernelpath.verdict import Interval, Measurement

CEILINGS = {"copy": 4.0e12, "read": 4.4e12, "fill": 4.5e12, "matmul_bfloat16": 800e12}


def measurement(bytes_moved: int, flops: int, seconds: float, dtype: str | None = None) -> Measurement:
    light = roofline.light_seconds(bytes_moved, flops, CEILINGS, dtype)
    interval = Interval(1.0, 0.9, 1.1)
    return Measurement({}, seconds, 1.0, None, interval, None, bytes_moved, flops, light, CEILINGS, 24, "")


def test_light_takes_the_better_of_copy_and_read_for_bytes() -> None:
    assert roofline.light_seconds(4_400_000_000, 0, CEILINGS) == pytest.approx(1e-3)


def test_light_is_the_longer_of_moving_and_computing() -> None:
    moved = 3 * 2 * 8192**2
    assert roofline.light_seconds(moved, 2 * 8192**3, CEILINGS, "bfloat16") == pytest.approx(2 * 8192**3 / 800e12)
    assert roofline.light_seconds(moved, 1000, CEILINGS, "bfloat16") == pytest.approx(moved / 4.4e12)


def test_operations_without_a_dtype_do_not_count() -> None:
    assert roofline.light_seconds(4400, 10**15, CEILINGS) == pytest.approx(1e-9)


def test_a_ceiling_that_was_not_measured_is_an_error() -> None:
    with pytest.raises(KeyError, match="matmul_float16"):
        roofline.light_seconds(1, 1, CEILINGS, "float16")


@pytest.mark.parametrize(("share", "expected"), [(0.5, True), (0.84, True), (0.86, False), (1.0, False), (3.0, False)])
def test_too_fast_leaves_a_margin_for_the_ceilings_own_error(share: float, expected: bool) -> None:
    assert roofline.too_fast(share * 1e-3, 1e-3) is expected


def test_a_kernel_that_only_writes_at_the_fill_rate_is_not_too_fast() -> None:
    assert not roofline.too_fast(1e9 / 4.8e12, roofline.light_seconds(10**9, 0, CEILINGS))


def drawn(figure: Figure) -> list[Any]:
    figure.draw_without_rendering()
    return figure.axes


def test_roofline_places_a_kernel_at_its_intensity_and_rate() -> None:
    softmax = measurement(bytes_moved=4_400_000_000, flops=2_200_000_000, seconds=2e-3)
    (axes,) = drawn(roofline.roofline_plot({"softmax": softmax}, CEILINGS))
    ((intensity, reached),) = axes.collections[-1].get_offsets()
    assert (intensity, reached) == (pytest.approx(0.5), pytest.approx(1.1))
    legend = [text.get_text() for text in axes.get_legend().get_texts()]
    assert legend == ["memory, 4,400 GB/s", "softmax: 50% of the speed of light"]


def test_roof_bends_where_the_product_is_as_slow_as_memory() -> None:
    product = measurement(3 * 2 * 8192**2, 2 * 8192**3, 2e-3, "bfloat16")
    (axes,) = drawn(roofline.roofline_plot({"product": product}, CEILINGS))
    slope, flat = axes.lines[:2]
    ridge = 800e12 / 4.4e12
    assert slope.get_xydata()[-1] == pytest.approx([ridge, 800.0])
    assert flat.get_xydata()[0] == pytest.approx([ridge, 800.0])


def test_kernels_without_arithmetic_become_bars_beside_the_roof() -> None:
    copy = measurement(4_400_000_000, 0, 2e-3)
    add = measurement(4_400_000_000, 10**9, 2e-3)
    roof, bars = drawn(roofline.roofline_plot({"copy": copy, "add": add}, CEILINGS))
    assert len(roof.collections) == 2
    assert [patch.get_width() for patch in bars.patches] == [pytest.approx(2200)]
    assert [label.get_text() for label in bars.get_yticklabels()] == ["copy"]


def test_bandwidth_plot_sorts_by_size_and_shows_the_ceilings() -> None:
    (axes,) = drawn(roofline.bandwidth_plot({"copy": {10**8: 3e12, 10**6: 1e12}}, CEILINGS))
    line, copy, read = axes.lines
    assert line.get_xydata().tolist() == [[1.0, 1000.0], [100.0, 3000.0]]
    assert [copy.get_ydata()[0], read.get_ydata()[0]] == [4000.0, 4400.0]


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int8"])
def test_ceilings_are_those_of_one_machine(dtype: str) -> None:
    found = roofline.measure_ceilings(Stopwatch(), dtype)
    assert set(found) == {"copy", "read", "fill", f"matmul_{dtype}"}
    assert 0.9 < found["read"] / found["copy"] < 1.3
    assert 0.9 < found["fill"] / found["copy"] < 1.3
    assert found[f"matmul_{dtype}"] > 5 * found["read"]
