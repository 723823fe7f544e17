"""Report what the assembly of a Triton kernel for an AMD GPU says: waves, registers, LDS, and matrix instructions."""

from __future__ import annotations

import random

import torch

from kernelpath.course.problem import Problem, Tolerance
from kernelpath.course.traces import Facts, TraceFile, amdgcn, recordings

RECORDING = "amdgcn"

# The kernels of results/traces/amdgcn.py.
KERNELS = ("copy", "add", "transpose", "softmax", "matmul", "chained")

# The number of recordings of each kernel, with different types, sizes, and numbers of warps.
VARIANTS = 2


def inputs(rng: torch.Generator, kernel: str, lanes: int, further: int) -> tuple[TraceFile]:
    """Return the assembly of a kernel.

    Args:
        rng: The generator.
        kernel: One of KERNELS.
        lanes: 0 for the kernel as Triton compiled it; else the lanes of a wave of one with other resources and
            instructions.
        further: The number of instructions that are added to it.
    """
    python_rng = random.Random(int(torch.randint(1 << 31, (), generator=rng, device=rng.device)))
    text = recordings.read(RECORDING, f"{kernel}{python_rng.randrange(VARIANTS)}.s").decode()
    return (TraceFile("kernel.s", (amdgcn.vary(python_rng, text, lanes, further) if lanes else text).encode()),)


def reference(assembly: TraceFile) -> Facts:
    return amdgcn.of(assembly.content.decode())


PROBLEM = Problem(
    inputs=inputs,
    cases=(
        *({"kernel": kernel, "lanes": 0, "further": 0} for kernel in KERNELS),
        *({"kernel": kernel, "lanes": 64, "further": 10} for kernel in ("transpose", "matmul", "chained")),
        # RDNA, which gfx942 is not, has waves of 32 lanes.
        {"kernel": "softmax", "lanes": 32, "further": 40},
    ),
    reference=reference,
    tolerance={"float64": Tolerance(rtol=1e-9, atol=0.0)},
    compulsory_bytes=lambda kernel, lanes, further: 0,
)
