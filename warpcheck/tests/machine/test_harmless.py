"""Test code that looks faulty and is correct, and code that looks correct and is faulty."""

from __future__ import annotations

import numpy as np
import pytest

from machine.launching import Run, aligned
from warpcheck import simt
from warpcheck.simt import FaultKind

N = 1000  # floats in a, b, c


HARMLESS = {
    "a clamped read that nobody uses": """float v = a[min(threadIdx.x, 99)]; asm volatile("" :: "f"(v));
        if (threadIdx.x < 100) a[threadIdx.x] = v + 1;""",
    "a clamped read that nobody uses after many steps": """float v = a[min(threadIdx.x, 95)];
        #pragma unroll
        for (int k = 0; k < 60; k++) v = v * __shfl_xor_sync(~0u, v, 1 << k % 5) + v;
        if (threadIdx.x < 96) a[threadIdx.x] = v;""",
    "clamped reads in a loop that nobody uses": """for (int i = threadIdx.x; i < 300; i += 256) {
            float v[2];
            for (int u = 0; u < 2; u++) v[u] = a[min(299, i + u * 128)];
            for (int u = 0; u < 2; u++) if (i + u * 128 < 300) a[i + u * 128] = v[u] * 2;
        }""",
    "clamped reads in a loop that a select drops": """for (int i = threadIdx.x; i < 300; i += 128) {
            float v = a[min(i + 128, 299)]; asm volatile("" :: "f"(v));
            a[i] = i < 171 ? 1.0f : i == 299 ? 2.0f : 3.0f; c[i] = i + 128 < 172 ? 0 * v : 1;
        }""",
    "a tile of the next step that the last step reads in vain": """__shared__ float s[2][128];
        int t = threadIdx.x;
        float v = 0, sum = 0;
        s[0][t] = a[t];
        __syncthreads();
        v = s[0][127 - t];
        #pragma unroll 1
        for (int k = 0; k < n / 1000; k++) {
            if (k + 1 < n / 1000) s[(k + 1) % 2][t] = a[t];
            __syncthreads();
            float next = s[(k + 1) % 2][127 - t]; asm volatile("" :: "f"(next));
            sum += v;
            __syncthreads();
            v = next;
        }
        c[t] = sum;""",
    "an unwritten value that nobody uses": """__shared__ float s[128];
        if (threadIdx.x < 100) s[threadIdx.x] = 1;
        __syncthreads();
        float v = s[127 - threadIdx.x]; asm volatile("" :: "f"(v));
        if (threadIdx.x > 27) c[threadIdx.x] = v;""",
    "an unwritten value of one arm that no lane stores after a shuffle": """__shared__ float s[128];
        int row = threadIdx.x / 32, lane = threadIdx.x % 32;
        if (row < 3) s[threadIdx.x] = a[threadIdx.x];
        float v = -1;
        if (lane < 29) asm volatile("ld.shared.f32 %0, [%1];"
            : "=f"(v) : "r"((unsigned)__cvta_generic_to_shared(s + threadIdx.x)));
        else s[threadIdx.x] = v;
        for (int k = 16; k; k /= 2) v = fmaxf(v, __shfl_xor_sync(~0u, v, k));
        if (row < 3) c[threadIdx.x] = v;""",
    "volatile within a warp": """__shared__ volatile float s[128];
        s[threadIdx.x] = a[threadIdx.x]; __syncwarp();
        c[threadIdx.x] = s[threadIdx.x ^ 1]; __syncwarp(); s[threadIdx.x] = 2;""",
    "half-warps that shuffle at once": """unsigned half = 0xffffu << (threadIdx.x & 16);
        c[threadIdx.x] = __shfl_xor_sync(half, __shfl_xor_sync(half, a[threadIdx.x], 1), 2);
        __syncwarp(half);
        if (__ballot_sync(half, 1) != half) c[threadIdx.x] = a[n];""",
    "collectives of the lanes that have not left": """if (threadIdx.x % 32 >= 16) return;
        unsigned here = __ballot_sync(~0u, 1), sum = __reduce_add_sync(~0u, 2); __syncwarp();
        c[threadIdx.x] = __shfl_sync(~0u, a[threadIdx.x], 15);
        if (here != 0xffff || sum != 32 || !__all_sync(~0u, 1)) c[threadIdx.x] = a[n];""",
    "an address of shared memory that wraps around": """__shared__ float s[128];
        s[threadIdx.x] = a[threadIdx.x];
        unsigned below = 4 * threadIdx.x + (unsigned)__cvta_generic_to_shared(s) - 1024; float v;
        asm volatile("ld.shared.f32 %0, [%1+1024];" : "=f"(v) : "r"(below));
        if (v != a[threadIdx.x]) c[0] = a[n];""",
    "stores to the source of a copy behind its wait, and beside it": """__shared__ float s[128];
        unsigned to = (unsigned)__cvta_generic_to_shared(s + threadIdx.x), none = 0;
        for (int k = 0; k < 2; k++) {
            asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" :: "r"(to), "l"(a + threadIdx.x));
            asm volatile("cp.async.commit_group;");
            a[threadIdx.x + 128] = k;
            asm volatile("cp.async.wait_group 0;");
            a[threadIdx.x] = k + 1;
        }
        asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" :: "r"(to), "l"(a + threadIdx.x), "r"(none));
        a[threadIdx.x] = 5;
        asm volatile("cp.async.wait_all;");""",
    "two barriers at once": """if (threadIdx.x < 64) asm volatile("bar.sync 1, 64;" ::: "memory");
        __syncthreads();""",
    "warps that have left": """if (threadIdx.x >= 64) return;
        __shared__ float s[64];
        s[threadIdx.x] = a[threadIdx.x];
        __syncthreads();
        c[threadIdx.x] = s[63 - threadIdx.x];""",
    "all threads write the same value": "if (a[threadIdx.x] == 0) c[0] = 7;",
    "atomics of several blocks": "atomicAdd(c + threadIdx.x % 8, 1.0f);",
    "a counter that is zeroed before __syncwarp": """__shared__ int s[4];
        int* count = s + threadIdx.x / 32;
        if (threadIdx.x % 32 == 0) *count = 0;
        __syncwarp();
        atomicAdd(count, 1);
        __syncwarp();
        if (threadIdx.x % 32 == 0) c[threadIdx.x] = *count;""",
    "a counter that the last block to finish zeroes": """__shared__ bool last;
        atomicAdd(c, 1.0f);
        __threadfence();
        __syncthreads();
        if (threadIdx.x == 0) last = atomicAdd(c + 1, 1.0f) == gridDim.x - 1;
        __syncthreads();
        if (last && threadIdx.x == 0) { c[2] = c[0]; c[0] = 0; c[1] = 0; }""",
    "a counter that a block zeroes before it tells the others": """if (blockIdx.x == 0 && threadIdx.x == 0) {
            c[0] = 0;
            __threadfence();
            atomicExch((int*)c + 1, 1);
        }
        if (threadIdx.x == 0) while (atomicAdd((int*)c + 1, 0) == 0) {}
        __syncthreads();
        atomicAdd(c, 1.0f);""",
    "a counter that is used again behind barriers": """__shared__ int count;
        for (int pass = 0; pass < 3; pass++) {
            if (threadIdx.x == 0) count = 0;
            __syncthreads();
            atomicAdd(&count, 1);
            __syncthreads();
            if (count != blockDim.x) c[threadIdx.x] = a[n];
            __syncthreads();
        }""",
    "a loop around compare-and-swap": """int* p = (int*)c; int old = *p, seen;
        do { seen = old; old = atomicCAS(p, seen, seen + 1); } while (old != seen);""",
    "such a loop in shared memory": """__shared__ int s[2];
        if (threadIdx.x < 2) s[threadIdx.x] = 0;
        __syncthreads();
        int old = s[0], seen;
        do { seen = old; old = atomicCAS(s, seen, seen + 1); } while (old != seen);
        old = s[1];
        while (old < (int)threadIdx.x && (seen = atomicCAS(s + 1, old, threadIdx.x)) != old) old = seen;
        __syncthreads();
        if (s[0] != blockDim.x || s[1] != blockDim.x - 1) c[0] = a[n];""",
    "an exchange as the first write": """__shared__ int s, t[2];
        if (threadIdx.x == 0) {
            atomicExch(&s, 3);
            atomicExch(t + 1, 4);
        }
        __syncthreads();
        c[threadIdx.x] = s + t[1];""",
    "a thread reads what it wrote": "c[threadIdx.x] = 1; c[threadIdx.x] += 1;",
    "half-words of one word": "((short*)c)[threadIdx.x] = threadIdx.x;",
    "a warp with syncwarp": """__shared__ float s[128];
        s[threadIdx.x] = a[threadIdx.x]; __syncwarp();
        c[threadIdx.x] = s[threadIdx.x ^ 1]; __syncwarp(); s[threadIdx.x] = 2;""",
    "a tile used twice": """__shared__ float s[128];
        for (int k = 0; k < 3; k++) {
            s[threadIdx.x] = a[threadIdx.x]; __syncthreads();
            b[threadIdx.x] = s[127 - threadIdx.x]; __syncthreads();
        }""",
    "a divergent warp that meets again": """float v = threadIdx.x;
        if (threadIdx.x % 2) v *= 2; else v += 1;
        c[threadIdx.x] = __shfl_sync(~0u, v, 3);""",
    "half a warp with its own mask": """float v = threadIdx.x;
        if (threadIdx.x % 32 < 16) v = __shfl_xor_sync(0xffff, v, 1); else v = __shfl_xor_sync(0xffff0000, v, 2);
        c[threadIdx.x] = v;""",
    "a counter of each block in global memory, at its scope": """int* count = (int*)c + 64 * blockIdx.x;
        if (threadIdx.x == 0) atomicExch_block(count, 0);
        __syncthreads();
        atomicAdd_block(count, 1);
        if (threadIdx.x % 32 == 0) {
            int v;
            do asm volatile("ld.acquire.cta.u32 %0, [%1];" : "=r"(v) : "l"(count)); while (v < blockDim.x);
            count[1 + threadIdx.x / 32] = v;
        }""",
    "a value handed over within a block through global memory": """int v, *flag = (int*)c + 1;
        if (threadIdx.x == 0) *flag = 0;
        __syncthreads();
        if (threadIdx.x == 64) {
            b[0] = a[5];
            asm volatile("st.release.cta.global.u32 [%0], 1;" :: "l"(flag) : "memory");
        }
        if (threadIdx.x == 0) {
            do asm volatile("ld.acquire.cta.global.u32 %0, [%1];" : "=r"(v) : "l"(flag)); while (v == 0);
            c[2] = b[0];
        }""",
    "blocks that take turns at different scopes": """if (threadIdx.x == 0) {
            int v, *flag = (int*)c;
            if (blockIdx.x == 0) {
                atomicAdd_block(flag + 1, 1);
                asm volatile("red.release.gpu.global.add.u32 [%0], 1;" :: "l"(flag) : "memory");
            } else {
                do asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(v) : "l"(flag)); while (v < blockIdx.x);
                atomicAdd_block(flag + 1, 1);
                asm volatile("red.release.gpu.global.add.u32 [%0], 1;" :: "l"(flag) : "memory");
            }
        }""",
    "a barrier that whole warps reach by different ways": """float v = 0;
        if (threadIdx.x < 64) v = 1;
        __syncthreads();
        c[threadIdx.x] = v;""",
}


