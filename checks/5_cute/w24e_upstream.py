"""Contribute upstream: a published kernel's fault, as a test that fails, and a change that mends it.

Week 24. Two kernels, one test that tells them apart, and the text of a pull request.
"""

import torch

from kernelpath.course.problem import EXACT, Problem
from kernelpath.course.spec import Exercise

SOURCE = """
__global__ void fill(float* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = 1.0f;
}
"""


def inputs(rng: torch.Generator, kernel: str, order: int) -> tuple[str, torch.device]:
    """Return the source of a kernel, which the grader replaces by the submission's kernels, and a device."""
    return SOURCE, rng.device


def reference(source: str, device: torch.device) -> torch.Tensor:
    """Return what `run` returns where the test passes."""
    return torch.ones(1)


EXERCISE = Exercise(
    entry="run",
    kind="python",
    problem=Problem(
        inputs=inputs,
        # The mended kernel has to pass in every order of warps and blocks; see warpcheck.runtime.schedule_order.
        cases=(
            {"kernel": "mended", "order": 0},
            {"kernel": "mended", "order": 1},
            {"kernel": "mended", "order": 1_000_003},
            {"kernel": "published", "order": 0},
        ),
        reference=reference,
        tolerance={"float32": EXACT},
        compulsory_bytes=lambda kernel, order: 4,
    ),
)
