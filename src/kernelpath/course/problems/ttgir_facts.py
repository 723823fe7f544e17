"""Report what Triton's layouts say about a kernel: who holds each element, and how far conversions move values."""

from __future__ import annotations

import random

import torch

from kernelpath.course.problem import Problem, Tolerance
from kernelpath.course.traces import Facts, TraceFile, recordings, ttgir

RECORDING = "ttgir"

# The kernels of results/traces/ttgir.py.
KERNELS = ("transpose", "row_sum", "column_sum", "outer", "scale_rows", "symmetric", "softmax", "widen")

# The number of recordings of each kernel, with different sizes, types, and numbers of warps.
VARIANTS = 2
DRAWN = "drawn"


def inputs(rng: torch.Generator, kernel: str, conversions: int) -> tuple[TraceFile]:
    """Return a dump.

    Args:
        rng: The generator.
        kernel: One of KERNELS, or "drawn" for a module with layouts drawn at random.
        conversions: The number of conversions of a drawn module.
    """
    python_rng = random.Random(int(torch.randint(1 << 31, (), generator=rng, device=rng.device)))
    if kernel == DRAWN:
        text = ttgir.drawn(python_rng, conversions)
    else:
        text = recordings.read(RECORDING, f"{kernel}{python_rng.randrange(VARIANTS)}.ttgir").decode()
    return (TraceFile("kernel.ttgir", text.encode()),)


def reference(dump: TraceFile) -> Facts:
    return ttgir.of(dump.content.decode())


PROBLEM = Problem(
    inputs=inputs,
    cases=(
        *({"kernel": kernel, "conversions": 0} for kernel in KERNELS),
        *({"kernel": DRAWN, "conversions": count} for count in (1, 3, 9)),
    ),
    reference=reference,
    tolerance={"float64": Tolerance(rtol=1e-9, atol=0.0)},
    compulsory_bytes=lambda kernel, conversions: 0,
)