@pytest.mark.parametrize("body", HARMLESS.values(), ids=HARMLESS.keys())
def test_harmless_code_has_no_fault(run: Run, body: str) -> None:
    a, b, c = (aligned(N) for _ in range(3))
    grid = 3 if "blockIdx.x" in body else 1
    run(f"__global__ void kernel(float* a, float* b, float* c, int n) {{ {body} }}", grid, 128, a, b, c, N)


def test_warps_that_exit_before_a_barrier_cause_a_warning(run: Run) -> None:
    source = """__global__ void kernel(float* c) {
        if (threadIdx.x >= 64) return;
        __shared__ float s[64];
        s[threadIdx.x] = threadIdx.x;
        __syncthreads();
        c[threadIdx.x] = s[63 - threadIdx.x];
    }"""
    c = aligned(64)
    launch = run(source, 1, 128, c)
    assert c.tolist() == list(range(63, -1, -1))
    assert "kernel.cu(5): warning: thread 64 of block 0 skipped this barrier" in launch.printed
    assert launch.printed.count("warning") == 1


def test_writes_of_exited_warps_are_ordered_before_the_barrier(run: Run) -> None:
    source = """__global__ void kernel(float* c) {
        __shared__ float s[128];
        s[threadIdx.x] = threadIdx.x;
        if (threadIdx.x >= 64) return;
        __syncthreads();
        c[threadIdx.x] = s[127 - threadIdx.x];
        s[127 - threadIdx.x] = 0;
    }"""
    c = aligned(64)
    run(source, 1, 128, c)
    assert c.tolist() == list(range(127, 63, -1))


