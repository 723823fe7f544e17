// GEMM on tensor cores: out[row, column] = sum over i of a[row, i] * b[i, column]. a is m x k and b is k x n; they and
// out are bfloat16 or float16, the accumulators float32.
//
// A block computes BM x BN outputs, and a warp WM x WN of them. cp.async copies tiles of a and
// b, BK deep along k, to a circular buffer of STAGES in shared memory. ldmatrix loads fragments from there, and
// mma.sync multiplies them.

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_pipeline.h>

constexpr int PANEL = 64;  // columns of a panel: a row has 128 bytes, which span all banks once
constexpr int BK = PANEL;
constexpr int STAGES = 3;
constexpr int K = 16;      // steps along k of one mma
constexpr int GROUP = 8;   // rows of blocks that advance along n together

// Return the position of a tile's element in shared memory. The tile is cut into panels of `rows` rows. A row is 8
// chunks of 16 bytes, and chunk c of row r is stored at c ^ r % 8, so that chunks in one column are in different banks,
// both those that ldmatrix reads at a time and those to which a warp's accumulators are written.
__device__ int swizzle(int rows, int row, int column) {
    return (column / PANEL * rows + row) * PANEL + (column % PANEL / 8 ^ row % 8) * 8 + column % 8;
}

// Load four 8 x 8 matrices. Lane l addresses row l % 8 of matrix l / 8. Lane 4g + t gets elements 2t, 2t + 1 of row g.
__device__ void ldmatrix(unsigned (&fragment)[4], unsigned address) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(fragment[0]), "=r"(fragment[1]), "=r"(fragment[2]), "=r"(fragment[3])
                 : "r"(address) : "memory");
}

// Do the same with each matrix transposed: lane 4g + t gets elements 2t and 2t + 1 of column g.
__device__ void ldmatrix_transposed(unsigned (&fragment)[4], unsigned address) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(fragment[0]), "=r"(fragment[1]), "=r"(fragment[2]), "=r"(fragment[3])
                 : "r"(address) : "memory");
}

// acc (16 x 8) += a (16 x 16) * b (16 x 8). Lane 4g + t holds acc's columns 2t and 2t + 1 in row g, then in row g + 8.
#define MULTIPLY(TYPE)                                                                              \
    asm("mma.sync.aligned.m16n8k16.row.col.f32." TYPE "." TYPE ".f32 "                              \
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"                           \
        : "+f"(acc[0]), "+f"(acc[1]), "+f"(acc[2]), "+f"(acc[3])                                    \
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]))

__device__ void multiply(float (&acc)[4], const unsigned (&a)[4], const unsigned* b, __nv_bfloat16) { MULTIPLY("bf16"); }
__device__ void multiply(float (&acc)[4], const unsigned (&a)[4], const unsigned* b, __half) { MULTIPLY("f16"); }

__device__ __nv_bfloat162 rounded(float x, float y, __nv_bfloat16) { return __floats2bfloat162_rn(x, y); }
__device__ __half2 rounded(float x, float y, __half) { return __floats2half2_rn(x, y); }

// Copy a word of 16 or 4 bytes to shared memory, or zeros if the word is outside the matrix.
template <typename Word>
__device__ void copy_async(unsigned dst, const void* src, bool in_bounds) {
    const int bytes = in_bounds ? sizeof(Word) : 0;
    if constexpr (sizeof(Word) == 16) {
        asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(dst), "l"(src), "r"(bytes) : "memory");
    } else {
        asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(dst), "l"(src), "r"(bytes) : "memory");
    }
}

// A thread's share of a tile: it copies one word of each panel, in rows that are LINES apart.
template <int THREADS, typename Word, typename T>
struct Part {
    static constexpr int WIDTH = sizeof(Word) / sizeof(T), VECS = PANEL / WIDTH, LINES = THREADS / VECS;
    const int row = threadIdx.x / VECS, column = threadIdx.x % VECS * WIDTH;

    // Copy this thread's share of the tile at (row0, col0) in a rows x columns matrix; it starts at from.
    // There is no cp.async for single elements.
    template <int TILE_ROWS, int TILE_COLUMNS>
    __device__ void copy(T* tile, const T* src, int row0, int col0, int rows, int columns) const {
        static_assert(TILE_ROWS % LINES == 0);
        #pragma unroll (WIDTH == 8 ? TILE_ROWS / LINES : 4)
        for (int row_offset = 0; row_offset < TILE_ROWS; row_offset += LINES) {
            for (int panel = 0; panel < TILE_COLUMNS; panel += PANEL) {
                T* const dst = tile + swizzle(TILE_ROWS, row + row_offset, panel + column);
                const bool in_bounds = row0 + row + row_offset < rows && col0 + panel + column < columns;
                if constexpr (WIDTH > 1) {
                    copy_async<Word>(__cvta_generic_to_shared(dst), src + panel, in_bounds);
                } else {
                    *dst = in_bounds ? src[panel] : T(0.0f);
                }
            }
            src += (long long)LINES * columns;
        }
    }
};

