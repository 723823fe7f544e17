"""Test features of NVIDIA's headers and the CUDA runtime: barriers, pipelines, cooperative groups, the heap, calls."""

from __future__ import annotations

import ctypes
import re
import struct
from typing import Any

import numpy as np
import pytest

from machine.launching import FILE, aligned, buffer
from warpcheck import simt
from warpcheck.counters import by_access
from warpcheck.frontends import cuda, nvrtc
from warpcheck.layout import Access


def launch(
    source: str, block: int, *arguments: Any, target: str = cuda.CPU_ARCHITECTURE, **options: Any
) -> simt.Launch:
    binary = nvrtc.compile_kernel(source, FILE, "kernel", target, ("--device-int128",))
    arrays = [a for a in arguments if isinstance(a, np.ndarray)]
    return simt.load(binary.ptx, FILE).launch(
        binary.mangled,
        grid=(1,),
        block=(block,),
        args=[a.ctypes.data if isinstance(a, np.ndarray) else a for a in arguments],
        buffers=[buffer("abcdefgh"[index], array) for index, array in enumerate(arrays)],
        **options,
    )


def numbers(*values: float, dtype: Any = np.int32, size: int = 32) -> np.ndarray[Any, Any]:
    """Return an array in device memory that begins with these values."""
    array = aligned(size, dtype)
    array[: len(values)] = values
    return array


BARRIER = """#include <cuda/barrier>
__global__ void kernel(const float* a, float* c) {
    __shared__ float s[128];
    #pragma nv_diag_suppress static_var_with_dynamic_init
    __shared__ cuda::barrier<cuda::thread_scope_block> bar;
    int t = threadIdx.x;
    if (t == 0) init(&bar, blockDim.x);
    __syncthreads();
    for (int k = 0; k < 3; k++) {
        s[t] = a[t] + k;
        bar.arrive_and_wait();
        c[t] = s[127 - t];
        bar.wait(bar.arrive());
    }
}"""


@pytest.mark.parametrize("target", [cuda.CPU_ARCHITECTURE, "compute_90a"])
def test_cuda_barrier_orders_its_threads(target: str) -> None:
    """Arrivals do not count as accesses, because the lanes of a warp arrive at once on a GPU."""
    a = aligned(128)
    c = aligned(128)
    a[:] = np.arange(128)
    report = launch(BARRIER, 128, a, c, target=target)
    assert c.tolist() == (a[::-1] + 2).tolist()
    assert {
        access.buffer for access in by_access(report.accesses) if access.shared and access.access == Access.ATOMIC
    } == set()
    assert max(line.bank_conflicts_per_request for line in report.lines.values()) == 0


@pytest.mark.parametrize("removed", ["bar.arrive_and_wait();", "bar.wait(bar.arrive());"])
def test_removing_a_barrier_wait_causes_a_race(removed: str) -> None:
    a = aligned(128)
    a[:] = np.arange(128)
    with pytest.raises(simt.Fault) as caught:
        launch(BARRIER.replace(removed, "bar.arrive();" if "and" in removed else ""), 128, a, aligned(128))
    assert caught.value.kind == simt.FaultKind.RACE


MULTI_STAGE = """#include <cuda/pipeline>
__global__ void kernel(const float* a, float* c) {
    __shared__ float s[4][128];
    auto pipe = cuda::make_pipeline();
    int t = threadIdx.x, next = 0;
    float sum = 0;
    for (int k = 0; k < 6; k++) {
        for (; next < k + 4; next++) {
            pipe.producer_acquire();
            if (next < 6) cuda::memcpy_async(&s[next % 4][t], a + 128 * next + t, cuda::aligned_size_t<4>(4), pipe);
            pipe.producer_commit();
        }
        pipe.consumer_wait();
        __syncthreads();
        sum += s[k % 4][127 - t];
        pipe.consumer_release();
        __syncthreads();
    }
    c[t] = sum;
}"""


