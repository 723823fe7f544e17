"""Test that headers and idioms of other people's kernels compile without a toolkit.

A compilation takes seconds, so each group of idioms is one source.
"""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from warpcheck import frontends
from warpcheck.frontends import cutlass, headers, nvrtc

C_HEADERS = """
    assert.h cuda.h cuComplex.h cuda_bf16.h cuda_fp16.h cuda_fp8.h cuda_runtime.h cuda_runtime_api.h
    device_launch_parameters.h float.h inttypes.h limits.h math.h math_constants.h mma.h stdbool.h stddef.h stdint.h
    stdio.h stdlib.h string.h vector_functions.h vector_types.h cassert cfloat climits cmath cstddef cstdint cstdio
    cstdlib cstring chrono iomanip iostream string vector cuda_pipeline.h
"""
STANDARD_HEADERS = """
    algorithm array bit complex functional initializer_list iterator limits numeric optional span tuple type_traits
    utility variant cuda/std/array cuda/std/atomic cuda/std/cmath cuda/std/complex cuda/std/cstdint cuda/std/limits
    cuda/std/span cuda/std/tuple cuda/std/type_traits
"""
NVIDIA_HEADERS = """
    cooperative_groups.h cooperative_groups/memcpy_async.h cooperative_groups/reduce.h cooperative_groups/scan.h
    cub/cub.cuh cub/block/block_reduce.cuh cub/warp/warp_reduce.cuh cuda/atomic cuda/barrier cuda/functional cuda/latch
    cuda/pipeline cuda/ptx cuda/semaphore cuda_awbarrier.h cuda_pipeline_primitives.h
"""

