"""Test the shadow run: a second process with other input values, and with warps and blocks in the opposite order.

Launches that depend on input values differ between the runs and are reported. Other dependencies are allowed.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from kernelpath.course import registry
from kernelpath.grading import grade
from kernelpath.verdict import Report, Verdict

KERNELS = """
extern "C" __global__ void add(const float* x, const float* y, float* out, long long n, float scalar,
                               const float* table) {
    const long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = x[i] + y[i];
}
extern "C" __global__ void blocks_in_order(const float* x, const float* y, float* out, long long n, int* next) {
    __shared__ int ticket;
    if (threadIdx.x == 0) ticket = atomicAdd(next, 1);
    __syncthreads();
    const long long i = (long long)ticket * blockDim.x + threadIdx.x;
    const long long j = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (j < n) out[j] = x[i < n ? i : n - 1] + y[j];
}
extern "C" __global__ void warps_in_order(const float* x, const float* y, float* out, long long n, int* next) {
    __shared__ int tickets;
    if (threadIdx.x == 0) tickets = 0;
    __syncthreads();
    int ticket = 0;
    if (threadIdx.x % 32 == 0) ticket = atomicAdd(&tickets, 1);
    ticket = __shfl_sync(~0u, ticket, 0);
    const long long begin = (long long)blockIdx.x * blockDim.x + threadIdx.x % 32;
    const long long i = begin + ticket * 32, j = begin + threadIdx.x / 32 * 32;
    if (j < n) out[j] = x[i < n ? i : n - 1] + y[j];
}
"""

SUBMISSION = """
import random

import numpy as np
import torch

from warpcheck.frontends import cuda

calls = 0
kernel = lambda name: cuda.kernel("submission.cu", name)


def vector_add(x, y):
    global calls
    calls += 1
    out, n, first = torch.empty_like(x), x.numel(), float(x.numpy()[0])
    blocks, scalar, table = (n + 255) // 256, 0.0, torch.zeros(4, device=x.device)
    {body}
    {launch}
    return out
"""

ADD = 'kernel("add")[blocks, 256](x, y, out, n, scalar, table)'


def grade_submission(folder: Path, body: str, launch: str = ADD) -> Report:
    (folder / "submission.cu").write_text(KERNELS)
    (folder / "submission.py").write_text(SUBMISSION.format(body=body, launch=launch))
    return grade.grade(registry.find("vector_add"), folder / "submission.py", device="cpu", seed=1)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("blocks += int(1e6 * abs(first)) % 5", "the grid or the block of add depends on the values"),
        ("scalar = first", "argument 4 of add is"),
        ("table.numpy()[1] = first", "add reads bytes in table that the host wrote"),
        ("table.numpy()[0] = first; table.numpy()[1] = calls", "add reads bytes in table that the host wrote"),
        ("x.numpy()[0] = np.float32(1); x.numpy()[0] = first; table.numpy()[0] = first", "bytes in table"),
        ("for _ in range(int(1e6 * abs(first)) % 5): " + ADD, "kernels were launched for some values and"),
    ],
    ids=["grid", "argument", "bytes", "bytes beside a counter", "bytes put back", "launches"],
)
def test_a_launch_that_depends_on_input_values_fails(tmp_path: Path, body: str, message: str) -> None:
    report = grade_submission(tmp_path, body)
    assert report.verdict is Verdict.NOT_YOUR_KERNEL, report.cause
    assert message in report.cause
    assert "your kernel has to do the work" in report.cause


@pytest.mark.parametrize(
    "body",
    [
        "scalar = float(calls)",
        "table.numpy()[0] = calls",
        "for _ in range(calls == 1): " + ADD,
        "blocks += n % 3",
        "scalar = random.random()",
        "scalar = float(np.random.rand())",
        "scalar = torch.rand(1).item()",
        "scalar = float(np.random.default_rng().random())",
        "table.numpy()[0] = np.empty(100)[50]",
        "if n < 2000: " + ADD + "; out.zero_()",
        "table = (torch.arange(4.0) / torch.linspace(1, 2, 4)).to(x.device)",
        "scalar = float(hash('kernel') % 1000)",
        "scalar = float(len({1, 'a', None}))",
    ],
)
def test_a_launch_that_does_not_depend_on_input_values_passes(tmp_path: Path, body: str) -> None:
    report = grade_submission(tmp_path, body)
    assert report.verdict is Verdict.PASSED, report.cause


@pytest.mark.parametrize("kernel", ["blocks_in_order", "warps_in_order"])
def test_a_kernel_that_depends_on_the_schedule_fails_in_the_opposite_one(tmp_path: Path, kernel: str) -> None:
    launch = f'kernel("{kernel}")[blocks, 256](x, y, out, n, torch.zeros(1, dtype=torch.int32, device=x.device))'
    report = grade_submission(tmp_path, "pass", launch)
    assert report.verdict is Verdict.WRONG_VALUES, report.cause
    assert sum(not case.verdict.passed for case in report.cases) == 1, "all cases passed in the first order"


def test_a_refused_launch_may_be_retried(tmp_path: Path) -> None:
    launch = f"""
    try:
        {ADD.replace("256", "8192")}
    except ValueError:
        {ADD}
    """
    report = grade_submission(tmp_path, "pass", launch)
    assert report.verdict is Verdict.PASSED, report.cause
