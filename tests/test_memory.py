"""Test the count of workspace memory, which a call holds besides its inputs and outputs, without and with a GPU."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from kernelpath.course import registry
from kernelpath.grading import steps
from kernelpath.grading.graders.kernel_on_machine import KernelOnMachine
from kernelpath.grading.job import Job
from kernelpath.grading.workers import Workers
from kernelpath.verdict import Verdict
from kernelpath.work.call import peak_workspace
from kernelpath.work.tamper_check import SubmissionThread

HEAD = """
import torch
import triton
import triton.language as tl

@triton.jit
def add(x, y, out, n, BLOCK: tl.constexpr):
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + place, tl.load(x + place, mask=place < n) + tl.load(y + place, mask=place < n), mask=place < n)

def into(out, x, y):
    add[triton.cdiv(x.numel(), 256),](x, y, out, x.numel(), 256)
    return out
"""
ITEM = registry.find("vector_add_triton")
EXERCISE = registry.load(ITEM)
CASE = {"n": 1000, "offset": 0}
MeasureWorkspace = Callable[[str], list[int]]


@pytest.fixture
def measure_workspace(tmp_path: Path) -> Iterator[MeasureWorkspace]:
    """Return a function that measures the workspace of two consecutive calls of a submission."""
    file = tmp_path / "submission.py"
    opened: list[Workers] = []

    def run(body: str) -> list[int]:
        file.write_text(f"{HEAD}\n{body}\n")
        job = Job.create(ITEM, file, device="cpu")
        opened.append(Workers(job))
        opened[-1].copy_submission()
        grader = KernelOnMachine(job)
        runner = opened[-1].runner(grader.setup)
        calls = [grader.call(runner, CASE, seed) for seed in range(2)]
        runner.close()
        assert all(call.finding is None for call in calls)
        return [call.workspace for call in calls]

    yield run
    for workers in opened:
        workers.close()


@pytest.mark.parametrize(
    ("body", "first", "second"),
    [
        ("def vector_add(x, y):\n    return into(torch.empty_like(x), x, y)", 0, 0),
        (
            "def vector_add(x, y):\n"
            "    for _ in range(5):\n"
            "        scratch = into(torch.empty_like(x), x, y)\n"
            "        del scratch\n"
            "    return into(torch.empty_like(x), x, y)",
            4000,
            4000,
        ),
        (
            "def vector_add(x, y):\n"
            "    scratch = [into(x.new_empty(n), x, y) for n in (1000, 2000, 3000)]\n"
            "    return into(torch.empty_like(x), x, y)",
            24_000,
            24_000,
        ),
        (
            "KEPT = []\n"
            "def vector_add(x, y):\n"
            "    KEPT.append(into(torch.empty_like(x), x, y))\n"
            "    return into(torch.empty_like(x), x, y)",
            4000,
            8000,
        ),
    ],
    ids=["the output alone", "scratch that is freed", "scratch that is not", "kept from call to call"],
)
def test_the_machine_counts_live_workspace_at_each_launch(
    measure_workspace: MeasureWorkspace, body: str, first: int, second: int
) -> None:
    assert measure_workspace(body) == [first, second]


def test_a_call_that_exceeds_its_workspace_limit_fails() -> None:
    limited = replace(EXERCISE, workspace=0.5)
    allowed = EXERCISE.compulsory_bytes(**CASE) // 2
    assert steps.check_workspace(limited, CASE, allowed) is None
    assert steps.check_workspace(EXERCISE, CASE, 100 * allowed) is None
    finding = steps.check_workspace(limited, CASE, allowed + 1)
    assert finding is not None
    assert finding.verdict is Verdict.TOO_MUCH_MEMORY
    assert finding.cause.startswith(f"at n=1000 offset=0: {allowed + 1:,} bytes are held beside inputs and outputs")


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_gpu_counts_the_peak_of_a_call() -> None:
    def entry(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        for rows in (3, 2):
            scratch = x.new_empty(rows, x.numel())
            del scratch
        return torch.empty_like(x), torch.empty_like(x)

    x = torch.zeros(1_000_003, device="cuda")
    thread = SubmissionThread()
    assert peak_workspace(thread, entry, [x]) == pytest.approx((3 - 2) * x.nbytes, abs=1024)
    assert peak_workspace(thread, lambda x: torch.empty_like(x), [x]) == 0