@pytest.mark.parametrize("reverse", [False, True])
def test_a_pipeline_that_overfills_its_stages_has_a_race(reverse: bool) -> None:
    """NVIDIA's sample globalToShmemAsyncCopy has this bug, but its matrices have equal elements."""
    a = aligned(6 * 128)
    c = aligned(128)
    a[:] = 1
    launch(MULTI_STAGE, 128, a, c, reverse=reverse)
    assert c.tolist() == [6.0] * 128
    with pytest.raises(simt.Fault, match="which the copy of line 10 may still be writing") as caught:
        launch(MULTI_STAGE.replace("next < k + 4", "next <= k + 4"), 128, a, c, reverse=reverse)
    assert caught.value.kind == simt.FaultKind.RACE


TRACKED = """#include <cuda/barrier>
#define COPY(k) asm volatile( \\
    "cp.async.ca.shared.global [%0], [%1], 4; cp.async.mbarrier.arrive.noinc.shared.b64 [%2];" \\
    :: "r"(int(__cvta_generic_to_shared(s[k] + t))), "l"(a + 128 * k + t), "r"(bar + 8 * k) : "memory")
__device__ void wait(int bar, int parity) {
    asm volatile("{ .reg .pred p;\\nAGAIN: mbarrier.test_wait.parity.shared.b64 p, [%0], %1;\\n@!p bra AGAIN; }"
                 :: "r"(bar), "r"(parity) : "memory");
}
__global__ void kernel(const float* a, float* c) {
    __shared__ float s[2][128];
    __shared__ long long bars[2];
    int t = threadIdx.x, bar = __cvta_generic_to_shared(bars);
    if (t < 2) asm volatile("mbarrier.init.shared.b64 [%0], 128;" :: "r"(bar + 8 * t) : "memory");
    __syncthreads();
    COPY(0);
    COPY(1); // again
    wait(bar, 0); // first
    float sum = s[0][127 - t];
    wait(bar + 8, 0); // second
    c[t] = sum + s[1][t];
}"""


@pytest.mark.parametrize("reverse", [False, True])
def test_mbarriers_track_asynchronous_copies(reverse: bool) -> None:
    """Waiting for the second barrier implies that the first one's copies are complete, but not the other way around."""
    a = aligned(256)
    c = aligned(128)
    a[:] = np.arange(256)
    expected = (a[127::-1] + a[128:]).tolist()
    for source in (TRACKED, TRACKED.replace("wait(bar, 0); // first", "wait(bar + 8, 0);")):
        launch(source, 128, a, c, reverse=reverse)
        assert c.tolist() == expected
    in_flight = "may still be writing: wait for its mbarrier first"
    for removed, message in (
        ("wait(bar, 0); // first", "no barrier between"),
        ("wait(bar + 8, 0); // second", in_flight),
    ):
        with pytest.raises(simt.Fault, match=f"reads 4 bytes .* {message}"):
            launch(TRACKED.replace(removed, ""), 128, a, c, reverse=reverse)
    with pytest.raises(simt.Fault, match=r"writes 4 bytes .* may still be writing: wait for its mbarrier") as caught:
        launch(TRACKED.replace("COPY(1); // again", "COPY(0); COPY(1);"), 128, a, c, reverse=reverse)
    assert caught.value.kind == simt.FaultKind.RACE


def test_a_pipeline_of_two_stages() -> None:
    source = """#include <cuda/pipeline>
    #include <cooperative_groups.h>
    __global__ void kernel(const float* a, float* c) {
        __shared__ float s[2][128];
        #pragma nv_diag_suppress static_var_with_dynamic_init
        __shared__ cuda::pipeline_shared_state<cuda::thread_scope_block, 2> state;
        auto pipe = cuda::make_pipeline(cooperative_groups::this_thread_block(), &state);
        int t = threadIdx.x;
        float sum = 0;
        for (int k = 0; k < 5; k++) {
            if (k < 4) {
                pipe.producer_acquire();
                cuda::memcpy_async(&s[k % 2][t], a + 128 * k + t, sizeof(float), pipe);
                pipe.producer_commit();
            }
            if (k > 0) { pipe.consumer_wait(); sum += s[(k - 1) % 2][127 - t]; pipe.consumer_release(); }
        }
        c[t] = sum;
    }"""
    a = aligned(512)
    c = aligned(128)
    a[:] = np.arange(512)
    launch(source, 128, a, c)
    assert c.tolist() == a.reshape(4, 128).sum(axis=0)[::-1].tolist()


