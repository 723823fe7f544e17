// Layers as in CUTLASS: an instruction, fragments, a warp's product, a threadblock's main loop, an epilogue. Each knows its
// shape by a template argument. Tiles are swizzled; operands come by ldmatrix, sums leave through shared memory.

#include <cuda/std/cstdint>
#include <cuda_bf16.h>
#include <cuda_fp16.h>

namespace gemm {

using cuda::std::uint32_t;

template <int M_, int N_, int K_>
struct GemmShape {
    static constexpr int kM = M_, kN = N_, kK = K_;
};

template <typename Element>
struct Mma16816;

template <>
struct Mma16816<__half> {
    __device__ static void run(float (&d)[4], uint32_t const (&a)[4], uint32_t const (&b)[2]) {
        asm volatile(
            "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
            "{%10,%11,%12,%13};\n"
            : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "f"(d[0]), "f"(d[1]), "f"(d[2]), "f"(d[3]));
    }
};

template <>
struct Mma16816<__nv_bfloat16> {
    __device__ static void run(float (&d)[4], uint32_t const (&a)[4], uint32_t const (&b)[2]) {
        asm volatile(
            "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
            "{%10,%11,%12,%13};\n"
            : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "f"(d[0]), "f"(d[1]), "f"(d[2]), "f"(d[3]));
    }
};

// A tile with rows of 128 bytes; the eight vectors of a row are permuted by the number of the row.
template <typename Element, int Rows>
struct CrosswiseTile {
    static constexpr int kColumns = 64;
    Element storage[Rows * kColumns];

    __device__ Element* at(int row, int column) {
        int const vector = (column >> 3) ^ (row & 7);
        return storage + row * kColumns + (vector << 3) + (column & 7);
    }
};

template <bool Transpose>
__device__ void ldsm(uint32_t (&d)[4], void const* ptr) {
    uint32_t const smem = static_cast<uint32_t>(__cvta_generic_to_shared(ptr));
    if constexpr (Transpose) {
        asm volatile("ldmatrix.sync.aligned.x4.trans.m8n8.shared.b16 {%0,%1,%2,%3}, [%4];\n"
                     : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3]) : "r"(smem));
    } else {
        asm volatile("ldmatrix.sync.aligned.x4.m8n8.shared.b16 {%0,%1,%2,%3}, [%4];\n"
                     : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3]) : "r"(smem));
    }
}

template <typename Element_, typename ThreadblockShape_, typename WarpShape_>
struct Gemm {
    using Element = Element_;
    using ThreadblockShape = ThreadblockShape_;
    using WarpShape = WarpShape_;
    static constexpr int kWarpsN = ThreadblockShape::kN / WarpShape::kN;
    static constexpr int kThreads = ThreadblockShape::kM / WarpShape::kM * kWarpsN * 32;
    static constexpr int kIterationsM = WarpShape::kM / 16, kIterationsN = WarpShape::kN / 8;

    struct Params {
        Element const *a, *b;
        Element* d;
        int m, n, k;
    };

    struct SharedStorage {
        CrosswiseTile<Element, ThreadblockShape::kM> a;
        CrosswiseTile<Element, ThreadblockShape::kK> b[ThreadblockShape::kN / 64];
    };

    // Element by element: correct for any alignment of the operands.
    template <typename Tile>
    __device__ static void load(Tile& tile, int rows, Element const* ptr, long long ld, int row_extent, int column_extent) {
        for (int i = threadIdx.x; i < rows * 64; i += kThreads) {
            int const row = i / 64, column = i % 64;
            bool const guard = row < row_extent && column < column_extent;
            *tile.at(row, column) = guard ? ptr[row * ld + column] : Element(0.0f);
        }
    }

    __device__ static void run(Params const& params, SharedStorage& shared) {
        int const row = blockIdx.y * ThreadblockShape::kM, column = blockIdx.x * ThreadblockShape::kN;
        int const warp = threadIdx.x / 32, lane = threadIdx.x % 32;
        int const warp_m = warp / kWarpsN * WarpShape::kM, warp_n = warp % kWarpsN * WarpShape::kN;
        float accumulators[kIterationsM][kIterationsN][4] = {};

        for (int k = 0; k < params.k; k += ThreadblockShape::kK) {
            load(shared.a, ThreadblockShape::kM, params.a + (long long)row * params.k + k, params.k, params.m - row, params.k - k);
            for (int panel = 0; panel < ThreadblockShape::kN / 64; ++panel) {
                int const first = column + panel * 64;
                load(shared.b[panel], ThreadblockShape::kK, params.b + (long long)k * params.n + first, params.n,
                     params.k - k, params.n - first);
            }
            __syncthreads();
            for (int warp_k = 0; warp_k < ThreadblockShape::kK; warp_k += 16) {
                uint32_t a[kIterationsM][4], b[kIterationsN][2];
                for (int i = 0; i < kIterationsM; ++i) {
                    ldsm<false>(a[i], shared.a.at(warp_m + i * 16 + lane % 16, warp_k + lane / 16 * 8));
                }
                for (int j = 0; j < kIterationsN; j += 2) {
                    uint32_t pair[4];
                    int const n = warp_n + j * 8 + lane / 16 * 8;
                    ldsm<true>(pair, shared.b[n / 64].at(warp_k + lane % 16, n % 64));
                    b[j][0] = pair[0], b[j][1] = pair[1], b[j + 1][0] = pair[2], b[j + 1][1] = pair[3];
                }
                for (int i = 0; i < kIterationsM; ++i) {
                    for (int j = 0; j < kIterationsN; ++j) Mma16816<Element>::run(accumulators[i][j], a[i], b[j]);
                }
            }
            __syncthreads();
        }

        // Epilogue: 64 columns at a time, in the tile of a.
        for (int panel = 0; panel < ThreadblockShape::kN / 64; ++panel) {
            for (int i = 0; i < kIterationsM; ++i) {
                for (int j = 0; j < kIterationsN; ++j) {
                    for (int e = 0; e < 4; e += 2) {
                        int const r = warp_m + i * 16 + lane / 4 + e * 4, n = warp_n + j * 8 + lane % 4 * 2;
                        if (n / 64 != panel) continue;
                        shared.a.at(r, n % 64)[0] = Element(accumulators[i][j][e]);
                        shared.a.at(r, n % 64)[1] = Element(accumulators[i][j][e + 1]);
                    }
                }
            }
            __syncthreads();
            for (int i = threadIdx.x; i < ThreadblockShape::kM * 64; i += kThreads) {
                int const r = i / 64, n = column + panel * 64 + i % 64;
                if (row + r < params.m && n < params.n) {
                    params.d[(long long)(row + r) * params.n + n] = *shared.a.at(r, i % 64);
                }
            }
            __syncthreads();
        }
    }
};

}  // namespace gemm

template <typename Operator>
__global__ void __launch_bounds__(Operator::kThreads) device_kernel(
    typename Operator::Element const* a, typename Operator::Element const* b, typename Operator::Element* d, int m, int n, int k) {
    __shared__ __align__(128) typename Operator::SharedStorage shared;
    Operator::run({a, b, d, m, n, k}, shared);
}
