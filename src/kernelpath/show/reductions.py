"""Provide sums and histograms between the simplest kernel and the reference, which the notebook of week 6 counts.

The notebook does not print them, because each solves a star of an exercise.
"""

from __future__ import annotations

from functools import cache

import torch

from warpcheck.frontends import cuda

_SUM = r"""
enum { ATOMICS, LAST_BLOCK, GRID, SECOND_LAUNCH };

template <int WIDTH>
struct alignas(4 * WIDTH) Floats {
    float of[WIDTH];
};

__device__ float partial[8192];
__device__ unsigned int finished;

__device__ float over_block(float sum) {  // thread 0 gets the sum
    __shared__ float of_warp[32];
    for (int step = 16; step > 0; step /= 2) sum += __shfl_down_sync(0xffffffff, sum, step);
    if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = sum;
    __syncthreads();
    sum = threadIdx.x < blockDim.x / 32 ? of_warp[threadIdx.x] : 0.0f;
    __syncthreads();
    for (int step = 16; step > 0; step /= 2) sum += __shfl_down_sync(0xffffffff, sum, step);
    return sum;
}

__device__ float over_partial() {
    float sum = 0;
    for (int i = threadIdx.x; i < gridDim.x; i += blockDim.x) sum += __ldcg(&partial[i]);
    return over_block(sum);
}

template <int WIDTH, int LOADS, int FINISH>
__global__ void vector_sum(const Floats<WIDTH>* x, float* out, long long count) {
    const long long thread = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    const long long threads = (long long)gridDim.x * blockDim.x;
    float sum = 0;
    #pragma unroll 1
    for (long long first = thread; first < count; first += LOADS * threads) {
        Floats<WIDTH> loaded[LOADS];
        #pragma unroll
        for (int k = 0; k < LOADS; ++k) {
            loaded[k] = first + k * threads < count ? x[first + k * threads] : Floats<WIDTH>{};
        }
        #pragma unroll
        for (int k = 0; k < LOADS; ++k) {
            for (float one : loaded[k].of) sum += one;
        }
    }
    sum = over_block(sum);
    if (FINISH == ATOMICS) {
        if (threadIdx.x == 0) atomicAdd(out, sum);
    } else if (FINISH == SECOND_LAUNCH) {
        if (threadIdx.x == 0) out[blockIdx.x] = sum;
    } else {
        if (threadIdx.x == 0) partial[blockIdx.x] = sum;
        if (FINISH == LAST_BLOCK) {
            __shared__ bool last;
            if (threadIdx.x == 0) {
                __threadfence();
                last = atomicInc(&finished, gridDim.x - 1) == gridDim.x - 1;
            }
            __syncthreads();
            if (!last) return;
            __threadfence();
        }
#ifdef COOPERATIVE
        if (FINISH == GRID) {
            cooperative_groups::this_grid().sync();
            if (blockIdx.x > 0) return;
        }
#endif
        sum = over_partial();
        if (threadIdx.x == 0) out[0] = sum;
    }
}
"""
"""The kernel of every step of `vector_sum`.

Of the two barriers in over_block, the second keeps a later call from overwriting of_warp while a warp still reads it.
The last block adds the sums of all blocks: a fence before the ticket makes a block's sum visible before its ticket, and
a fence after it orders the reads of the sums. atomicInc wraps around to 0, so `finished` is ready for the next launch.
__ldcg reads from L2, since L1 is not coherent between multiprocessors. Source: CUDA C++ Programming Guide, "Memory
Fence Functions".
"""

