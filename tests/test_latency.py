"""Test the parts of benchmarks/latency.py that need no GPU."""

from __future__ import annotations

import itertools
import sys

import pytest
import torch

import warpcheck
from kernelpath.course.problems import decoder_attention

sys.path.insert(0, "benchmarks")

import latency


def test_each_layer_of_a_chain_reads_the_output_of_the_previous_one() -> None:
    inputs = latency.layers("cpu", heads=1, tokens=3, count=3)
    x = inputs[0][0]
    for _, *parameters in inputs:
        x = decoder_attention.library(x, *parameters)
    torch.testing.assert_close(latency.chain(decoder_attention.library, inputs)(), x)


def test_the_reference_kernel_agrees_with_the_operators() -> None:
    inputs = latency.layers("cpu", heads=1, tokens=40, count=2)
    layers = {"operators": decoder_attention.library, "megakernels": latency.reference_kernel()}
    with warpcheck.gpu():
        latency.check_agreement({name: latency.chain(layer, inputs)() for name, layer in layers.items()})


def test_results_that_disagree_are_an_error() -> None:
    right = torch.randn(64, generator=torch.Generator().manual_seed(1))
    latency.check_agreement({"first": right, "second": right + 0.01 * right.roll(1)})
    for wrong in (right + 0.1 * right.roll(1), torch.full_like(right, float("nan"))):
        with pytest.raises(ValueError, match="second differs from first by"):
            latency.check_agreement({"first": right, "second": wrong})


def test_each_step_is_timed_until_synchronization() -> None:
    log: list[str] = []
    ticks = itertools.count(step=2_500)

    def clock() -> int:
        log.append("clock")
        return next(ticks)

    times = latency.measure(lambda: log.append("step"), lambda: log.append("synchronize"), count=3, clock=clock)
    assert times == [2.5, 2.5, 2.5]
    warm_up = ["step"] * latency.WARM_UP + ["synchronize"]
    assert log == warm_up + ["clock", "step", "synchronize", "clock"] * 3


def test_the_summary_has_the_median_and_the_percentiles() -> None:
    assert latency.summarize([float(value) for value in range(101)]) == {"p01": 1.0, "median": 50.0, "p99": 99.0}