C_IDIOMS = {
    "names that nvcc knows without an #include": """
        __global__ void without(double* x, uint n, ushort s) { x[0] = M_PI + INT_MAX + INFINITY + NAN + SIZE_MAX; }
        __global__ void widths(int64_t* x, uint8_t n, int32_t m, uintptr_t p) { x[0] = n + m + p + CHAR_BIT; }""",
    "assert, printf and FLT_MAX": """
        __global__ void told(float* x) {
            assert(x[0] < FLT_MAX && x[1] > DBL_EPSILON); printf("%d %f\\n", threadIdx.x, x[0]); }""",
    "launch bounds and unmangled names": """
        extern "C" __global__ void __launch_bounds__(256, 2) bounded(float* __restrict__ x) { x[0] = 1.f; }""",
    "a template with a number": """
        template <typename T, int N> __global__ void repeated(T* x) {
            #pragma unroll
            for (int i = 0; i < N; ++i) x[i * blockDim.x + threadIdx.x] = T(i);
        }
        template __global__ void repeated<float, 4>(float*);""",
    "if constexpr, fold expressions and lambdas": """
        template <class T> __device__ float wide(T x) { if constexpr (sizeof(T) == 2) return float(x); else return x; }
        template <class... A> __device__ float total(A... a) { return (wide(a) + ...); }
        __global__ void lambdas(float* x, __half h) {
            auto twice = [](float v) { return 2 * v; };
            auto thrice = [&](float v) { return 3 * v + x[1]; };
            x[0] = twice(x[0]) + thrice(x[2]) + total(h, 1.f);
        }""",
    "namespaces, enum class and constants": """
        namespace ours { namespace detail { enum class Op : int { add, mul }; constexpr int N = 4;
        __constant__ float weights[N]; __device__ int counter; __device__ const float table[2] = {1.f, 2.f}; }
        __global__ void named(float* x, detail::Op op) {
            if (op == detail::Op::add) atomicAdd(&detail::counter, 1);
            x[0] = detail::weights[threadIdx.x % detail::N] + detail::table[threadIdx.x & 1];
        } }""",
    "macros in NVIDIA's samples": """
        #define BLOCK_SIZE 16
        #define CEIL_DIV(a, b) (((a) + (b) - 1) / (b))
        #define DTYPE float
        #define FETCH(p) (*reinterpret_cast<const float4*>(&(p)))
        typedef struct { int width; int height; float* elements; } Matrix;
        __global__ void macros(const Matrix A, DTYPE* C) {
            __shared__ DTYPE As[BLOCK_SIZE][BLOCK_SIZE];
            As[threadIdx.y][threadIdx.x] = A.elements[threadIdx.y * A.width + threadIdx.x];
            __syncthreads();
            float4 v = FETCH(A.elements[0]);
            C[CEIL_DIV(A.height, BLOCK_SIZE)] = As[threadIdx.x][threadIdx.y] + v.x;
        }""",
    "caches and vectors": """
        __global__ void cached(const float* __restrict__ x, float* y, const int2* z) {
            float4 v = __ldg(reinterpret_cast<const float4*>(x)); v.x += __ldcs(x + 8) + __ldca(x + 9);
            __stcs(reinterpret_cast<float4*>(y), make_float4(v.x, v.y, v.z, z->x)); __stwt(y + 5, v.w);
        }""",
    "shared memory by a typed alias": """
        template <typename T> __device__ T* pool() {
            extern __shared__ __align__(16) unsigned char raw[]; return reinterpret_cast<T*>(raw); }
        __global__ void dynamic(double* x) { auto* s = pool<double>(); s[threadIdx.x] = x[threadIdx.x]; __syncthreads();
            x[threadIdx.x] = s[threadIdx.x ^ 1]; }""",
    "half precision": """
        __global__ void halves(__half2* x, __nv_bfloat162* y, half h, nv_bfloat16 b) {
            x[0] = __hfma2(x[1], x[2], __float2half2_rn(0.5f)); x[3] = h2exp(x[4]);
            x[5].x = hexp(h) + __hmax(h, x[6].y);
            y[0] = __hadd2(y[1], __floats2bfloat162_rn(1.f, 2.f)); y[2].x = b * __float2bfloat16(3.f);
            float2 wide = __bfloat1622float2(y[3]); y[4].y = __nv_bfloat16(wide.x) + hrsqrt(b);
        }""",
    "warp intrinsics": """
        __device__ __forceinline__ float warp_sum(float v) {
            for (int o = 16; o > 0; o >>= 1) v += __shfl_xor_sync(0xffffffffu, v, o); return v; }
        __global__ void warps(float* x, unsigned* m) {
            unsigned active = __activemask(); m[0] = __ballot_sync(active, x[0] > 0) + __popc(active) + __ffs(active);
            m[1] = __reduce_add_sync(~0u, m[2]) + __match_any_sync(~0u, m[3]);
            m[2] = __dp4a(1, 2, 3) + __byte_perm(1, 2, 0x5410);
            x[0] = warp_sum(x[1]) + __fdividef(x[2], __expf(x[3])) + rsqrtf(x[4]) + __saturatef(x[5]) + erff(x[6]);
        }""",
    "pipelines of C": """
        __global__ void copied(float4* x) {
            __shared__ float4 s[32];
            __pipeline_memcpy_async(&s[threadIdx.x], &x[threadIdx.x], sizeof(float4));
            __pipeline_commit(); __pipeline_wait_prior(0); __syncthreads(); x[threadIdx.x] = s[31 - threadIdx.x];
        }""",
    "matrices of warps": """
        using namespace nvcuda;
        __global__ void fragments(const half* a, const half* b, float* c) {
            wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major> fa;
            wmma::fragment<wmma::matrix_b, 16, 16, 16, half, wmma::col_major> fb;
            wmma::fragment<wmma::accumulator, 16, 16, 16, float> fc;
            wmma::fill_fragment(fc, 0.f); wmma::load_matrix_sync(fa, a, 16); wmma::load_matrix_sync(fb, b, 16);
            wmma::mma_sync(fc, fa, fb, fc); wmma::store_matrix_sync(c, fc, 16, wmma::mem_row_major);
        }""",
    "PTX between the lines": """
        __global__ void inlined(float* x) {
            float v; asm volatile("ld.global.cs.f32 %0, [%1];" : "=f"(v) : "l"(x)); unsigned lane;
            asm("mov.u32 %0, %%laneid;" : "=r"(lane)); x[lane] = v;
        }""",
    "math of namespace std": """
        __global__ void maths(float* x, double* y) {
            x[0] = std::max(std::sqrt(x[1]), std::abs(x[2])) + std::exp(x[3]);
            x[4] = std::isnan(x[4]) ? 1 : std::pow(x[5], 2);
            y[0] = std::min(y[1], std::fma(y[2], y[3], y[4])) + offsetof(float4, z);
        }""",
    "clocks and fences": """
        __global__ void fenced(volatile int* x, long long* t) { long long start = clock64(); __threadfence(); x[0] = 1;
            __threadfence_block(); __syncwarp(); __nanosleep(20); t[0] = clock64() - start; }""",
}

