"""Compare the occupancy with values from NVIDIA's occupancy calculator."""

from __future__ import annotations

import pytest
import torch

from warpcheck.frontends import cuda
from warpcheck.occupancy import Occupancy, occupancy, registers


@pytest.mark.parametrize(
    ("threads", "register_count", "shared", "device", "expected"),
    [
        # Threads per block, registers per thread, bytes of shared memory per block, the architecture.
        (256, 32, 0, "sm_80", Occupancy(8, 64, 1.0, "warps")),
        (256, 40, 0, "sm_80", Occupancy(6, 48, 0.75, "registers")),
        (256, 64, 0, "sm_90", Occupancy(4, 32, 0.5, "registers")),
        (1024, 33, 0, "sm_90", Occupancy(1, 32, 0.5, "registers")),
        (32, 16, 0, "sm_80", Occupancy(32, 32, 0.5, "blocks")),
        (128, 16, 48 * 1024, "sm_80", Occupancy(3, 12, 12 / 64, "shared memory")),
        (128, 16, 48 * 1024, "sm_90", Occupancy(4, 16, 0.25, "shared memory")),
        (512, 16, 0, "sm_86", Occupancy(3, 48, 1.0, "warps")),
        (32, 192, 0, "sm_90", Occupancy(8, 8, 0.125, "registers")),
        (256, 32, 16 * 1024, "sm_75", Occupancy(4, 32, 1.0, "warps")),
        (64, 32, 16 * 1024 + 1, "sm_75", Occupancy(3, 6, 6 / 32, "shared memory")),
    ],
)
def test_occupancy_matches_the_calculator(
    threads: int, register_count: int, shared: int, device: str, expected: Occupancy
) -> None:
    assert occupancy(threads, register_count, shared, device) == expected


def test_a_block_that_does_not_fit_on_an_sm_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"too many resources requested for launch: .* exceeds an SM's shared memory"):
        occupancy(128, 16, 200 * 1024)


def test_registers_are_counted_by_ptxas() -> None:
    """Eight loads in flight need at least eight registers; bounding the block to 1024 threads allows at most 64."""
    source = """extern "C" __global__ void __launch_bounds__(1024) kernel(const double* a, double* b) {
        double v[64];
        for (int k = 0; k < 64; k++) v[k] = a[threadIdx.x * 64 + k];
        for (int k = 0; k < 64; k++) b[threadIdx.x * 64 + 63 - k] = v[k] * v[63 - k];
    }"""
    ptx = cuda.compile_kernel(source, "kernel.cu", "kernel", "compute_80").ptx
    count = registers(ptx, "kernel")
    assert count is not None
    assert 32 < count <= 64
    assert registers(ptx, "missing") is None


@pytest.mark.parametrize(
    ("threads", "bounds", "fits"), [(1024, "", False), (256, "", True), (1024, "__launch_bounds__(1024)", True)]
)
def test_a_launch_that_needs_more_registers_than_an_sm_has_is_refused(threads: int, bounds: str, fits: bool) -> None:
    source = f"""extern "C" __global__ void {bounds} kernel(const float* a, float* b) {{
        float v[64];
        for (int k = 0; k < 64; k++) v[k] = a[k * blockDim.x + threadIdx.x];
        __syncthreads();
        for (int k = 0; k < 64; k++) b[k * blockDim.x + threadIdx.x] = v[k] * v[63 - k];
    }}"""
    a = torch.randn(64 * threads)
    b = torch.empty(64 * threads)
    kernel = cuda.Kernel("kernel.cu", source, "kernel")[1, threads]
    if fits:
        kernel(a, b)
        assert b[0] == a[0] * a[63 * threads]
    else:
        with pytest.raises(ValueError, match=r"too many resources requested for launch: .* exceeds an SM's registers"):
            kernel(a, b)