ORDERED_HANDOVERS = {
    "volatile behind fences": "s = a[5]; __threadfence_block(); flag = 1;|while (flag == 0); __threadfence_block();",
    "volatile and a poll": "flag = 1;|while (flag == 0); if (false)",
    "volatile and a pause": "s = a[5]; __threadfence(); flag = 1;|while (flag == 0) __nanosleep(20); __threadfence();",
    "release and acquire": """s = a[5]; asm volatile("st.release.cta.shared.u32 [%0], 1;" :: "r"(at) : "memory");|
        int v = 0;
        while (!v) asm volatile("ld.acquire.cta.shared.u32 %0, [%1];" : "=r"(v) : "r"(at) : "memory");""",
    "atomics": "s = a[5]; __threadfence(); atomicExch((int*)&flag, 1);|while (!atomicAdd((int*)&flag, 0));",
}
UNORDERED_HANDOVERS = {
    "volatile alone": "s = a[5]; flag = 1;|while (flag == 0);",
    "a fence behind the flag": "s = a[5]; flag = 1; __threadfence();|while (flag == 0); __threadfence();",
    "no fence of the reader": "s = a[5]; __threadfence(); flag = 1;|while (flag == 0);",
    "relaxed": """s = a[5]; asm volatile("st.relaxed.cta.shared.u32 [%0], 1;" :: "r"(at) : "memory");|
        int v = 0;
        while (!v) asm volatile("ld.relaxed.cta.shared.u32 %0, [%1];" : "=r"(v) : "r"(at) : "memory");""",
}
HANDOVER = """__global__ void kernel(const float* a, float* c) {{
    __shared__ float s;
    __shared__ volatile int flag, other;
    unsigned at = (unsigned)__cvta_generic_to_shared((int*)&flag);
    if (threadIdx.x == 0) flag = other = 0;
    __syncthreads();
    if (threadIdx.x == {writer}) {{ {write} }}
    if (threadIdx.x == {reader}) {{ {wait} c[0] = s; }}
}}"""


