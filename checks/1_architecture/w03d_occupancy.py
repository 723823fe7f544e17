"""Occupancy: how many blocks fit on an SM.

Week 3. Kernels of all kinds on five architectures, by NVIDIA's published limits; and kernels that a driver was asked
about: on a GPU its own driver, elsewhere the driver of an H200, whose answers are recorded.
"""

from collections.abc import Sequence
from typing import Any

import torch

from kernelpath.course.labs.multiprocessor import reason
from kernelpath.course.problems import occupancy
from kernelpath.course.spec import Exercise


def complaint(inputs: Sequence[Any], outputs: Sequence[torch.Tensor]) -> str | None:
    """The first kernel whose blocks are wrong, and what limits them."""
    kernels, sm = inputs
    expected = occupancy.reference(kernels, sm)
    wrong = (outputs[0] != expected).nonzero().flatten().tolist()
    if not wrong:
        return None
    row = wrong[0]
    threads, registers, shared = kernels[row].tolist()
    found, right = int(outputs[0][row]), int(expected[row])
    blocks = "1 block" if found == 1 else f"{found} blocks"
    kernel = f"{threads} threads, {registers} registers and {shared:,} bytes of shared memory on {sm['name']}"
    why = reason(sm["name"], threads, registers, shared, found, right)
    return f"{len(wrong)} of {len(kernels)} kernels are wrong. Row {row}, {kernel}: {blocks}, expected {right}{why}"


EXERCISE = Exercise(
    entry="active_blocks",
    problem=occupancy.PROBLEM,
    kind="python",
    without=("warpcheck.occupancy",),  # from which the expected values are computed
    check=complaint,
)
