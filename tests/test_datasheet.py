"""Test the comparison of measurements with the bandwidth of a copy and with the peaks of data sheets."""

from __future__ import annotations

import dataclasses

import pytest

from kernelpath.course import registry
from kernelpath.show import datasheet, results, view
from kernelpath.verdict import Interval, Measurement

EVEN = Interval(1.0, 0.9, 1.1)
CEILINGS = {"copy": 4.2e12, "read": 4.5e12, "matmul_bfloat16": 800e12}
# A kernel that reads 4.41 GB in a millisecond, faster than a copy.
SUM = Measurement({"n": 1}, 1e-3, 1e-3, None, EVEN, None, 4_410_000_000, 0, 0.98e-3, CEILINGS, 24, "paired rounds")

GEMM = dataclasses.replace(SUM, compulsory_bytes=1_000_000, flops=791_200_000_000, light_seconds=0.989e-3)


def test_memory_bound_kernels_are_compared_with_a_copy_and_with_the_memory_of_the_data_sheet() -> None:
    assert datasheet.copy_share(SUM) == pytest.approx(1.05)
    rows = dict(view.measurement(SUM, "NVIDIA H200"))
    assert rows["measured ceiling"] == "98.0% of it (980 µs); 105.0% of a copy's bandwidth"
    assert rows["theoretical peak"] == "91.9% of the data sheet's 4,800 GB/s"


def test_compute_bound_kernels_are_compared_with_the_peak_of_their_dtype() -> None:
    assert datasheet.copy_share(GEMM) is None
    rows = dict(view.measurement(GEMM, "NVIDIA H200"))
    assert rows["measured ceiling"] == "98.9% of it (989 µs)"
    assert rows["theoretical peak"] == "80.0% of the data sheet's 989.0 TFLOP/s"


def test_copies_between_gpus_are_compared_with_one_direction_of_the_links() -> None:
    sent = dataclasses.replace(
        SUM, compulsory_bytes=360_000_000, light_seconds=0.923e-3, ceilings={"copy to a peer": 390e9}
    )
    rows = dict(view.measurement(sent, "NVIDIA H200"))
    assert rows["theoretical peak"] == "80.0% of the data sheet's 450 GB/s"
    assert "copy's" not in rows["measured ceiling"]


def test_a_gpu_without_a_data_sheet_has_no_peak() -> None:
    assert "theoretical peak" not in dict(view.measurement(SUM, "a GPU"))
    sheet = results.Datasheet("a data sheet", {"memory": 4.8e12})
    assert datasheet.peak(GEMM, sheet) is None


def test_no_recorded_rate_is_above_its_peak() -> None:
    root = registry.root()
    sheets = results.datasheets(root)
    compared = 0
    for machine in results.machines(root):
        for report in machine.timed:
            assert report.measurement is not None
            peak = datasheet.peak(report.measurement, sheets[machine.gpu])
            assert peak is not None, report.exercise
            assert 0 < peak[0] < 1, report.exercise
            compared += 1
    assert compared > 40