_HISTOGRAM = r"""
constexpr int BINS = 256, COPIES = 32, LOADS = 2;
enum { BLOCK, WARP, LANE };

template <int OWNER>
__device__ int place(int value, int copy) {
    return OWNER == LANE ? value * COPIES + copy : copy * BINS + value;
}

template <int OWNER, bool CONSTANT>
__global__ void __launch_bounds__(1024, 2) histogram(const uint4* x, int* counts, int vectors, int one) {
    __shared__ int copies[BINS * COPIES];
    for (int i = threadIdx.x; i < BINS * COPIES; i += blockDim.x) copies[i] = 0;
    __syncthreads();
    const int copy = OWNER == LANE ? threadIdx.x % 32 : OWNER == WARP ? threadIdx.x / 32 : 0;
    const int step = gridDim.x * blockDim.x;
    for (int first = blockIdx.x * blockDim.x + threadIdx.x; first < vectors; first += LOADS * step) {
        uint4 loaded[LOADS];
        for (int k = 0; k < LOADS; ++k) {
            if (first + k * step < vectors) loaded[k] = x[first + k * step];
        }
        for (int k = 0; k < LOADS; ++k) {
            if (first + k * step >= vectors) break;
            for (int e = 0; e < 16; ++e) {
                const int value = reinterpret_cast<const unsigned char*>(&loaded[k])[e];
                atomicAdd(&copies[place<OWNER>(value, copy)], CONSTANT ? 1 : one);
            }
        }
    }
    __syncthreads();
    for (int bin = threadIdx.x; bin < BINS; bin += blockDim.x) {
        int sum = 0;
        for (int k = 0; k < COPIES; ++k) sum += copies[place<OWNER>(bin, OWNER == LANE ? (bin + k) % COPIES : k)];
        atomicAdd(&counts[bin], sum);
    }
}
"""
"""The kernel of every step of `histogram`.

With a copy for each lane, a counter of lane l is in bank l, whatever the value is, so no two lanes conflict. The final
sums begin at copy `bin` for the same reason: neighboring threads then read from different banks.
"""

FINISHES = ("atomics", "last block", "grid barrier", "second launch")
"""The ways to combine the sums of the blocks, in the order of the kernel's enumeration."""

OWNERS = ("block", "warp", "lane")
"""The owners of a private copy of the counters, in the order of the kernel's enumeration."""

_THREADS = 256


@cache
def _sum(width: int, loads: int, finish: str) -> cuda.Kernel:
    """Return one object for each variant, so that each is loaded once."""
    cooperative = finish == "grid barrier"
    header = "#define COOPERATIVE\n#include <cooperative_groups.h>\n" if cooperative else ""
    name = f"vector_sum<{width}, {loads}, {FINISHES.index(finish)}>"
    return cuda.Kernel("reductions.cu", header + _SUM, name, cooperative=cooperative)


@cache
def _histogram(owner: str, constant: bool) -> cuda.Kernel:
    name = f"histogram<{OWNERS.index(owner)}, {str(constant).lower()}>"
    return cuda.Kernel("reductions.cu", _HISTOGRAM, name)


def vector_sum(
    x: torch.Tensor, width: int = 4, loads: int = 4, finish: str = "atomics", resident: int = 4
) -> torch.Tensor:
    """Return the sum of a float32 vector whose length is a multiple of `width`.

    A thread has `loads` loads of `width` floats in flight.

    Args:
        finish: One of FINISHES.
        resident: Blocks of 256 threads per SM.
    """
    count = x.numel() // width
    blocks = min(-(-count // (_THREADS * loads)), resident * _processors(x.device))
    kernel = _sum(width, loads, finish)
    if finish == "second launch":
        sums = x.new_empty(blocks)
        out = x.new_empty(1)
        kernel[blocks, _THREADS](x, sums, count)
        _sum(1, 4, finish)[1, _THREADS](sums, out, blocks)
        return out
    out = x.new_zeros(1) if finish == "atomics" else x.new_empty(1)
    kernel[blocks, _THREADS](x, out, count)
    return out


def histogram(x: torch.Tensor, owner: str = "lane", constant: bool = True) -> torch.Tensor:
    """Count how often each byte occurs, in shared memory. The number of bytes is a multiple of 16.

    Args:
        owner: One of OWNERS.
        constant: Let the kernel add the constant 1, otherwise an argument with the value 1.
    """
    vectors = x.numel() // 16
    counts = torch.zeros(256, dtype=torch.int32, device=x.device)
    blocks = min(-(-vectors // 1024), 2 * _processors(x.device))
    _histogram(owner, constant)[blocks, 1024](x, counts, vectors, 1)
    return counts


def _processors(device: torch.device) -> int:
    return torch.cuda.get_device_properties(device).multi_processor_count if device.type == "cuda" else 8