STANDARD_IDIOMS = {
    "what PyTorch's operators use": """
        template <typename T, std::enable_if_t<std::is_floating_point_v<T>, int> = 0> __device__ T lowest() {
            return std::numeric_limits<T>::lowest(); }
        __global__ void lowered(float* x) { auto [a, b] = std::tuple<float, int>(x[0], 3); std::swap(x[1], x[2]);
            x[3] = lowest<float>() + a + b + std::clamp(x[5], 0.f, 1.f); }""",
    "arrays, complex numbers and bits": """
        __global__ void arrays(float* x) { std::array<float, 4> a{1, 2, 3, 4}; cuda::std::complex<float> z(x[0], x[1]);
            z = z * z; float sum = 0; for (float v : a) sum += v; x[0] = sum + z.real() + std::popcount(7u);
            std::plus<float> add; x[1] = add(x[2], std::uint32_t{3}); }""",
    "atomics and spans": """
        __global__ void atomics(int* x) { cuda::std::atomic_ref<int> a(x[0]); a.fetch_add(1);
            cuda::std::span<int> s(x, 4); s[1] = s.size(); }""",
}

NVIDIA_IDIOMS = {
    "cooperative groups": """
        namespace cg = cooperative_groups;
        __global__ void groups(float* x) {
            __shared__ float s[128]; auto block = cg::this_thread_block(); auto warp = cg::tiled_partition<32>(block);
            auto half = cg::tiled_partition<16>(warp); auto active = cg::coalesced_threads();
            float v = cg::reduce(warp, x[block.thread_rank()], cg::plus<float>()) + half.shfl_down(x[1], 1);
            v += cg::reduce(half, v, cg::greater<float>()) + cg::exclusive_scan(half, v) + active.size();
            cg::memcpy_async(block, s, x, sizeof(s)); cg::wait(block);
            x[block.group_index().x] = v + s[threadIdx.x] + warp.meta_group_rank(); cg::this_grid().thread_rank();
        }""",
    "blocks and warps of CUB": """
        template <typename T, int THREADS> __global__ void blocks(T* x, int* keys) {
            using Reduce = cub::BlockReduce<T, THREADS>; using Scan = cub::BlockScan<T, THREADS>;
            using Sort = cub::BlockRadixSort<int, THREADS, 4>; using Load = cub::BlockLoad<T, THREADS, 4>;
            __shared__ union { typename Reduce::TempStorage reduce; typename Scan::TempStorage scan;
                               typename Sort::TempStorage sort; typename Load::TempStorage load; } s;
            T v[4]; int k[4] = {keys[0], keys[1], keys[2], keys[3]};
            Load(s.load).Load(x, v, THREADS * 4, T(0)); __syncthreads(); T sum = Reduce(s.reduce).Sum(v);
            __syncthreads(); Scan(s.scan).InclusiveSum(v, v); __syncthreads(); Sort(s.sort).Sort(k);
            x[threadIdx.x] = sum + v[3]; keys[threadIdx.x] = k[0];
        }
        template __global__ void blocks<float, 128>(float*, int*);
        __global__ void warps_of_cub(float* x) { using Warp = cub::WarpReduce<float>;
            __shared__ typename Warp::TempStorage s[4];
            x[0] = Warp(s[threadIdx.x / 32]).Reduce(x[threadIdx.x], cuda::maximum<>{}); }""",
    "barriers and pipelines": """
        __global__ void staged(float4* x) {
            __shared__ float4 s[2][64]; auto pipe = cuda::make_pipeline();
            for (int i = 0; i < 2; ++i) { pipe.producer_acquire();
                cuda::memcpy_async(&s[i][threadIdx.x], x + i * 64 + threadIdx.x, cuda::aligned_size_t<16>(16), pipe);
                pipe.producer_commit(); }
            cuda::pipeline_consumer_wait_prior<1>(pipe); __syncthreads(); x[threadIdx.x] = s[0][63 - threadIdx.x];
            pipe.consumer_release();
        }
        __global__ void waited(float* x) {
            __shared__ cuda::barrier<cuda::thread_scope_block> bar; __shared__ float s[64];
            if (threadIdx.x == 0) init(&bar, blockDim.x); __syncthreads();
            cuda::memcpy_async(cooperative_groups::this_thread_block(), s, x, sizeof(s), bar);
            bar.arrive_and_wait(); x[threadIdx.x] = s[63 - threadIdx.x];
        }""",
    "atomics with a scope": """
        __global__ void scoped(int* x) { cuda::atomic_ref<int, cuda::thread_scope_device> a(x[0]);
            a.fetch_add(1, cuda::memory_order_relaxed); while (a.load(cuda::memory_order_acquire) < 4) {} }""",
}

