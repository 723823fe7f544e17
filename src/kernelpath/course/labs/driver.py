"""Query the occupancy from this GPU's driver, for kernels with many register counts. Needs a GPU."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import torch

# A kernel that has all its values in registers at once, because the addresses may be equal.
HOLD = r"""
template <int VALUES>
__global__ void hold(float* x) {
    float values[VALUES];
    #pragma unroll
    for (int k = 0; k < VALUES; ++k) values[k] = x[k * blockDim.x + threadIdx.x];
    #pragma unroll
    for (int k = 0; k < VALUES; ++k) x[k * blockDim.x + threadIdx.x] = values[VALUES - 1 - k];
}
"""

# The numbers of values that the kernels hold. A compiler decides how many registers that takes.
VALUE_COUNTS = (4, 20, 28, 36, 52, 76, 100, 124, 156, 180, 220)


def active_blocks(threads: int, registers: int, shared: int) -> int:
    """Call cuOccupancyMaxActiveBlocksPerMultiprocessor for the kernel of `functions` with so many registers."""
    from cuda.bindings import driver

    return int(call(driver.cuOccupancyMaxActiveBlocksPerMultiprocessor, functions()[registers], threads, shared))


def this_gpu() -> dict[str, Any]:
    """Return the resources of a multiprocessor of the current GPU."""
    from cuda.bindings import driver

    attribute = driver.CUdevice_attribute
    device = call(driver.cuDeviceGet, torch.cuda.current_device())

    def limit(name: str) -> int:
        return int(call(driver.cuDeviceGetAttribute, getattr(attribute, f"CU_DEVICE_ATTRIBUTE_{name}"), device))

    return {
        "name": "this GPU",
        "warps": limit("MAX_THREADS_PER_MULTIPROCESSOR") // 32,
        "blocks": limit("MAX_BLOCKS_PER_MULTIPROCESSOR"),
        "registers": limit("MAX_REGISTERS_PER_MULTIPROCESSOR"),
        "shared": limit("MAX_SHARED_MEMORY_PER_MULTIPROCESSOR"),
        # The driver has no attribute for the unit in which shared memory is allocated. Source: CUDA's cuda_occupancy.h,
        # cudaOccSMemAllocationGranularity.
        "shared_unit": 128 if limit("COMPUTE_CAPABILITY_MAJOR") >= 8 else 256,
        "shared_reserved": limit("RESERVED_SHARED_MEMORY_PER_BLOCK"),
    }


@cache
def functions() -> dict[int, Any]:
    """Return compiled kernels of this GPU by registers per thread, each allowed all the shared memory of a block."""
    from cuda.bindings import driver

    from warpcheck.frontends.nvrtc import (  # imported here because only a GPU needs it
        compile_kernel,
        device_architecture,
    )

    torch.cuda.synchronize()  # makes torch's context the current one
    architecture = device_architecture(*torch.cuda.get_device_capability())
    attribute = driver.CUfunction_attribute
    properties: Any = torch.cuda.get_device_properties()
    max_shared = properties.shared_memory_per_block_optin
    by_registers = {}
    for value_count in VALUE_COUNTS:
        binary = compile_kernel(HOLD, "hold.cu", f"hold<{value_count}>", architecture)
        module = call(driver.cuModuleLoadData, binary.cubin)
        function = call(driver.cuModuleGetFunction, module, binary.mangled.encode())
        # Without this, a kernel may have 48 KiB of dynamic shared memory at most.
        call(driver.cuFuncSetAttribute, function, attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, max_shared)
        by_registers[int(call(driver.cuFuncGetAttribute, attribute.CU_FUNC_ATTRIBUTE_NUM_REGS, function))] = function
    return by_registers


def call(function: Callable[..., Any], *arguments: Any) -> Any:
    """Call the driver's interface. Raises RuntimeError with the error's name."""
    status, *results = function(*arguments)
    if status != 0:
        raise RuntimeError(f"{function.__name__} failed: {status.name}")
    return results[0] if results else None