@pytest.mark.parametrize("reader", [0, 64])
@pytest.mark.parametrize("handover", ORDERED_HANDOVERS.values(), ids=ORDERED_HANDOVERS.keys())
def test_an_ordered_handover_has_no_fault(run: Run, handover: str, reader: int) -> None:
    a = aligned(8)
    c = aligned(8)
    a[5] = 3
    write, wait = handover.split("|")
    run(HANDOVER.format(writer=64 - reader, reader=reader, write=write, wait=wait), 1, 128, a, c)
    assert c[0] == (0 if "false" in wait else 3)


@pytest.mark.parametrize("reader", [0, 64])
@pytest.mark.parametrize("handover", UNORDERED_HANDOVERS.values(), ids=UNORDERED_HANDOVERS.keys())
def test_an_unordered_handover_is_a_race(run: Run, handover: str, reader: int) -> None:
    write, wait = handover.split("|")
    with pytest.raises(simt.Fault, match=r"s\[0\]") as caught:
        run(HANDOVER.format(writer=64 - reader, reader=reader, write=write, wait=wait), 1, 128, aligned(8), aligned(8))
    assert caught.value.kind == FaultKind.RACE


VOLATILE_ONLY = {
    "volatile": "s[t] = a[t]; c[t] = s[127 - t];",
    "volatile and a fence": "s[t] = a[t]; __threadfence_block(); c[t] = s[127 - t];",
    "a volatile reduction": """s[t] = a[t]; __syncthreads();
        for (int o = 64; o; o >>= 1) { if (t < o) s[t] += s[t + o]; __threadfence_block(); }
        c[t] = s[0];""",
    "a volatile search": """s[t] = t; __threadfence_block();
        for (int k = 0; k < 128; k++) if (s[k] == 127) c[t] = 1;""",
}


@pytest.mark.parametrize("body", VOLATILE_ONLY.values(), ids=VOLATILE_ONLY.keys())
def test_volatile_does_not_replace_a_barrier(run: Run, body: str) -> None:
    source = f"""__global__ void kernel(const float* a, float* c) {{
        __shared__ volatile float s[128];
        int t = threadIdx.x;
        {body}
    }}"""
    a = aligned(128)
    a[:] = np.arange(128) + 1
    with pytest.raises(simt.Fault) as caught:
        run(source, 1, 128, a, aligned(128))
    assert caught.value.kind == FaultKind.RACE


def test_lanes_that_store_different_values_race(run: Run) -> None:
    source = """extern __shared__ float global_smem[];
    __global__ void kernel(const float* a, float* c) {
        global_smem[threadIdx.x / 2] = a[threadIdx.x];
        __syncthreads();
        c[threadIdx.x] = global_smem[threadIdx.x / 2];
    }"""
    a = aligned(32)
    a[:] = np.arange(32)
    with pytest.raises(simt.Fault, match="writes too") as caught:
        run(source, 1, 32, a, aligned(32), shared=64)
    assert caught.value.kind == FaultKind.RACE