ROLES = """#include <cuda/pipeline>
#include <cooperative_groups.h>
__global__ void kernel(const float* a, float* c) {
    __shared__ float s[2][32];
    #pragma nv_diag_suppress static_var_with_dynamic_init
    __shared__ cuda::pipeline_shared_state<cuda::thread_scope_block, 2> state;
    auto role = threadIdx.x < 32 ? cuda::pipeline_role::producer : cuda::pipeline_role::consumer;
    auto pipe = cuda::make_pipeline(cooperative_groups::this_thread_block(), &state, role);
    const int t = threadIdx.x;
    float sum = 0;
    for (int k = 0; k < 5; k++) {
        if (t < 32) {
            pipe.producer_acquire();
            cuda::memcpy_async(&s[k % 2][t], a + 32 * k + t, sizeof(float), pipe);
            pipe.producer_commit();
        } else {
            pipe.consumer_wait();
            sum += s[k % 2][t % 32];
            pipe.consumer_release();
        }
    }
    if (t >= 32) c[t - 32] = sum;
}"""


def test_consumer_warps_may_release_a_stage_at_different_times() -> None:
    """The producer waits for all consumers: those that finished long ago, and the last one."""
    a = aligned(160)
    c = aligned(96)
    a[:] = np.arange(160)
    launch(ROLES, 128, a, c, target="compute_90a", reverse=True)
    launch(ROLES, 128, a, c)
    assert c.tolist() == 3 * a.reshape(5, 32).sum(axis=0).tolist()
    after = "pipe.consumer_release(); if (t >= 96) sum += s[k % 2][t % 32];"
    with pytest.raises(simt.Fault) as caught:
        launch(ROLES.replace("pipe.consumer_release();", after), 128, a, c)
    assert caught.value.kind == simt.FaultKind.RACE


def test_mbarrier_counts_arrivals_and_drops() -> None:
    """Two arrivals out of three leave the phase open. The barrier no longer waits for a thread that dropped out."""
    source = """__global__ void kernel(unsigned* c) {
        __shared__ unsigned long long bar;
        unsigned at = (unsigned)__cvta_generic_to_shared(&bar);
        asm volatile("mbarrier.init.shared.b64 [%0], 3;" :: "r"(at) : "memory");
        unsigned long long token; unsigned n, done;
        #define DONE(place) asm volatile("{.reg .pred p; mbarrier.test_wait.shared.b64 p, [%1], %2;" \\
            "selp.u32 %0, 1, 0, p;}" : "=r"(done) : "r"(at), "l"(token) : "memory"); c[place] = done;
        asm volatile("mbarrier.arrive.noComplete.shared.b64 %0, [%1], 2;" : "=l"(token) : "r"(at) : "memory");
        asm volatile("mbarrier.pending_count.b64 %0, %1;" : "=r"(n) : "l"(token)); c[0] = n;
        DONE(1)
        asm volatile("mbarrier.arrive_drop.shared.b64 %0, [%1];" : "=l"(token) : "r"(at) : "memory");
        asm volatile("mbarrier.pending_count.b64 %0, %1;" : "=r"(n) : "l"(token)); c[2] = n;
        DONE(3)
        asm volatile("mbarrier.arrive.shared.b64 %0, [%1];" : "=l"(token) : "r"(at) : "memory");
        asm volatile("mbarrier.pending_count.b64 %0, %1;" : "=r"(n) : "l"(token)); c[4] = n;
        DONE(5)
        asm volatile("mbarrier.arrive.shared.b64 %0, [%1];" : "=l"(token) : "r"(at) : "memory");
        DONE(6)
        asm volatile("mbarrier.inval.shared.b64 [%0];" :: "r"(at) : "memory");
    }"""
    c = numbers(dtype=np.uint32)
    launch(source, 1, c)
    assert c[:7].tolist() == [3, 0, 1, 1, 2, 0, 1]


