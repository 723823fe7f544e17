"""Compare requests, sectors, wavefronts, and divergence with values derived from the access pattern."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from machine.launching import Run, aligned, buffer, compile_ptx
from machine.patterns import BLOCK, FLOATS, GRID, PATTERNS, Pattern
from warpcheck import simt
from warpcheck.counters import by_access
from warpcheck.layout import Access

WARPS = GRID * BLOCK // 32


def launch(pattern: Pattern) -> simt.Launch:
    module, name = compile_ptx(pattern.source, pattern.name)
    a = aligned(FLOATS)
    b = aligned(FLOATS)
    args = [a.ctypes.data, b.ctypes.data]
    buffers = [buffer("a", a), buffer("b", b)]
    return module.launch(name, grid=(GRID,), block=(BLOCK,), args=args, buffers=buffers)


@pytest.mark.parametrize("pattern", PATTERNS, ids=lambda pattern: pattern.name)
def test_traffic_of_a_pattern(pattern: Pattern) -> None:
    totals = launch(pattern).totals
    assert totals.global_load_sectors == pattern.load_sectors * totals.global_load_requests
    assert totals.global_store_sectors == pattern.store_sectors * totals.global_store_requests
    assert totals.shared_load_wavefronts == pattern.load_wavefronts * totals.shared_load_requests
    assert totals.shared_store_wavefronts == pattern.store_wavefronts * totals.shared_store_requests
    assert totals.global_store_requests in (WARPS, 2 * WARPS)


def test_bytes_and_sectors_per_request(run: Run) -> None:
    source = """__global__ void kernel(const float* a, float* b) {
        int i = blockIdx.x * blockDim.x + threadIdx.x;
        float x = a[8 * i];
        b[i] = x;
        if (i < 40) b[64 + i] = x;
    }"""
    report = run(source, 1, 64, aligned(512), aligned(128))
    load, store = report.lines[3], report.lines[5]
    assert (load.global_load_requests, load.global_load_sectors, load.global_load_bytes) == (2, 64, 256)
    assert load.sectors_per_request == 32
    assert (store.global_store_requests, store.global_store_sectors, store.global_store_bytes) == (2, 5, 160)
    assert report.totals.sectors_per_request == (64 + 8 + 5) / 6


@pytest.mark.parametrize(
    ("index", "scattered"),
    [
        ("i", 0),
        ("i + 1", 0),
        ("2 * i", 0),
        # A request may touch 9 sectors: twice the 4 sectors that 128 bytes fill, and one more. The launch has two
        # warps, each of which makes one request.
        ("4 * i", 2 * (16 - 9)),
        ("8 * i", 2 * (32 - 9)),
        ("i < 32 ? 8 * i : i", 32 - 9),
        ("i / 8 * 16 + i % 8 + 1", 0),
    ],
)
def test_requests_that_touch_too_many_sectors_are_scattered(index: str, scattered: int, run: Run) -> None:
    """A request is scattered beyond twice the sectors that 128 bytes fill, plus one.

    Pieces of 32 bytes may be anywhere.
    """
    source = f"""__global__ void kernel(const float* a, float* b) {{
        int i = threadIdx.x;
        b[i] = a[{index}];
    }}"""
    (load, store) = by_access(run(source, 1, 64, aligned(512), aligned(64)).accesses)
    assert (load.scattered, store.scattered) == (scattered, 0)


def test_accesses_keep_the_buffer_names_of_their_launch() -> None:
    """Accesses are collected only when they are read. By then, another launch may have renamed the buffer."""
    module, name = compile_ptx("__global__ void kernel(float* a) { a[threadIdx.x] = 1; }")
    memory = simt.Memory()
    a = aligned(32)
    options: dict[str, Any] = {"grid": (1,), "block": (32,), "args": [a.ctypes.data], "memory": memory}
    launches = [module.launch(name, buffers=[buffer(tensor, a)], **options) for tensor in ("first", "second")]
    assert [[access.buffer for access in launch.accesses] for launch in launches] == [["first"], ["second"]]


def test_bank_conflicts_are_excess_wavefronts(run: Run) -> None:
    source = """__global__ void kernel(const float* a, float* b) {
        __shared__ float tile[32][32];
        tile[threadIdx.y][threadIdx.x] = a[32 * threadIdx.y + threadIdx.x];
        __syncthreads();
        b[32 * threadIdx.y + threadIdx.x] = tile[threadIdx.x][threadIdx.y];
    }"""
    a = aligned((32, 32))
    b = aligned((32, 32))
    a[...] = np.arange(1024).reshape(32, 32)
    report = run(source, 1, (32, 32), a, b)
    assert (b == a.T).all()
    assert report.lines[3].bank_conflicts_per_request == 0
    assert report.lines[5].bank_conflicts_per_request == 31
    assert report.totals.bank_conflicts == 32 * 31


def test_divergence_and_instruction_classes(run: Run) -> None:
    source = """__global__ void kernel(const float* a, float* b, int n) {
        float v = a[threadIdx.x];
        for (int k = 0; k < n + threadIdx.x % 2; k++)
            v = v * v + 1;
        b[threadIdx.x] = v;
    }"""
    report = run(source, 1, 64, aligned(64), aligned(64), 100)
    assert report.totals.divergent_branches >= 2
    assert report.totals.branches > report.totals.divergent_branches
    loop = report.lines[4]
    assert loop.instructions["float32"] == 32 * 100 + 32 * 101
    assert 31 < loop.lanes_per_instruction < 32
    assert report.instructions == report.totals.active_lanes


@pytest.mark.parametrize(
    ("index", "same_address", "sectors"),
    [
        ("i", 1, 4),
        ("0", 1, 1),
        ("threadIdx.x / 64", 32, 32),
        ("i / 2", 2, 4),
        ("i % 8 ? i : 0", 4, 7),
        ("i < 20 ? 3 : i", 20, 22),
    ],
)
@pytest.mark.parametrize("array", ["out", "bins"])
def test_lanes_of_an_atomic_with_the_same_address(
    array: str, index: str, same_address: int, sectors: int, run: Run
) -> None:
    source = f"""__global__ void kernel(int* out) {{
        __shared__ int bins[32];
        bins[threadIdx.x % 32] = 0;
        __syncthreads();
        int i = threadIdx.x % 32;
        atomicAdd(&{array}[{index}], i + 1);
    }}"""
    accesses = by_access(run(source, 1, 64, aligned(32, np.int32)).accesses)
    (atomic,) = (access for access in accesses if access.access == Access.ATOMIC)
    assert (atomic.requests, atomic.same_address) == (2, 2 * same_address)
    assert atomic.sectors == (2 * sectors if array == "out" else 0)
    assert all(access.same_address == 0 for access in accesses if access is not atomic)


def test_a_vector_access_is_one_request(run: Run) -> None:
    source = "__global__ void kernel(const float4* a, float4* b) { b[threadIdx.x] = a[threadIdx.x]; }"
    report = run(source, 1, 32, aligned(128), aligned(128))
    assert (report.totals.global_load_requests, report.totals.global_load_sectors) == (1, 16)
    assert (report.totals.global_store_requests, report.totals.global_store_sectors) == (1, 16)


def test_predicated_off_warps_make_no_request(run: Run) -> None:
    source = "__global__ void kernel(const float* a, float* b, int n) { if (threadIdx.x < n) b[threadIdx.x] = a[0]; }"
    report = run(source, 1, 256, aligned(1), aligned(256), 40)
    assert report.totals.global_load_requests == 2
    assert report.totals.global_store_requests == 2


def test_counters_of_inlined_code_belong_to_the_callers_line(run: Run) -> None:
    source = """#include <cuda_bf16.h>
    __global__ void kernel(const __nv_bfloat16* a, float* b) {
        float x = __bfloat162float(a[threadIdx.x]);
        b[threadIdx.x] = x;
    }"""
    a = np.arange(32, dtype=np.float32).view(np.uint32) >> 16
    b = aligned(32)
    report = run(source, 1, 32, a.astype(np.uint16), b)
    assert (b == np.arange(32)).all()
    assert max(report.lines) <= 5


def test_accesses_are_merged_per_source_line_and_tensor(run: Run) -> None:
    source = """__global__ void kernel(const float* a, float* b, const float* c, int n) {
        float sum = 0;
        for (int k = 0; k < n; k++) sum += a[8 * (32 * k + threadIdx.x)] * c[k];
        b[threadIdx.x] = sum;
    }"""
    report = run(source, 1, 32, aligned(256 * 10), aligned(32), aligned(10), 10)
    accesses = [
        (access.line, access.buffer, access.requests, access.sectors, access.least_sectors)
        for access in by_access(report.accesses)
    ]
    assert accesses == [(3, "a", 10, 320, 40), (3, "c", 10, 10, 40), (4, "b", 1, 4, 4)]
    assert len(report.accesses) > 3, "the compiler no longer unrolls the loop, so nothing is merged"


def test_constants_and_parameters_are_not_global_traffic(run: Run) -> None:
    source = """__constant__ float weights[64] = {1, 2, 3};
    struct S { float x[32]; };
    __global__ void kernel(float* c, S s) { c[threadIdx.x] = weights[threadIdx.x] + s.x[threadIdx.x]; }"""
    c = aligned(32)
    totals = run(source, 1, 32, c, np.arange(32, dtype=np.float32).tobytes()).totals
    assert c.tolist() == [t + (t + 1 if t < 3 else 0) for t in range(32)]
    assert (totals.global_load_sectors, totals.global_load_bytes) == (0, 0)
    assert (totals.global_store_sectors, totals.global_store_bytes) == (4, 128)


@pytest.mark.parametrize(
    ("index", "accesses"), [("x[0]", 1), ("threadIdx.x", 32), ("threadIdx.x / 8", 4), ("threadIdx.x % 2", 2)]
)
def test_constant_memory_needs_one_access_per_distinct_address(run: Run, index: str, accesses: int) -> None:
    source = f"""__constant__ float weights[64] = {{1, 2, 3}};
    __global__ void kernel(float* c, const int* x) {{ c[threadIdx.x] = weights[{index}]; }}"""
    totals = run(source, 2, 32, aligned(32), aligned(1, np.int32)).totals
    assert (totals.constant_load_requests, totals.constant_load_accesses) == (2, 2 * accesses)
    assert totals.constant_load_bytes == 2 * 32 * 4


@pytest.mark.parametrize("mask", ["0xffffffffu", "0xffffu << (threadIdx.x & 16)"])
def test_shuffles_of_half_warps_count_each_lane_once(run: Run, mask: str) -> None:
    source = f"""__global__ void kernel(int* c) {{
        c[threadIdx.x] = __shfl_xor_sync({mask}, (int)threadIdx.x, 1);
    }}"""
    c = aligned(32, np.int32)
    lines = run(source, 1, 32, c).lines
    assert c.tolist() == [t ^ 1 for t in range(32)]
    assert lines[2].instructions["warp and barrier"] == 32


def test_asynchronous_copies_are_distinguished_from_stores(run: Run) -> None:
    source = """#include <cuda_pipeline.h>
__global__ void kernel(const float4* x, float4* y) {
    __shared__ float4 copied[32], stored[64];
    __pipeline_memcpy_async(&copied[threadIdx.x], &x[threadIdx.x], 16);
    stored[threadIdx.x] = x[threadIdx.x];
    stored[threadIdx.x + 32] = x[threadIdx.x];
    __pipeline_commit();
    __pipeline_wait_prior(0);
    float4 a = copied[threadIdx.x], b = stored[threadIdx.x], c = stored[threadIdx.x + 32];
    y[threadIdx.x] = make_float4(a.x, b.y, c.z, a.w);
}"""
    accesses = by_access(run(source, 1, 32, aligned(128), aligned(128)).accesses)
    stores = {
        access.buffer: (access.least_wavefronts, access.asynchronous)
        for access in accesses
        if access.access == Access.STORE
    }
    assert stores["copied"] == (4, 4)
    assert stores["stored"] == (4, 0)
