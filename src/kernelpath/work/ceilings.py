"""Measure the bandwidth and the matrix-product rate that this GPU reaches on random data.

Kernels are compared with these ceilings.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from kernelpath.work.stopwatch import Stopwatch
from warpcheck.frontends import cuda


def measure(stopwatch: Stopwatch, dtype: str | None = None) -> dict[str, float]:
    """Return the measured ceilings: "copy" (bytes read plus written), "read" and "fill", in bytes per second.

    With a `dtype` such as "bfloat16" the result also has the library's matrix product in that dtype, in operations per
    second, as "matmul_bfloat16". float32 products are strict, not TF32.
    """
    ceilings = _bandwidths(stopwatch)
    if dtype is not None:
        ceilings[f"matmul_{dtype}"] = max(
            _matmul_rate(stopwatch, equal_dtype, size)
            for equal_dtype in _dtypes_of_equal_rate(dtype)
            for size in (4096, 8192)
        )
    return ceilings


def _dtypes_of_equal_rate(dtype: str) -> tuple[str, ...]:
    """Return the dtypes whose products reach the rate of `dtype`: for int8 float8 as well, on a GPU that has it."""
    if dtype == "int8" and torch.cuda.get_device_capability() >= (8, 9):
        return (dtype, "float8_e4m3fn")
    return (dtype,)


# A kernel that reads all of an array and computes next to nothing.
#
# torch.sum reaches only 95% of this bandwidth on an H200.
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


def _bandwidths(stopwatch: Stopwatch) -> dict[str, float]:
    """Return the bytes per second of a copy, a read and a fill, of 2 GiB each where the memory allows it."""
    free, _ = torch.cuda.mem_get_info(stopwatch.device)
    # The number of elements. A block of the sweep reads 256 threads x 4 loads x 4 floats = 4096 elements, or 16 KiB.
    count = min(2 << 30, free // 8) >> 14 << 12
    source = torch.randn(count, device=stopwatch.device)
    target = torch.empty_like(source)
    sweep = cuda.Kernel("sweep.cu", _SWEEP, "sweep")[count // 4096, 256]
    return {
        "copy": 8 * count / stopwatch.median(lambda: target.copy_(source)),
        "read": 4 * count / stopwatch.median(lambda: sweep(source, target)),
        "fill": 4 * count / stopwatch.median(lambda: target.fill_(1.5)),
    }


def _matmul_rate(stopwatch: Stopwatch, dtype: str, size: int) -> float:
    """Return the operations per second of the library's product of two square matrices.

    Each operand is laid out as the library's fastest kernel expects it.
    """
    if dtype == "float4_e2m1fn_x2":
        return 2 * size**3 / stopwatch.median(_float4_product(stopwatch.device, size))
    torch_dtype: torch.dtype = getattr(torch, dtype)
    rows, columns = (50 * torch.randn(2, size, size, device=stopwatch.device)).to(torch_dtype)
    unit_scale = torch.ones((), device=stopwatch.device)
    products: dict[torch.dtype, Callable[[], object]] = {
        torch.int8: lambda: torch._int_mm(rows, columns.t()),
        torch.float8_e4m3fn: lambda: torch._scaled_mm(
            rows, columns.t(), unit_scale, unit_scale, out_dtype=torch.bfloat16
        ),
    }
    return 2 * size**3 / stopwatch.median(products.get(torch_dtype, lambda: rows @ columns))


def _float4_product(device: torch.device, size: int) -> Callable[[], object]:
    """Return the library's product of two square matrices of 4-bit numbers, two in each byte, with scales of 1."""
    packed = torch.randint(256, (2, size, size // 2), dtype=torch.uint8, device=device)
    rows, columns = packed.view(torch.float4_e2m1fn_x2)
    # A scale for each 16 numbers along k. All of them are equal, so their order does not matter.
    scales = torch.ones(size * size // 16, device=device).to(torch.float8_e4m3fn)
    return lambda: torch._scaled_mm(rows, columns.t(), scales, scales, out_dtype=torch.bfloat16)
