"""What this machine reaches on random data: the measured ceiling that kernels are held against."""

from __future__ import annotations

from collections.abc import Callable

import torch

from kernelpath.lanes import cuda
from kernelpath.work.stopwatch import Stopwatch


def measure_ceilings(stopwatch: Stopwatch, dtype: str | None = None) -> dict[str, float]:
    """What this machine reaches on random data: "copy" (read plus written), "read" and "fill", in bytes per second.

    With a `dtype` such as "bfloat16" also the library's matrix product in it, in operations per second, under
    "matmul_bfloat16". float32 products are strict, not TF32.
    """
    found = _bandwidths(stopwatch)
    if dtype is not None:
        found[f"matmul_{dtype}"] = max(
            _product(stopwatch, one, size) for one in _as_fast(dtype) for size in (4096, 8192)
        )
    return found


def _as_fast(dtype: str) -> tuple[str, ...]:
    """The dtypes in which tensor cores multiply at this one's rate. In int8 the library stays farther below it than in
    float8, which GPUs have from 8.9 on."""
    return (dtype, "float8_e4m3fn") if dtype == "int8" and torch.cuda.get_device_capability() >= (8, 9) else (dtype,)


_SWEEP = """
extern "C" __global__ void sweep(const uint4 *x, unsigned *sink) {
    long i = 4L * blockIdx.x * blockDim.x + threadIdx.x;
    unsigned seen = 0;
    #pragma unroll
    for (int k = 0; k < 4; ++k) {  // four loads of 16 bytes in flight
        uint4 v = x[i + k * blockDim.x];
        seen |= v.x ^ v.y ^ v.z ^ v.w;
    }
    if (seen == 1) *sink = seen;  // hardly ever, but the compiler cannot know
}
"""
"""Reads everything and computes next to nothing. torch.sum reaches only 95% of this on an H200."""


def _bandwidths(stopwatch: Stopwatch) -> dict[str, float]:
    """Bytes per second of a copy, a read-only sweep and a fill, of 2 GiB each where the memory allows it."""
    free, _ = torch.cuda.mem_get_info(stopwatch.device)
    count = min(2 << 30, free // 8) >> 14 << 12  # elements; whole blocks of the sweep
    source = torch.randn(count, device=stopwatch.device)
    target = torch.empty_like(source)
    sweep = cuda.Kernel("sweep.cu", _SWEEP, "sweep")[count // 4096, 256]
    return {
        "copy": 8 * count / stopwatch.median(lambda: target.copy_(source)),
        "read": 4 * count / stopwatch.median(lambda: sweep(source, target)),
        "fill": 4 * count / stopwatch.median(lambda: target.fill_(1.5)),
    }


def _product(stopwatch: Stopwatch, dtype: str, size: int) -> float:
    """Operations per second of the library's product of two square matrices, each laid out as the library likes it."""
    kind: torch.dtype = getattr(torch, dtype)
    rows, columns = (50 * torch.randn(2, size, size, device=stopwatch.device)).to(kind)
    one = torch.ones((), device=stopwatch.device)
    products: dict[torch.dtype, Callable[[], object]] = {
        torch.int8: lambda: torch._int_mm(rows, columns.t()),
        torch.float8_e4m3fn: lambda: torch._scaled_mm(rows, columns.t(), one, one, out_dtype=torch.bfloat16),
    }
    return 2 * size**3 / stopwatch.median(products.get(kind, lambda: rows @ columns))