def test_cooperative_tiles_of_half_a_warp_and_of_two_warps() -> None:
    source = """#include <cooperative_groups.h>
    #include <cooperative_groups/reduce.h>
    namespace cg = cooperative_groups;
    __global__ void kernel(const float* a, float* c, float* d) {
        auto small = cg::tiled_partition<16>(cg::this_thread_block());
        auto large = cg::tiled_partition<64>(cg::this_thread_block());
        float sum = cg::reduce(small, a[threadIdx.x], cg::plus<float>());
        if (small.meta_group_rank() % 2) sum += small.shfl(a[threadIdx.x], 3);
        c[threadIdx.x] = sum;
        d[threadIdx.x] = cg::reduce(large, a[threadIdx.x], cg::plus<float>());
    }"""
    a, c, d = (aligned(128) for _ in range(3))
    a[:] = np.arange(128)
    launch(source, 128, a, c, d)
    tiles = a.reshape(8, 16)
    assert c.tolist() == np.repeat(tiles.sum(axis=1) + tiles[:, 3] * (np.arange(8) % 2), 16).tolist()
    assert d.tolist() == np.repeat(a.reshape(2, 64).sum(axis=1), 64).tolist()


@pytest.mark.parametrize("order", ["release acquire", "seq_cst seq_cst", "relaxed relaxed"])
def test_atomic_ref_has_its_memory_order(order: str) -> None:
    write, read = (f"cuda::std::memory_order_{name}" for name in order.split())
    source = f"""#include <cuda/atomic>
    __global__ void kernel(const float* a, float* c) {{
        __shared__ float s;
        __shared__ int flag;
        if (threadIdx.x == 0) flag = 0;
        __syncthreads();
        cuda::atomic_ref<int, cuda::thread_scope_block> ready(flag);
        if (threadIdx.x == 64) {{ s = a[5]; ready.store(1, {write}); }}
        if (threadIdx.x == 0) {{ while (!ready.load({read})); c[0] = s; }}
    }}"""
    a = aligned(8)
    c = aligned(8)
    a[5] = 3
    if "relaxed" in order:
        with pytest.raises(simt.Fault, match=r"s\[0\].*no barrier"):
            launch(source, 128, a, c)
    else:
        launch(source, 128, a, c)
        assert c[0] == 3


def test_calls_through_function_pointers_and_virtual_functions() -> None:
    source = """struct A { __device__ virtual int f(int x) { return x; } };
    struct B : A { __device__ int f(int x) override { return 10 * x; } };
    __device__ int once(int x) { return x + 1; }
    __device__ int thrice(int x) { return 3 * x; }
    __global__ void kernel(int* c, int n) {
        int (*table[2])(int) = {once, thrice};
        A a; B b;
        A* object = threadIdx.x + n > 10 ? &a : (A*)&b;
        c[threadIdx.x] = table[(threadIdx.x + n) & 1](threadIdx.x) + object->f(1000);
    }"""
    c = numbers()
    launch(source, 32, c, 1)
    expected = [(3 * t if (t + 1) & 1 else t + 1) + (1000 if t + 1 > 10 else 10000) for t in range(32)]
    assert c.tolist() == expected