template <typename T, typename Word, int BM, int BN, int WM, int WN>
__global__ void __launch_bounds__(BM / WM * (BN / WN) * 32)
matmul(const T* a, const T* b, T* out, int m, int n, int k) {
    constexpr int WARPS_N = BN / WN, THREADS = BM / WM * WARPS_N * 32;
    constexpr int TILE_A = BM * BK, STAGE = TILE_A + BK * BN;  // in elements
    constexpr unsigned STAGE_BYTES = STAGE * sizeof(T);
    constexpr int I = WM / 16, J = WN / 8;                 // 16 x 8 sums of a warp
    extern __shared__ __align__(128) unsigned char shared[];
    T* const ring = reinterpret_cast<T*>(shared);

    // Blocks are numbered down GROUP rows before they advance along n, so blocks that run together share a and b in L2.
    const int tiles_n = (n + BN - 1) / BN, tiles_m = (m + BM - 1) / BM;
    const int group = blockIdx.x / (GROUP * tiles_n), in_group = blockIdx.x % (GROUP * tiles_n);
    const int group_m = min(GROUP, tiles_m - group * GROUP);
    const int cRow = (group * GROUP + in_group % group_m) * BM, cCol = in_group / group_m * BN;

    const Part<THREADS, Word, T> part;
    const T* a_src = a + (long long)(cRow + part.row) * k + part.column;
    const T* b_src = b + (long long)part.row * n + cCol + part.column;
    int depth = 0, slot = 0;      // for the stage that is fetched next
    const auto fetch = [&] {      // past the end of k, the stage is filled with zeros
        T* const tile = ring + slot * STAGE;
        part.template copy<BM, BK>(tile, a_src, cRow, depth, m, k);
        part.template copy<BK, BN>(tile + TILE_A, b_src, depth, cCol, k, n);
        __pipeline_commit();
        a_src += BK;
        b_src += (long long)BK * n;
        depth += BK;
        slot = slot == STAGES - 1 ? 0 : slot + 1;
    };

    // The addresses of this lane's rows for the first fragments. 16 steps further along a row are two chunks. Since
    // chunks are permuted by ^, ^ computes their addresses, too.
    const int warp_id = threadIdx.x / 32, lane_id = threadIdx.x % 32;
    const int warpRow = warp_id / WARPS_N * WM, warpCol = warp_id % WARPS_N * WN;
    const unsigned base = __cvta_generic_to_shared(ring);
    const unsigned a_offset = sizeof(T) * swizzle(BM, warpRow + lane_id % 16, lane_id / 16 * 8);
    const unsigned b_offset = sizeof(T) * (TILE_A + swizzle(BK, lane_id % 16, warpCol + lane_id / 16 * 8));
    unsigned stage = base;                        // the stage from which fragments are loaded
    unsigned a_reg[2][I][4], b_reg[2][J / 2][4];    // the fragments in use and the next ones
    const auto load = [&](int buf, int q) {
        for (int j = 0; j < J / 2; ++j) {
            ldmatrix_transposed(b_reg[buf][j], (stage + b_offset ^ j * 16 * sizeof(T)) + q * K * PANEL * sizeof(T));
        }
        for (int i = 0; i < I; ++i) {
            ldmatrix(a_reg[buf][i], (stage + a_offset ^ q * K * sizeof(T)) + i * 16 * PANEL * sizeof(T));
        }
    };

    float acc[I][J][4] = {};
    for (int i = 0; i < STAGES - 1; ++i) fetch();
    __pipeline_wait_prior(STAGES - 2);
    __syncthreads();
    load(0, 0);
    #pragma unroll 1
    for (int k_tile = 0; k_tile * BK < k; ++k_tile) {
        #pragma unroll
        for (int q = 0; q < BK / K; ++q) {
            const int next = (q + 1) % (BK / K);
            if (next == 0) {  // the next stage has arrived, and no warp still reads the previous one
                __pipeline_wait_prior(STAGES - 2);
                __syncthreads();
                stage = stage == base + (STAGES - 1) * STAGE_BYTES ? base : stage + STAGE_BYTES;
            }
            load((q + 1) % 2, next);
            if (q == 0) fetch();
            for (int i = 0; i < I; ++i) {
                for (int j = 0; j < J; ++j) multiply(acc[i][j], a_reg[q % 2][i], &b_reg[q % 2][j / 2][j % 2 * 2], T());
            }
        }
    }

    // Store through shared memory, so that whole rows of a panel are written.
    __pipeline_wait_prior(0);
    __syncthreads();
    for (int i = 0; i < I; ++i) {
        for (int j = 0; j < J; ++j) {
            for (int h = 0; h < 2; ++h) {
                const int row = warpRow + i * 16 + h * 8 + lane_id / 4, column = warpCol + j * 8 + lane_id % 4 * 2;
                const auto pair = rounded(acc[i][j][2 * h], acc[i][j][2 * h + 1], T());
                reinterpret_cast<unsigned&>(ring[swizzle(BM, row, column)]) = reinterpret_cast<const unsigned&>(pair);
            }
        }
    }
    __syncthreads();
    for (int panel = 0; panel < BN; panel += PANEL) {
        const int column = cCol + panel + part.column;
        for (int y = part.row; y < BM; y += part.LINES) {
            const int row = cRow + y;
            if (row < m && column < n) {
                reinterpret_cast<Word&>(out[(long long)row * n + column]) =
                    reinterpret_cast<const Word&>(ring[swizzle(BM, y, panel + part.column)]);
            }
        }
    }
}
