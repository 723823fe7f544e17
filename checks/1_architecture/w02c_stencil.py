"""Stencil: threads share inputs through a tile with a halo.

Week 2. A triangle of radius 8 smooths a float32 vector: out[i] = sum of (9 - |k|) x[i + k] / 81 for k = -8 .. 8.
"""

import torch

from kernelpath.course.problems import stencil
from kernelpath.course.spec import Exercise, Traffic
from warpcheck.frontends import cuda

GLOBAL_MEMORY = cuda.kernel("w02c_stencil.cu", "stencil_from_global_memory")


def global_memory(x: torch.Tensor) -> torch.Tensor:
    """The stencil as its formula reads: a thread per output, which loads all 17 values itself."""
    out = torch.empty_like(x)
    GLOBAL_MEMORY[(x.numel() + 255) // 256, 256](x, out, x.numel())
    return out


EXERCISE = Exercise(
    entry="stencil",
    problem=stencil.PROBLEM,
    bench={"n": 1 << 26},  # 512 MiB in and out, 9 times the L2 of an H200
    baseline=global_memory,
    min_speedup=2.0,  # on an H200 a plain tile reaches 1.3, the reference kernel 3.3
    traffic=Traffic(sectors=1.3, bank_conflicts=0.5, bytes=1.2),
)
