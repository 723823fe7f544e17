"""Test the grading of a host program on a computer with a GPU: first on the PTX machine, then on the GPU."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from kernelpath.course import registry
from kernelpath.grading import devices, steps
from kernelpath.grading.by_kind import plan_grading
from kernelpath.grading.graders.kernel_on_machine import KernelOnMachine
from kernelpath.grading.graders.python_call import PythonCall
from kernelpath.grading.job import Job
from kernelpath.grading.steps import run_program_on_gpu
from kernelpath.grading.workers import Workers
from kernelpath.verdict import Finding, Verdict
from warpcheck.target import SM_80

ITEM = registry.find("host_program")


@pytest.fixture
def job() -> Job:
    return Job.create(ITEM, ITEM.solution, device="cpu")


def test_the_machine_grades_a_program_also_where_there_is_a_gpu(job: Job) -> None:
    plan = plan_grading(replace(job, device="cuda"))
    assert isinstance(plan.grader, KernelOnMachine)
    assert plan.grader.setup.device == "cpu"
    assert plan.steps[-1] is run_program_on_gpu
    # A GPU of compute capability 8.9, which the machine does not simulate, changes nothing.
    assert devices.choose_target(job.exercise, "cuda", None) is SM_80


def test_an_input_at_an_offset_counts_as_unchanged(job: Job) -> None:
    """The GPU step sends only the elements of an input, but the process reports on the bytes of the whole storage."""
    grader = PythonCall(job)
    with contextlib.closing(Workers(job)) as workers:
        workers.copy_submission()
        with contextlib.closing(workers.runner(grader.setup)) as runner:
            observation = grader.call(runner, {"n": 3, "offset": 1}, seed=1)
    assert observation.finding is None
    x, y = observation.inputs
    assert isinstance(x, torch.Tensor)
    assert isinstance(y, torch.Tensor)
    assert torch.equal(observation.outputs[0], x + y)


class WrongOnGpu:
    """Replace the grader on a GPU: the third case has a finding."""

    def __init__(self, job: Job) -> None:
        self.setup = "setup"
        self.calls = 0

    def call(self, runner: Any, case: Any, seed: int) -> int:
        self.calls += 1
        return self.calls

    def check(self, observation: int) -> Finding | None:
        return Finding(Verdict.WRONG_VALUES, "on the GPU", "submission.cu", 7) if observation == 3 else None


def test_a_wrong_result_on_the_gpu_is_the_verdict(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    closed = []
    runner = SimpleNamespace(close=lambda: closed.append(True))
    context: Any = SimpleNamespace(
        job=replace(job, device="cuda"),
        workers=SimpleNamespace(runner=lambda setup: runner),
        progress=lambda text: None,
        seed=1,
    )
    monkeypatch.setattr(steps, "PythonCall", WrongOnGpu)
    finding = run_program_on_gpu(context)
    assert finding is not None
    assert (finding.verdict, finding.cause, finding.line) == (Verdict.WRONG_VALUES, "on the GPU", 7)
    assert closed == [True]
    context.job = job
    assert run_program_on_gpu(context) is None, "there is no GPU"