def test_malloc_and_free_in_a_kernel() -> None:
    source = """__global__ void kernel(int* c, int n) {
        int* p = (int*)malloc(4 * n);
        for (int i = 0; i < n; i++) p[i] = i * (threadIdx.x + 1);
        int* q = new int[4];
        q[0] = p[n - 1];
        c[threadIdx.x] = q[0];
        free(p); delete[] q;
        if (threadIdx.x == 0) c[32] = malloc(100 << 20) == nullptr;
    }"""
    c = numbers(size=33)
    launch(source, 32, c, 10)
    assert c.tolist() == [9 * (t + 1) for t in range(32)] + [1]


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        ("c[0] = p[1];", simt.FaultKind.UNINITIALIZED),
        ("p[4] = 1;", simt.FaultKind.OUT_OF_BOUNDS),
        ('free(p); asm volatile("" ::: "memory"); c[0] = ((volatile int*)p)[0];', simt.FaultKind.OUT_OF_BOUNDS),
    ],
)
def test_heap_errors_are_faults(body: str, kind: simt.FaultKind) -> None:
    source = f"__global__ void kernel(int* c) {{ int* p = (int*)malloc(16); p[0] = 1; {body} }}"
    with pytest.raises(simt.Fault) as caught:
        launch(source, 1, numbers())
    assert caught.value.kind == kind


def test_structs_by_value() -> None:
    source = """struct S { int a; float b[5]; double c; };
    __device__ __noinline__ S changed(S s, int n) { s.b[n] = 2; s.a++; return s; }
    __global__ void kernel(double* c, S s, int n) {
        c[0] = s.a + s.b[n] + s.c;
        S other = changed(s, n);
        c[1] = other.a + other.b[n] + s.b[n];
    }"""
    c = numbers(dtype=np.float64)
    launch(source, 1, c, struct.pack("<i5fd", 7, 1, 2, 3, 4, 5, 0.5), 3)
    assert c[:2].tolist() == [11.5, 14.0]


def test_ptx_parameters_are_addressable_and_bounded() -> None:
    text = """.version 8.0
    .target sm_80
    .address_size 64
    .visible .entry kernel(.param .u64 out, .param .align 4 .b8 s[12]) {
        .reg .b32 %r<4>; .reg .b64 %rd<4>;
        mov.u32 %r1, %tid.x;
        shl.b32 %r1, %r1, 2;
        mov.b32 %r2, s;
        add.s32 %r2, %r2, %r1;
        ld.param.b32 %r3, [%r2];
        ld.param.u64 %rd1, [out];
        cvt.u64.u32 %rd2, %r1;
        add.s64 %rd1, %rd1, %rd2;
        st.global.b32 [%rd1], %r3;
        ret;
    }"""
    c = numbers()
    arguments = [c.ctypes.data, struct.pack("<3i", 5, 6, 7)]
    options: dict[str, Any] = {"grid": (1,), "args": arguments, "buffers": [buffer("c", c)]}
    simt.load(text).launch("kernel", block=(3,), **options)
    assert c[:4].tolist() == [5, 6, 7, 0]
    with pytest.raises(simt.Fault, match="thread 3 of block 0 reads 4 bytes past the end of arguments"):
        simt.load(text).launch("kernel", block=(4,), **options)


def test_integers_of_128_bits() -> None:
    source = """__global__ void kernel(unsigned long long* a) {
        unsigned __int128 x = (unsigned __int128)a[1] << 64 | a[0], product = x * a[2] + a[0];
        unsigned __int128 quotient = x / a[2], rest = x % a[2];
        a[3] = quotient; a[4] = quotient >> 64; a[5] = rest; a[6] = product; a[7] = product >> 64;
    }"""
    for x, divisor in ((2**127 + 12345, 12345), (10**30, 7), (2**64 - 1, 2**63), (5, 9), (2**128 - 1, 2**64 - 1)):
        a = numbers(x % 2**64, x >> 64, divisor, dtype=np.uint64)
        launch(source, 1, a)
        words = [int(value) for value in a]
        product = (x * divisor + x % 2**64) % 2**128
        assert (words[3] + (words[4] << 64), words[5]) == divmod(x, divisor)
        assert words[6] + (words[7] << 64) == product


