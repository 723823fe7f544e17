"""Test CUDA C++ features within a warp and a block: shuffles, votes, atomics, half precision, structs by value."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from machine.launching import Run, aligned, buffer, compile_ptx
from warpcheck import simt

RNG = np.random.default_rng(3)
LANES = np.arange(32)


def evaluate_in_warp(
    run: Run, expression: str, values: np.ndarray[Any, Any], kind: str = "int"
) -> np.ndarray[Any, Any]:
    """``expression`` of ``v``, the lane's value, in one warp."""
    source = f"""#include <cuda_fp16.h>
    #include <cuda_bf16.h>
    __global__ void kernel(const {kind}* a, {kind}* b) {{
        int t = threadIdx.x;
        {kind} v = a[t];
        b[t] = {expression};
    }}"""
    values = np.ascontiguousarray(values)
    result = np.zeros_like(values)
    run(source, 1, 32, values, result)
    return result


INTS = RNG.integers(-100, 100, 32, dtype=np.int32)
SHUFFLES = {
    "__shfl_sync(~0u, v, t + 5)": INTS[(LANES + 5) % 32],
    "__shfl_sync(~0u, v, 3, 8)": INTS[LANES // 8 * 8 + 3],
    "__shfl_up_sync(~0u, v, 2)": INTS[np.where(LANES < 2, LANES, LANES - 2)],
    "__shfl_up_sync(~0u, v, 3, 16)": INTS[np.where(LANES % 16 < 3, LANES, LANES - 3)],
    "__shfl_down_sync(~0u, v, 4)": INTS[np.where(LANES > 27, LANES, LANES + 4)],
    "__shfl_down_sync(~0u, v, 1, 4)": INTS[np.where(LANES % 4 == 3, LANES, LANES + 1)],
    "__shfl_xor_sync(~0u, v, 21)": INTS[LANES ^ 21],
    "__shfl_xor_sync(~0u, v, 9, 8)": INTS[np.where((LANES ^ 9) // 8 <= LANES // 8, LANES ^ 9, LANES)],
}


@pytest.mark.parametrize("expression", SHUFFLES)
def test_shuffles(run: Run, expression: str) -> None:
    """A lane whose source is outside its segment keeps its value. xor may reach a lower segment (PTX ISA, 9.7.9.6)."""
    assert evaluate_in_warp(run, expression, INTS).tolist() == SHUFFLES[expression].tolist()


def signed(bits: int) -> int:
    return bits - (1 << 32) if bits >> 31 else bits


VOTES = {
    "__ballot_sync(~0u, v > 0)": signed(sum(1 << lane for lane in range(32) if INTS[lane] > 0)),
    "__any_sync(~0u, v == 1000)": 0,
    "__all_sync(~0u, v < 1000)": 1,
    "__reduce_add_sync(~0u, v)": INTS.sum(),
    "__reduce_min_sync(~0u, v)": INTS.min(),
    "__reduce_max_sync(~0u, v)": INTS.max(),
    "__reduce_or_sync(~0u, (unsigned)v)": np.bitwise_or.reduce(INTS),
    "__reduce_xor_sync(~0u, (unsigned)v)": np.bitwise_xor.reduce(INTS),
    "__popc(__activemask())": 32,
}


@pytest.mark.parametrize("expression", VOTES)
def test_votes_and_reductions(run: Run, expression: str) -> None:
    assert evaluate_in_warp(run, expression, INTS).tolist() == [VOTES[expression]] * 32


def test_match_any_and_match_all(run: Run) -> None:
    values = RNG.integers(0, 4, 32, dtype=np.int32)
    groups = [signed(sum(1 << int(n) for n in np.flatnonzero(values == value))) for value in values]
    assert evaluate_in_warp(run, "__match_any_sync(~0u, v)", values).tolist() == groups
    source = "([&] { int all; unsigned m = __match_all_sync(~0u, v / 8, &all); return (int)(m + all); })()"
    assert evaluate_in_warp(run, source, values).tolist() == [0] * 32  # all ones, plus one
    assert evaluate_in_warp(run, source.replace("v / 8", "v"), values).tolist() == [0] * 32


ATOMICS = {
    "atomicAdd(a, t)": ("int", 5 + 64 * 63 // 2),
    "atomicSub(a, 2)": ("int", 5 - 128),
    "atomicMax(a, t)": ("int", 63),
    "atomicMin(a, -t)": ("int", -63),
    "atomicOr(a, 1 << t % 31)": ("int", (1 << 31) - 1),
    "atomicExch(a, 9)": ("int", 9),
    "atomicInc((unsigned*)a, 9)": ("int", (5 + 64) % 10),
    "atomicDec((unsigned*)a, 9)": ("int", (5 - 64) % 10),
    "atomicCAS(a, 5, 77)": ("int", 77),
    "atomicAdd(a, 0.5f)": ("float", 5 + 32),
    "atomicAdd(a, 0.25)": ("double", 5 + 16),
    "atomicAdd((unsigned long long*)a, 1ull << 33)": ("long long", 5 + (64 << 33)),
}


@pytest.mark.parametrize("space", ["global", "shared"])
@pytest.mark.parametrize("expression", ATOMICS)
def test_atomics(run: Run, expression: str, space: str) -> None:
    kind, expected = ATOMICS[expression]
    dtype = {"int": np.int32, "float": np.float32, "double": np.float64, "long long": np.int64}[kind]
    shared = f"__shared__ {kind} s; if (t == 0) s = *out; __syncthreads(); {kind}* a = &s;" if space == "shared" else ""
    source = f"""__global__ void kernel({kind}* out) {{
        int t = threadIdx.x;
        {shared or f"{kind}* a = out;"}
        {expression};
        __syncthreads();
        if (t == 0) *out = *a;
    }}"""
    value = np.array([5], dtype)
    run(source, 1, 64, value)
    assert value.tolist() == [expected]


def test_atomics_return_the_previous_value(run: Run) -> None:
    source = "__global__ void kernel(int* a, int* b) { b[threadIdx.x] = atomicAdd(a, 2); }"
    a = np.array([100], np.int32)
    b = np.zeros(64, np.int32)
    run(source, 1, 64, a, b)
    assert sorted(b.tolist()) == list(range(100, 228, 2))


def test_half_atomics(run: Run) -> None:
    source = """#include <cuda_fp16.h>
    #include <cuda_bf16.h>
    __global__ void kernel(__half* a, __nv_bfloat16* b, __half2* c) {
        atomicAdd(a, __float2half(0.5f));
        atomicAdd(b, __float2bfloat16(1.0f));
        atomicAdd(c, __floats2half2_rn(1.0f, 2.0f));
    }"""
    a = np.zeros(1, np.float16)
    b = np.zeros(1, np.uint16)
    c = np.zeros(2, np.float16)
    run(source, 1, 32, a, b, c.view(np.uint32))
    assert (a[0], int(b[0]) << 16, c.tolist()) == (16, int(np.array(32, np.float32).view(np.uint32)), [32, 64])


HALVES = {
    "__hfma(v, v, v)": lambda v: v.astype(np.float64) ** 2 + v,
    "__hadd(v, v)": lambda v: v.astype(np.float64) * 2,
    "__hmax(v, __float2half(0.5f))": lambda v: np.maximum(v, 0.5),
    "hexp2(v)": lambda v: np.exp2(v.astype(np.float64)),
    "hsqrt(__habs(v))": lambda v: np.sqrt(abs(v).astype(np.float64)),
    "__float2half(__half2float(v) / 3)": lambda v: v.astype(np.float32) / np.float32(3),
}


@pytest.mark.parametrize("expression", HALVES)
def test_half_precision(run: Run, expression: str) -> None:
    values = RNG.standard_normal(32).astype(np.float16)
    got = evaluate_in_warp(run, expression, values, "__half")
    want = HALVES[expression](values).astype(np.float16)
    assert (
        abs(got.view(np.int16).astype(int) - want.view(np.int16)) <= ("exp" in expression or "sqrt" in expression)
    ).all()


def test_a_struct_by_value_and_constant_memory() -> None:
    source = """struct Shape { int rows, columns; float scale[4]; };
    __constant__ float table[4] = {1, 2, 3, 4};
    __device__ float offset = 0.5f;
    __global__ void kernel(Shape shape, float* b) {
        int t = threadIdx.x;
        b[t] = shape.scale[t % 4] * table[t % 3] + shape.rows * shape.columns + offset;
    }"""
    module, name = compile_ptx(source)
    shape = np.array([3, 5], np.int32).tobytes() + np.array([10, 20, 30, 40], np.float32).tobytes()
    b = aligned(32)
    args: list[bytes | int] = [shape, b.ctypes.data]
    module.launch(name, grid=(1,), block=(32,), args=args, buffers=[buffer("b", b)])
    assert b.tolist() == [10 * (t % 4 + 1) * (t % 3 + 1) + 15.5 for t in range(32)]
    (kernel,) = module.kernels.values()
    assert [(param.size, param.align) for param in kernel.params] == [(24, 4), (8, 8)]


def test_module_variables_keep_their_values_between_launches(run: Run) -> None:
    source = """__device__ int count = 7;
    __device__ int* where = &count;
    __global__ void kernel(int* a) { if (threadIdx.x == 0) *a = atomicAdd(where, 1); }"""
    counts = []
    for _ in range(3):
        a = np.zeros(1, np.int32)
        run(source, 1, 32, a)
        counts.append(int(a[0]))
    assert counts == [counts[0], counts[0] + 1, counts[0] + 2]
    assert counts[0] >= 7


def test_a_grid_constant_struct_is_read_through_its_address(run: Run) -> None:
    source = """struct Table { float row[16]; };
    __global__ void kernel(const __grid_constant__ Table table, float* b) {
        const Table* p = &table;
        asm volatile("" : "+l"(p));
        b[threadIdx.x] = p->row[threadIdx.x % 16];
    }"""
    b = aligned(32)
    module, name = compile_ptx(source)
    args: list[bytes | int] = [np.arange(16, dtype=np.float32).tobytes(), b.ctypes.data]
    module.launch(name, grid=(1,), block=(32,), args=args, buffers=[buffer("b", b)])
    assert b.tolist() == [float(t % 16) for t in range(32)]


def test_a_failed_assertion_stops_the_launch(run: Run) -> None:
    source = """__global__ void kernel(int* a) {
        assert(a[threadIdx.x] < 40);
        a[threadIdx.x] = 0;
    }"""
    a = np.arange(64, dtype=np.int32)
    with pytest.raises(simt.Fault, match=r"fails the assertion 'a.threadIdx\.x. < 40'") as caught:
        run(source, 1, 64, a)
    assert (caught.value.kind, caught.value.line, caught.value.thread) == (simt.FaultKind.ASSERTION, 2, (40, 0, 0))


CALLS = """__device__ __noinline__ int f(int n) { return n < 2 ? n : f(n - 1) + f(n - 2); }
    __device__ __noinline__ int g(int n) { return n + 1; }
    __device__ __noinline__ int h(int n) { return n + 2; }
    __global__ void kernel(int* a, int n) { a[threadIdx.x] = CALL; }"""


def test_recursion_is_not_supported(run: Run) -> None:
    with pytest.raises(simt.Unsupported, match="recursion"):
        run(CALLS.replace("CALL", "f(n)"), 1, 1, np.zeros(1, np.int32), 7)


def test_lanes_call_different_functions_through_a_pointer(run: Run) -> None:
    a = np.zeros(4, np.int32)
    run(CALLS.replace("CALL", "(n & 1 << threadIdx.x ? g : h)(n)"), 1, 4, a, 5)
    assert a.tolist() == [6, 7, 6, 7]


def test_clock64_advances_across_barriers_and_time_slices(run: Run) -> None:
    source = """__global__ void kernel(long long* a) {
        long long start = clock64();
        while (clock64() - start < 5000000 * (threadIdx.x / 32));
        __syncthreads();
        a[threadIdx.x] = clock64() - start;
    }"""
    a = aligned(64, np.int64)
    run(source, 1, 64, a)
    assert (a >= 5000000).all()


def test_predicates_of_address_spaces(run: Run) -> None:
    source = """__global__ void kernel(int* a) {
        __shared__ int s[4];
        int l[4], t = threadIdx.x;
        for (int k = 0; k < 4; k++) l[k] = s[k] = k;
        int* p = t % 3 == 0 ? a : t % 3 == 1 ? s + 3 : l + 3;
        asm volatile("" : "+l"(p));
        a[t] = __isGlobal(p) + 2 * __isShared(p) + 4 * __isLocal(p);
    }"""
    a = aligned(32, np.int32)
    run(source, 1, 32, a)
    assert a.tolist() == [1 << t % 3 for t in range(32)]


def test_loading_a_part_of_an_argument_is_unsupported() -> None:
    text = """.version 8.0
.target sm_80
.address_size 64
.func (.param .b32 r) f(.param .align 8 .b8 p[8]) { .reg .b32 %r<2>;
    ld.param.b32 %r1, [p+4]; st.param.b32 [r], %r1; ret; }
.visible .entry k() { .reg .b32 %r<2>; .reg .b64 %rd<2>; mov.b64 %rd1, 7;
    { .param .align 8 .b8 p0[8]; .param .b32 r0; st.param.b64 [p0], %rd1; call (r0), f, (p0); ld.param.b32 %r1, [r0]; }
    ret; }"""
    with pytest.raises(simt.Unsupported, match=r"ld\.param\.b32 \(of part of an argument\)"):
        simt.load(text).launch("k", grid=(1,), block=(32,))


def test_a_conditional_printf_in_ptx(run: Run) -> None:
    source = """__global__ void kernel(int* a) {
        if (threadIdx.x % 8 == 3) printf("%d;", threadIdx.x);
    }"""
    assert run(source, 1, 32, np.zeros(1, np.int32)).printed == "3;11;19;27;"


def test_a_guarded_call_of_vprintf() -> None:
    text = """.version 8.0
.target sm_80
.address_size 64
.extern .func (.param .b32 r) vprintf(.param .b64 format, .param .b64 arguments);
.global .align 1 .b8 format[4] = {37, 100, 59};
.visible .entry k() { .reg .b32 %r<2>; .reg .b64 %rd<2>; .reg .pred %p; .local .align 8 .b8 values[8];
    mov.u32 %r1, %tid.x; setp.lt.u32 %p, %r1, 3; st.local.u32 [values], %r1;
    { .param .b64 p0; .param .b64 p1; .param .b32 r0;
      mov.u64 %rd1, format; cvta.global.u64 %rd1, %rd1; st.param.b64 [p0], %rd1;
      mov.u64 %rd1, values; cvta.local.u64 %rd1, %rd1; st.param.b64 [p1], %rd1;
      GUARD call (r0), vprintf, (p0, p1); }
    ret; }"""
    for guard, printed in (("@%p", "0;1;2;"), ("@!%p", "3;4;"), ("", "0;1;2;3;4;")):
        launch = simt.load(text.replace("GUARD", guard)).launch("k", grid=(1,), block=(5,))
        assert launch.printed == printed
