"""Compare whole kernels, compiled by NVRTC, with numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from machine.launching import Run, aligned

RNG = np.random.default_rng(0)


def floats(*shape: int) -> np.ndarray[Any, Any]:
    """Return normal random floats of this shape, as device memory."""
    array = aligned(shape)
    array[...] = RNG.standard_normal(shape)
    return array


def test_vector_add_writes_exact_sums_and_nothing_else(run: Run) -> None:
    source = """__global__ void kernel(const float* a, const float* b, float* c, int n) {
        int i = blockIdx.x * blockDim.x + threadIdx.x;
        if (i < n) c[i] = a[i] + b[i];
    }"""
    a = floats(1000)
    b = floats(1000)
    c = aligned(1000)
    # 997 elements leave a partial block, and 3 elements that must stay zero.
    launch = run(source, 4, 256, a, b, c, 997)
    assert (c[:997] == a[:997] + b[:997]).all()
    assert (c[997:] == 0).all()
    assert launch.buffers_written["c"].reshape(-1, 4).all(axis=1).tolist() == [True] * 997 + [False] * 3
    assert not launch.buffers_written["a"].any()


def test_tiled_transpose(run: Run) -> None:
    source = """__global__ void kernel(const float* a, float* b, int rows, int columns) {
        __shared__ float tile[32][33];
        int x = blockIdx.x * 32 + threadIdx.x, y = blockIdx.y * 32 + threadIdx.y;
        for (int i = 0; i < 32; i += 8)
            if (x < columns && y + i < rows) tile[threadIdx.y + i][threadIdx.x] = a[(y + i) * columns + x];
        __syncthreads();
        x = blockIdx.y * 32 + threadIdx.x; y = blockIdx.x * 32 + threadIdx.y;
        for (int i = 0; i < 32; i += 8)
            if (x < rows && y + i < columns) b[(y + i) * rows + x] = tile[threadIdx.x][threadIdx.y + i];
    }"""
    a = floats(61, 90)
    b = aligned((90, 61))
    run(source, (3, 2), (32, 8), a, b, 61, 90, fresh=[1])
    assert (b == a.T).all()


def test_matmul_accumulates_in_order_of_k(run: Run) -> None:
    source = """__global__ void kernel(const float* a, const float* b, float* c, int n) {
        int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
        float sum = 0;
        for (int k = 0; k < n; k++) sum = fmaf(a[y * n + k], b[k * n + x], sum);
        c[y * n + x] = sum;
    }"""
    n = 32
    a = floats(n, n)
    b = floats(n, n)
    c = aligned((n, n))
    run(source, (2, 4), (16, 8), a, b, c, n)
    expected = np.zeros((n, n), np.float64)
    for k in range(n):  # except for ties, a float32 fma equals the float64 result, rounded once
        expected = np.outer(a[:, k], b[k]).astype(np.float64) * 0 + a[:, k : k + 1].astype(np.float64) * b[k] + expected
        expected = expected.astype(np.float32).astype(np.float64)
    assert (c == expected.astype(np.float32)).all()


def test_softmax_with_shuffles(run: Run) -> None:
    source = """__global__ void kernel(const float* a, float* b, int n) {
        __shared__ float partial[8];
        int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
        auto reduce = [&](float v, bool is_max) {
            for (int o = 16; o; o >>= 1) {
                float other = __shfl_xor_sync(~0u, v, o);
                v = is_max ? fmaxf(v, other) : v + other;
            }
            if (lane == 0) partial[warp] = v;
            __syncthreads();
            v = partial[0];
            for (int w = 1; w < blockDim.x / 32; w++) v = is_max ? fmaxf(v, partial[w]) : v + partial[w];
            __syncthreads();
            return v;
        };
        float m = -INFINITY, s = 0;
        for (int i = threadIdx.x; i < n; i += blockDim.x) m = fmaxf(m, a[blockIdx.x * n + i]);
        m = reduce(m, true);
        for (int i = threadIdx.x; i < n; i += blockDim.x) s += __expf(a[blockIdx.x * n + i] - m);
        s = reduce(s, false);
        for (int i = threadIdx.x; i < n; i += blockDim.x) b[blockIdx.x * n + i] = __expf(a[blockIdx.x * n + i] - m) / s;
    }"""
    a = floats(3, 777)
    b = aligned((3, 777))
    run(source, 3, 256, a, b, 777)
    expected = np.exp(a - a.max(axis=1, keepdims=True, initial=-np.inf).astype(np.float64))
    np.testing.assert_allclose(b, expected / expected.sum(axis=1, keepdims=True), rtol=2e-6)


def test_last_block_to_finish_adds_the_partial_sums(run: Run) -> None:
    source = """__device__ unsigned int finished = 0;
    __global__ void kernel(const int* a, int* partial, int* total, int n) {
        __shared__ int sum;
        __shared__ bool last;
        if (threadIdx.x == 0) sum = 0;
        __syncthreads();
        int i = blockIdx.x * blockDim.x + threadIdx.x;
        if (i < n) atomicAdd(&sum, a[i]);
        __syncthreads();
        if (threadIdx.x == 0) {
            partial[blockIdx.x] = sum;
            __threadfence();
            last = atomicAdd(&finished, 1) == gridDim.x - 1;
        }
        __syncthreads();
        if (last && threadIdx.x == 0) {
            int t = 0;
            for (int b = 0; b < gridDim.x; b++) t += partial[b];
            *total = t;
        }
    }"""
    a = RNG.integers(-1000, 1000, 1000, dtype=np.int32)
    partial = aligned(8, np.int32)
    total = aligned(1, np.int32)
    run(source, 8, 128, a, partial, total, 1000, fresh=[1, 2])
    assert total[0] == a.sum()


def test_single_pass_scan_with_flags_between_blocks(run: Run) -> None:
    """Each block passes its total to the next one, with release and acquire."""
    source = """__global__ void kernel(const int* a, int* b, int* sums, int* flags) {
        __shared__ int s[64], before;
        int t = threadIdx.x, i = blockIdx.x * 64 + t;
        s[t] = a[i];
        __syncthreads();
        int sum = 0;
        for (int k = 0; k <= t; k++) sum += s[k];
        if (t == 63) {
            int flag = blockIdx.x == 0;
            while (!flag) asm volatile("ld.acquire.gpu.s32 %0, [%1];" : "=r"(flag) : "l"(flags + blockIdx.x - 1));
            before = blockIdx.x ? sums[blockIdx.x - 1] : 0;
            sums[blockIdx.x] = before + sum;
            asm volatile("st.release.gpu.s32 [%0], %1;" :: "l"(flags + blockIdx.x), "r"(1));
        }
        __syncthreads();
        b[i] = before + sum;
    }"""
    a = RNG.integers(-50, 50, 5 * 64, dtype=np.int32)
    b, sums, flags = (np.zeros(size, np.int32) for size in (320, 5, 5))
    run(source, 5, 64, a, b, sums, flags)
    assert b.tolist() == np.cumsum(a).tolist()


def test_a_loop_with_a_different_trip_count_per_lane(run: Run) -> None:
    source = """__global__ void kernel(const int* a, int* b) {
        int n = a[threadIdx.x], steps = 0;
        while (n != 1) { n = n % 2 ? 3 * n + 1 : n / 2; steps++; if (steps > 100) break; }
        b[threadIdx.x] = steps;
    }"""
    a = np.arange(1, 65, dtype=np.int32)
    b = np.zeros(64, np.int32)
    launch = run(source, 1, 64, a, b)

    def collatz(n: int) -> int:
        steps = 0
        while n != 1 and steps <= 100:
            n, steps = (3 * n + 1 if n % 2 else n // 2), steps + 1
        return steps

    assert b.tolist() == [collatz(n) for n in range(1, 65)]
    assert launch.totals.divergent_branches > 0
    assert launch.lines[3].lanes_per_instruction < 32


def test_calls_local_memory_and_switch(run: Run) -> None:
    source = """__device__ __noinline__ float apply(int what, float x) {
        switch (what) {
            case 0: return x + 1; case 1: return x * 2; case 2: return -x; case 3: return x * x;
            case 4: return x - 3; case 5: return 7; default: return 0;
        }
    }
    __global__ void kernel(const float* a, float* b) {
        float history[16];
        for (int i = 0; i < 16; i++) history[i] = apply(i % 7, a[threadIdx.x]);
        b[threadIdx.x] = apply(2, history[threadIdx.x % 16]);
    }"""
    a = floats(64)
    b = aligned(64)
    run(source, 1, 64, a, b)
    rules = [lambda x: x + 1, lambda x: x * 2, lambda x: -x, lambda x: x * x, lambda x: x - np.float32(3)]
    rules += [lambda x: np.float32(7), lambda x: np.float32(0)]
    assert b.tolist() == [-rules[i % 16 % 7](a[i]) for i in range(64)]


def test_printf_and_clock(run: Run) -> None:
    source = r"""
    __global__ void kernel(long long* a) {
        int t = threadIdx.x;
        if (t % 20 == 3) printf("thread %d of %s: %5.2f %llu%%\n", t, "one", 0.125 * t, 1ull << 40);
        long long before = clock64();
        for (int i = 0; i < 10; i++) __nanosleep(1);
        a[threadIdx.x] = clock64() - before;
    }"""
    a = aligned(32, np.int64)
    launch = run(source, 1, 32, a)
    assert launch.printed == "thread 3 of one:  0.38 1099511627776%\nthread 23 of one:  2.88 1099511627776%\n"
    assert (a > 0).all()


def test_block_wide_votes(run: Run) -> None:
    source = """__global__ void kernel(int* a) {
        int t = threadIdx.x;
        int count = __syncthreads_count(t % 3 == 0);
        int all = __syncthreads_and(t < 100), any = __syncthreads_or(t == 70);
        a[t] = count * 100 + all * 10 + any;
    }"""
    a = aligned(96, np.int32)
    run(source, 1, 96, a)
    assert set(a.tolist()) == {32 * 100 + 11}


def test_named_barriers_order_two_warps(run: Run) -> None:
    source = """__global__ void kernel(int* a) {
        __shared__ int slot[32];
        int lane = threadIdx.x % 32;
        if (threadIdx.x < 32) {
            slot[lane] = 5 * lane;
            asm volatile("bar.arrive 1, 64;");
        } else {
            asm volatile("bar.sync 1, 64;");
            a[lane] = slot[31 - lane];
        }
    }"""
    a = aligned(32, np.int32)
    run(source, 1, 64, a)
    assert a.tolist() == [5 * (31 - lane) for lane in range(32)]


def test_a_spinning_warp_yields_to_the_other(run: Run) -> None:
    source = """__global__ void kernel(int* a) {
        __shared__ volatile int flag;
        if (threadIdx.x == 32) flag = 0;
        __syncthreads();
        if (threadIdx.x < 32) { while (flag == 0); a[threadIdx.x] = 1; }
        else if (threadIdx.x == 32) flag = 1;
    }"""
    a = aligned(32, np.int32)
    run(source, 1, 64, a)
    assert a.tolist() == [1] * 32


def test_a_volatile_load_at_the_end_of_a_basic_block_in_a_loop(run: Run) -> None:
    source = r"""__global__ void kernel(int* a) {
        int sum = 0;
        #pragma unroll 1
        for (int i = 0; i < a[1]; ++i) {
            int value = 0;
            asm volatile("{ .reg .pred p; setp.eq.s32 p, %2, 1; @p bra HERE;\n ld.volatile.global.s32 %0, [%1];\n"
                         "HERE: add.s32 %0, %0, 1; }" : "+r"(value) : "l"(a), "r"(i));
            sum += value;
        }
        a[2] = sum;
    }"""
    a = aligned(3, np.int32)
    a[:] = 5, 3, 0
    run(source, 1, 1, a)
    assert a.tolist() == [5, 3, 6 + 1 + 6]


@pytest.mark.parametrize("block", [1, 31, 33, 100])
def test_blocks_with_a_partial_warp(run: Run, block: Any) -> None:
    source = "__global__ void kernel(int* a) { a[blockIdx.x * blockDim.x + threadIdx.x] = threadIdx.x; }"
    a = aligned(3 * block, np.int32)
    launch = run(source, 3, block, a, fresh=[0])
    assert a.tolist() == list(range(block)) * 3
    assert launch.totals.global_store_requests == 3 * -(-block // 32)


def test_the_writer_of_an_element_is_the_last_thread_that_wrote_it(run: Run) -> None:
    source = """__global__ void kernel(volatile int* a) {
        const int i = 64 * (2 * blockIdx.y + blockIdx.x) + threadIdx.x;
        a[i] = 1;
        if (i != 300) a[i] = 2;
    }"""
    a = aligned(500, np.int32)
    launch = run(source, (2, 3), 64, a)
    writers = [launch.writer(a.ctypes.data + 4 * i) for i in (299, 300)]
    assert [writer and (writer.thread, writer.block, writer.site.line) for writer in writers] == [
        ("43", "(0, 2)", 4),
        ("44", "(0, 2)", 3),
    ]
    assert launch.writer(a.ctypes.data + 4 * 384) is None
    assert launch.writer(a.ctypes.data - 4) is None