def test_lop3_with_a_predicate() -> None:
    source = """__global__ void kernel(unsigned* c) {
        unsigned d, p, t = threadIdx.x;
        asm("{.reg .pred p, q; setp.gt.u32 q, %2, 3; lop3.or.b32 %0|p, %2, 5, 4, 0x80, q; selp.u32 %1, 1, 0, p;}"
            : "=r"(d), "=r"(p) : "r"(t));
        c[t] = 2 * d + p;
        asm("{.reg .pred p, q; setp.gt.u32 q, %1, 3; lop3.and.b32 _|p, %1, 5, 4, 0xfe, q; selp.u32 %0, 1, 0, p;}"
            : "=r"(p) : "r"(t));
        c[t] += 100 * p;
    }"""
    c = numbers(dtype=np.uint32)
    launch(source, 32, c)
    expected = [2 * (t & 5 & 4) + int((t & 5 & 4) != 0 or t > 3) + 100 * int(t > 3) for t in range(32)]
    assert c.tolist() == expected


def test_printf_formats_hexadecimal_floats_like_the_c_library() -> None:
    values = [1.5, -0.1, 3.14159, 100.0, 0.0, float("inf"), 5e-324, 1.75]
    text = "%a|%A|%.3a|%10.1a|%+a|%a|%a|%020a"
    arguments = ", ".join(f"a[{n}]" for n in range(len(values)))
    source = f'__global__ void kernel(double* a) {{ printf("{text}", {arguments}); }}'
    report = launch(source, 1, numbers(*values, dtype=np.float64))
    expected = ctypes.create_string_buffer(400)
    ctypes.CDLL(None).snprintf(expected, 400, text.encode(), *map(ctypes.c_double, values))
    assert report.printed == expected.value.decode()
    assert float.fromhex(report.printed.split("|")[1]) == -0.1


def test_inline_assembly_with_unusual_white_space() -> None:
    source = r"""__global__ void kernel(int* a) {
        int d;
        asm volatile("{\t.reg\t.pred\tp;\r\n\tsetp.gt.s32\tp,%1,3;@p add.s32\t%0,%1,1;\n@!p\tmov.s32 %0,%1;}"
            : "=r"(d) : "r"(a[1]));
        asm("add.s32 %0,%0,\n\t\v1;" : "+r"(d));
        asm volatile("{.reg .b32 t;mov.b32 t,%1;add.s32 %0,t,5;}" : "=r"(a[2]) : "r"(d));
        a[0] = d;
    }"""
    a = numbers(0, 5)
    launch(source, 1, a)
    assert a[:3].tolist() == [7, 5, 12]


UNSUPPORTED = {
    "tex1Dfetch<float>(t, 0)": r"tex\.1d.*\(textures and surfaces: load from a pointer\)",
    "fib(t)": r"call.*\(recursion\)",
    "swapped(a)": r"atom\.exch\.b128",
}


@pytest.mark.parametrize(("value", "message"), UNSUPPORTED.items(), ids=["texture", "recursion", "atomic of 128 bits"])
def test_unsupported_features_are_named(value: str, message: str) -> None:
    source = f"""__device__ __noinline__ int fib(int n) {{ return n < 2 ? n : fib(n - 1) + fib(n - 2); }}
    __device__ int swapped(float* a) {{  // from sm_90 on
        asm volatile("{{.reg .b128 x, y; mov.b128 x, {{%0, %0}}; atom.exch.b128 y, [%1], x;}}" :: "l"(1ull), "l"(a));
        return 0;
    }}
    __global__ void kernel(float* a, unsigned long long t) {{ a[0] = {value}; }}"""
    with pytest.raises(simt.Unsupported) as caught:
        launch(source, 1, aligned(8), 0)
    assert re.search(message, str(caught.value))
