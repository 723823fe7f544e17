"""Test that the limits of stream_k, which depend on the number of simulated SMs, do not apply on a GPU."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from kernelpath.course import registry
from kernelpath.grading.by_kind import plan_grading
from kernelpath.grading.job import Job
from kernelpath.grading.steps import check_counters

ITEM = registry.find("stream_k")
JOB = Job.create(ITEM, ITEM.solution, device="cpu")


def names(job: Job) -> list[str]:
    return [step.__name__ for step in plan_grading(job).steps]


def test_bytes_are_limited_without_a_gpu_and_counted_with_one() -> None:
    on_cpu = names(JOB)
    on_gpu = names(replace(JOB, device="cuda"))
    assert on_cpu[-2:] == ["check_blocks", "measure_speed"]
    assert check_counters.__name__ in on_cpu
    assert check_counters.__name__ not in on_gpu
    # The check of tensor cores needs the counters, so it follows the step that counts.
    assert on_gpu.index("count_bytes") + 1 == on_gpu.index("check_tensor_cores")


def test_a_report_from_a_gpu_says_that_bytes_were_not_limited() -> None:
    (count_bytes,) = (
        step for step in plan_grading(replace(JOB, device="cuda")).steps if step.__name__ == "count_bytes"
    )
    context: Any = SimpleNamespace(
        job=JOB,
        cpu_shadow=SimpleNamespace(wait_for_counters=lambda: ("the observation", None)),
        progress=lambda text: None,
        not_measured=[],
        counters=None,
    )
    assert count_bytes(context) is None
    assert context.counters == "the observation"
    (sentence,) = context.not_measured
    assert "limited on 5 simulated SMs alone" in sentence
