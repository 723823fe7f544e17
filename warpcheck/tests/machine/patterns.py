"""Kernels whose traffic is known: good and bad access patterns, launched with blocks of 256 threads.

`benchmarks.hardware` measures the same kernels on a GPU.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["BLOCK", "FLOATS", "GRID", "PATTERNS", "Pattern"]

GRID, BLOCK = 4, 256
# The elements of each of the buffers a and b. They suffice for a stride of 32 floats per thread.
FLOATS = 1 << 17


@dataclass(frozen=True)
class Pattern:
    """A kernel body, in which ``i`` is the thread's index in the grid, ``t`` in the block, and ``s`` has 4096 shared
    floats.

    The other fields are means per request of a warp: sectors loaded and stored, and shared-memory wavefronts.
    """

    name: str
    body: str
    load_sectors: float = 0
    store_sectors: float = 0
    load_wavefronts: float = 0
    store_wavefronts: float = 0

    @property
    def source(self) -> str:
        """Return the CUDA C++ source of the whole kernel."""
        return f"""extern "C" __global__ void {self.name}(const float* __restrict__ a, float* __restrict__ b) {{
    __shared__ __align__(16) float s[4096];
    int t = threadIdx.x, i = blockIdx.x * blockDim.x + t, lane = t % 32;
    {self.body}
}}"""


def _shared_load(name: str, index: str, wavefronts: float) -> Pattern:
    body = f"""for (int k = t; k < 4096; k += blockDim.x) s[k] = a[k];
    __syncthreads();
    b[i] = s[{index}];"""
    return Pattern(name, body, 4, 4, wavefronts, 1)


def _wide_load(name: str, floats: int, index: str, wavefronts: float) -> Pattern:
    """Return a kernel that loads float2 or float4 from shared memory.

    The lanes of 8-byte loads form up to 2 groups, and those of 16-byte loads up to 4. Each group needs its own
    wavefronts.
    """
    body = f"""for (int k = t; k < 4096; k += blockDim.x) s[k] = a[k];
    __syncthreads();
    float{floats} v = ((float{floats}*)s)[{index}];
    b[i] = v.x + v.y{" + v.z + v.w" if floats == 4 else ""};"""
    return Pattern(name, body, 4, 4, wavefronts, 1)


def _shared_atomic(name: str, index: str, wavefronts: float) -> Pattern:
    """Return a kernel with atomics on shared memory. They are half of its stores to shared memory."""
    body = f"""int* n = (int*)s;
    n[t] = 0;
    __syncthreads();
    atomicAdd(&n[{index}], (int)a[i]);
    __syncthreads();
    b[i] = n[t];"""
    return Pattern(name, body, 4, 4, 1, wavefronts)


def _async_copy(name: str, size: int, to: str, start: str, sectors: float, wavefronts: float) -> Pattern:
    """Return a kernel with cp.async of `size` bytes per lane.

    Its request counts as a load from global memory and as a store to shared memory.
    """
    copy = f"cp.async.{'cg' if size == 16 else 'ca'}.shared.global [%0], [%1], {size};"
    body = f"""unsigned to = (unsigned)__cvta_generic_to_shared(&s[{to}]);
    asm volatile("{copy}" :: "r"(to), "l"(&a[{start}]));
    asm volatile("cp.async.wait_all;");
    __syncthreads();
    b[i] = s[{to}];"""
    return Pattern(name, body, sectors, 4, wavefronts, wavefronts)


PATTERNS = [
    Pattern("coalesced", "b[i] = a[i];", 4, 4),
    Pattern("stride_2", "b[i] = a[2 * i];", 8, 4),
    Pattern("stride_8", "b[i] = a[8 * i];", 32, 4),
    Pattern("stride_32", "b[i] = a[32 * i];", 32, 4),
    Pattern("store_stride_2", "b[2 * i] = a[i];", 4, 8),
    Pattern("store_stride_32", "b[32 * i] = a[i];", 4, 32),
    Pattern("misaligned", "b[i] = a[i + 1];", 5, 4),
    Pattern("misaligned_store", "b[i + 3] = a[i];", 4, 5),
    Pattern("broadcast", "b[i] = a[blockIdx.x];", 1, 4),
    Pattern("reversed", "b[i] = a[8191 - i];", 4, 4),
    Pattern("shuffled_in_a_warp", "b[i] = a[i ^ 21];", 4, 4),
    Pattern("vector_2", "((float2*)b)[i] = ((const float2*)a)[i];", 8, 8),
    Pattern("vector_4", "((float4*)b)[i] = ((const float4*)a)[i];", 16, 16),
    Pattern("half_of_the_lanes", "if (t & 1) b[i] = a[i];", 4, 4),
    Pattern("quarter_warps", "if (lane < 8) b[i] = a[i];", 1, 1),
    Pattern("bytes", "((char*)b)[i] = ((const char*)a)[i];", 1, 1),
    Pattern("half_words", "((short*)b)[i] = ((const short*)a)[i];", 2, 2),
    Pattern("same_sector_pairs", "b[i] = a[i / 2 * 8];", 16, 4),
    _shared_load("no_conflict", "t", 1),
    _shared_load("conflict_2", "2 * t", 2),
    _shared_load("conflict_4", "4 * t", 4),
    _shared_load("conflict_8", "8 * lane", 8),
    _shared_load("conflict_16", "16 * lane", 16),
    _shared_load("conflict_32", "32 * lane", 32),
    _shared_load("shared_broadcast", "t / 32", 1),
    _shared_load("padded_column", "33 * lane", 1),
    _shared_load("swizzled_column", "32 * lane + (lane ^ 5)", 1),
    _shared_load("multicast", "t / 4", 1),
    _shared_load("odd_stride", "3 * t", 1),
    _wide_load("float2_broadcast", 2, "t / 32", 1),
    _wide_load("float2_pairs", 2, "t / 2", 1),
    _wide_load("float2_pairs_apart", 2, "t / 4 * 2 + t % 2", 1),
    _wide_load("float2_halves_alike", 2, "t % 16", 2),
    _wide_load("float2_stride_2", 2, "2 * t", 4),
    _wide_load("float4_broadcast", 4, "t / 32", 2),
    _wide_load("float4_pairs", 4, "t / 2", 2),
    _wide_load("float4_pairs_apart", 4, "t / 4 * 2 + t % 2", 2),
    _wide_load("float4_quarters_alike", 4, "t % 8", 4),
    _wide_load("float4_stride_2", 4, "2 * t", 8),
    _wide_load("float4_column", 4, "8 * lane", 32),
    _wide_load("float4_conflict_of_pairs", 4, "lane / 2 % 2 * 8", 4),
    Pattern(
        "conflict_store_8",
        """s[8 * lane] = a[i];
    __syncthreads();
    b[i] = s[8 * (31 - lane)];""",
        4,
        4,
        8,
        8,
    ),
    Pattern(
        "shared_float4",
        """((float4*)s)[t] = ((const float4*)a)[i];
    __syncthreads();
    ((float4*)b)[i] = ((float4*)s)[255 - t];""",
        16,
        16,
        4,
        4,
    ),
    Pattern(
        "shared_float2",
        """((float2*)s)[t] = ((const float2*)a)[i];
    __syncthreads();
    ((float2*)b)[i] = ((float2*)s)[255 - t];""",
        8,
        8,
        2,
        2,
    ),
    Pattern("two_sides", "if (t & 1) b[i] = sqrtf(a[i]); else b[i] = __expf(a[i + 4096]);", 4, 4),
    Pattern(
        "trip_counts",
        """float x = 0;
    #pragma unroll 1
    for (int k = 0; k <= lane; ++k) x += a[i + 32 * k];
    b[i] = x;""",
        2.5,
        4,
    ),
    Pattern("reduction", "atomicAdd(&b[i], a[i]);", 4, 4),
    Pattern("reduction_in_pairs", "atomicAdd(&b[i / 2], a[i]);", 4, 4),
    Pattern("reduction_to_one", "atomicAdd(&b[blockIdx.x], a[i]);", 4, 32),
    Pattern("atomic_stride_8", "b[i + 65536] = atomicAdd(&b[8 * i], a[i]);", 4, 18),
    _shared_atomic("shared_atomic", "t", 1),
    _shared_atomic("shared_atomic_in_pairs", "t / 2", 1.5),
    _shared_atomic("shared_atomic_to_one", "t / 32", 16.5),
    _shared_atomic("shared_atomic_conflict", "32 * (lane % 8) + lane / 8", 4.5),
    _async_copy("async_copy_16", 16, "4 * t", "4 * i", 16, 4),
    _async_copy("async_copy_4", 4, "t", "i", 4, 1),
    _async_copy("async_copy_conflict_8", 4, "8 * lane", "i", 4, 8),
    _async_copy("async_copy_stride_8", 4, "t", "8 * i", 32, 1),
]
