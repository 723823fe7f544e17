"""The speed of light on this machine, from ceilings measured on it in the same process, never from a data sheet."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

    from kernelpath.grading.timing import Stopwatch

MARGIN = 0.85
"""The share of the speed of light below which a time cannot be true. It leaves room for a kernel that only writes."""


def measure_ceilings(stopwatch: Stopwatch, dtype: str | None = None) -> dict[str, float]:
    """What this machine reaches on random data: "copy" (read plus written), "read" and "fill", in bytes per second.

    With a `dtype` such as "bfloat16" also the library's matrix product in it, in operations per second, under
    "matmul_bfloat16". float32 products are strict, not TF32.
    """
    found = _bandwidths(stopwatch)
    if dtype is not None:
        found[f"matmul_{dtype}"] = max(_product(stopwatch, dtype, size) for size in (4096, 8192))
    return found


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
"""Reads everything and computes next to nothing. torch.sum reaches only 95 % of this on an H200."""


def _bandwidths(stopwatch: Stopwatch) -> dict[str, float]:
    """Bytes per second of a copy, a read-only sweep and a fill, of 2 GiB each where the memory allows it."""
    import torch

    from kernelpath.lanes import cuda

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
    import torch

    kind: torch.dtype = getattr(torch, dtype)
    rows, columns = (50 * torch.randn(2, size, size, device=stopwatch.device)).to(kind)
    one = torch.ones((), device=stopwatch.device)
    products: dict[torch.dtype, Callable[[], object]] = {
        torch.int8: lambda: torch._int_mm(rows, columns.t()),
        torch.float8_e4m3fn: lambda: torch._scaled_mm(rows, columns.t(), one, one, out_dtype=torch.bfloat16),
    }
    return 2 * size**3 / stopwatch.median(products.get(kind, lambda: rows @ columns))


def bandwidth(ceilings: Mapping[str, float]) -> float:
    """The most bytes per second that a kernel can move through device memory: the better of copy and read."""
    return max(ceilings["copy"], ceilings["read"])


def light_seconds(bytes_moved: int, flops: int, ceilings: Mapping[str, float], dtype: str | None = None) -> float:
    """The least time in which this machine can move so many bytes and do so many operations, in seconds.

    At best the two overlap, so the longer one counts. `dtype` names the matrix product whose ceiling bounds `flops`;
    without it only the bytes count. Raises KeyError for a ceiling that was not measured.
    """
    moving = bytes_moved / bandwidth(ceilings)
    return moving if dtype is None else max(moving, flops / ceilings[f"matmul_{dtype}"])


def too_fast(seconds: float, light: float) -> bool:
    """Whether a time beats the speed of light by more than the ceilings' error, so that it cannot be true.

    Holds only for a working set well past L2: what fits there may legally beat device memory.
    """
    return seconds < MARGIN * light