GROUPS = {
    "C": (C_HEADERS, C_IDIOMS),
    "standard": (STANDARD_HEADERS, STANDARD_IDIOMS),
    "NVIDIA": (NVIDIA_HEADERS, NVIDIA_IDIOMS),
}


@pytest.mark.parametrize("group", GROUPS)
def test_common_headers_and_idioms_compile(group: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WARPCHECK_CACHE", str(tmp_path))
    included, idioms = GROUPS[group]
    lines = [f"#include <{name}>" for name in included.split()] + ["__global__ void last() {}"]
    source = "\n".join(itertools.chain(lines, idioms.values()))
    assert ".entry" in nvrtc.compile_kernel(source, "idioms.cu", "last", "compute_80").ptx


@pytest.mark.parametrize("header", ["", "cooperative_groups.h", "cuda_device_runtime_api.h", "cuda_runtime.h"])
def test_functions_of_dependent_launch_need_no_header(header: str) -> None:
    include = f"#include <{header}>" if header else ""
    source = f"""{include}
        __global__ void dependent(float* x) {{
            cudaTriggerProgrammaticLaunchCompletion(); cudaGridDependencySynchronize(); x[0] = 1;
        }}"""
    ptx = nvrtc.compile_kernel(source, "dependent.cu", "dependent", "compute_90").ptx
    assert "griddepcontrol.launch_dependents;" in ptx
    assert "griddepcontrol.wait;" in ptx


def test_libcu_headers_unroll_type_lists_as_for_nvcc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the limit for other compilers, a kernel with libcu++ parses 25 times slower (see headers.PRELUDE)."""
    monkeypatch.setenv("WARPCHECK_CACHE", str(tmp_path))
    limit = "_CCCL_META_UNROLL_LIMIT"
    paths = [Path(folder) / "cuda/std/__type_traits/type_list.h" for folder in headers.folders()]
    (text,) = (path.read_text(encoding="utf-8") for path in paths if path.is_file())
    assert f"_CCCL_PP_REPEAT_REVERSE({limit}, " in text, "another macro limits the unrolling of the list"
    source = f"#include <cuda/std/type_traits>\nstatic_assert({limit} == 10);\n__global__ void last() {{}}"
    nvrtc.compile_kernel(source, "headers.cu", "last", "compute_80")


def test_a_missing_header_names_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    with_no_cub = headers.folders()[0]
    monkeypatch.setattr(headers, "_candidates", lambda: [Path(with_no_cub)])
    with pytest.raises(
        frontends.Unavailable, match=r"nvidia-cuda-cccl is not installed: .* -m pip install 'nvidia-cuda-c"
    ):
        headers.folders.__wrapped__()


@pytest.mark.parametrize(
    ("source", "included"),
    [
        ("#include <cute/tensor.hpp>", True),
        ('  # include "cutlass/gemm/gemm.h"', True),
        ("// #include <cute/tensor.hpp>", False),
        ("#include <cuda/ptx>", False),
    ],
)
def test_sources_that_include_cutlass_headers(source: str, included: bool) -> None:
    assert cutlass.is_included(f"#include <cstdint>\n{source}\n") is included


def test_cutlass_headers_are_adapted_to_the_installed_libcu() -> None:
    """The patch removes one declaration that libcu++ now has in its own namespace. The declaration in std stays."""
    declaration = "template <class... _Tp>\nstruct tuple_size;"
    texts = cutlass.patched_headers()
    for name, text in texts.items():
        original = (cutlass.folder() / name).read_text(encoding="utf-8")
        assert text.count(declaration) == max(original.count(declaration) - 1, 0), name
    assert "struct own_sequence" in texts["cute/numeric/integer_sequence.hpp"]


ELEMENTS = """
#include <cute/tensor.hpp>
using namespace cute;
using Mixed = tuple<int, _2, tuple<_1, float>, double>;
static_assert(is_same_v<tuple_element_t<0, Mixed>, int>);
static_assert(is_same_v<tuple_element_t<2, Mixed>, tuple<_1, float>>);
static_assert(is_same_v<tuple_element_t<3, const Mixed>, const double>);
static_assert(is_same_v<tuple_element_t<1, ArithmeticTuple<int, _2>>, _2>);
static_assert(is_same_v<tuple_element_t<1, type_list<int, float>>, float>);
static_assert(is_same_v<typename std::tuple_element<1, Mixed>::type, _2>);
static_assert(sizeof(tuple<_1, int, _2>) == 4 && sizeof(tuple<int, _1, int>) == 8 && is_empty_v<tuple<_1, _2>>);
static_assert(is_std_integral<const int>::value && is_std_integral<char>::value && is_std_integral<uint64_t>::value);
static_assert(!is_std_integral<float>::value && !is_std_integral<_1>::value && !is_std_integral<int&>::value);
__global__ void third(int* out) {
    auto [first, second] = make_tuple(_3{}, 4);
    *out = first + second;
}
"""


def test_patched_cute_tuples_behave_the_same_with_fewer_templates() -> None:
    changed = [name for name, text in cutlass.patched_headers().items() if "pack_element" in text]
    assert changed == ["cute/container/tuple.hpp", "cute/container/type_list.hpp", "cute/numeric/arithmetic_tuple.hpp"]
    assert "tuple_element<I, CUTE_STL_NAMESPACE::tuple" not in "".join(cutlass.patched_headers().values())
    ptx = nvrtc.compile_kernel(ELEMENTS, "elements.cu", "third", "compute_80").ptx
    assert "7;" in ptx
    variables = [line for line in ptx.splitlines() if line.startswith(".global")]
    assert not [line for line in variables if "is_first_empty" in line or ("is_integral_v" in line and "tuple" in line)]
    incorrect = ELEMENTS.replace("3, const Mixed>, const double", "3, const Mixed>, double")
    with pytest.raises(nvrtc.CompileError, match="static assertion failed"):
        nvrtc.compile_kernel(incorrect, "elements.cu", "third", "compute_80")


def test_a_changed_cutlass_header_recompiles_the_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[str] = []
    entries: dict[str, bytes] = {}  # a cache that no other run shares
    monkeypatch.setattr(nvrtc, "cache_read", lambda kind, key: entries.get(key))
    monkeypatch.setattr(nvrtc, "cache_write", lambda kind, key, content: entries.update({key: content}))

    def compile_nothing(source: str, *arguments: object) -> nvrtc.Binary:
        compiled.append(source)
        return nvrtc.Binary(mangled="third", ptx="", cubin=b"")

    monkeypatch.setattr(nvrtc, "_compile", compile_nothing)
    patched = cutlass.patched_headers()
    for texts in (patched, patched, patched | {"cute/container/tuple.hpp": "// another patch"}):
        monkeypatch.setattr(cutlass, "patched_headers", lambda texts=texts: texts)
        nvrtc.compile_kernel(ELEMENTS, "elements.cu", "third", "compute_80")
    assert compiled == [ELEMENTS] * 2
