// GEMM on tensor cores: out[row, column] = sum over i of a[row, i] * b[i, column]. a is m x k and b is k x n; they and
// out are bfloat16 or float16, the accumulators float32.
//
// A block computes ROWS x COLUMNS outputs, and a warp WARP_ROWS x WARP_COLUMNS of them. cp.async copies tiles of a and
// b, DEPTH deep along k, to a circular buffer of STAGES in shared memory. ldmatrix loads fragments from there, and
// mma.sync multiplies them.

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_pipeline.h>

constexpr int PANEL = 64;  // columns: a row of a panel has 128 bytes, which span all banks once
constexpr int DEPTH = PANEL;
constexpr int STAGES = 3;
constexpr int K = 16;      // steps along k of one mma
constexpr int GROUP = 8;   // rows of blocks that advance along n together

// Return the position of a tile's element in shared memory. The tile is cut into panels of `rows` rows. A row is 8
// chunks of 16 bytes, and chunk c of row r is stored at c ^ r % 8, so that chunks in one column are in different banks,
// both those that ldmatrix reads at a time and those to which a warp's accumulators are written.
__device__ int place(int rows, int row, int column) {
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

// sum (16 x 8) += a (16 x 16) * b (16 x 8). Lane 4g + t holds sum's columns 2t and 2t + 1 in row g, then in row g + 8.
#define MULTIPLY(TYPE)                                                                              \
    asm("mma.sync.aligned.m16n8k16.row.col.f32." TYPE "." TYPE ".f32 "                              \
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"                           \
        : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])                                    \
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]))

__device__ void multiply(float (&sum)[4], const unsigned (&a)[4], const unsigned* b, __nv_bfloat16) { MULTIPLY("bf16"); }
__device__ void multiply(float (&sum)[4], const unsigned (&a)[4], const unsigned* b, __half) { MULTIPLY("f16"); }

__device__ __nv_bfloat162 rounded(float x, float y, __nv_bfloat16) { return __floats2bfloat162_rn(x, y); }
__device__ __half2 rounded(float x, float y, __half) { return __floats2half2_rn(x, y); }

// Copy a word of 16 or 4 bytes to shared memory, or zeros if the word is outside the matrix.
template <typename Word>
__device__ void copy_async(unsigned to, const void* from, bool inside) {
    const int bytes = inside ? sizeof(Word) : 0;
    if constexpr (sizeof(Word) == 16) {
        asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes) : "memory");
    } else {
        asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(to), "l"(from), "r"(bytes) : "memory");
    }
}

// A thread's share of a tile: it copies one word of each panel, in rows that are LINES apart.
template <int THREADS, typename Word, typename T>
struct Part {
    static constexpr int WIDTH = sizeof(Word) / sizeof(T), ACROSS = PANEL / WIDTH, LINES = THREADS / ACROSS;
    const int row = threadIdx.x / ACROSS, column = threadIdx.x % ACROSS * WIDTH;

    // Copy this thread's share of the tile at (first_row, first_column) in a rows x columns matrix; it starts at from.
    // There is no cp.async for single elements.
    template <int TILE_ROWS, int TILE_COLUMNS>
    __device__ void copy(T* tile, const T* from, int first_row, int first_column, int rows, int columns) const {
        static_assert(TILE_ROWS % LINES == 0);
        #pragma unroll (WIDTH == 8 ? TILE_ROWS / LINES : 4)
        for (int down = 0; down < TILE_ROWS; down += LINES) {
            for (int panel = 0; panel < TILE_COLUMNS; panel += PANEL) {
                T* const to = tile + place(TILE_ROWS, row + down, panel + column);
                const bool inside = first_row + row + down < rows && first_column + panel + column < columns;
                if constexpr (WIDTH > 1) {
                    copy_async<Word>(__cvta_generic_to_shared(to), from + panel, inside);
                } else {
                    *to = inside ? from[panel] : T(0.0f);
                }
            }
            from += (long long)LINES * columns;
        }
    }
};

template <typename T, typename Word, int ROWS, int COLUMNS, int WARP_ROWS, int WARP_COLUMNS>
__global__ void __launch_bounds__(ROWS / WARP_ROWS * (COLUMNS / WARP_COLUMNS) * 32)
matmul(const T* a, const T* b, T* out, int m, int n, int k) {
    constexpr int WARPS_ACROSS = COLUMNS / WARP_COLUMNS, THREADS = ROWS / WARP_ROWS * WARPS_ACROSS * 32;
    constexpr int TILE_A = ROWS * DEPTH, STAGE = TILE_A + DEPTH * COLUMNS;  // in elements
    constexpr unsigned STAGE_BYTES = STAGE * sizeof(T);
    constexpr int I = WARP_ROWS / 16, J = WARP_COLUMNS / 8;                 // 16 x 8 sums of a warp
    extern __shared__ __align__(128) unsigned char shared[];
    T* const ring = reinterpret_cast<T*>(shared);

    // Blocks are numbered down GROUP rows before they advance along n, so blocks that run together share a and b in L2.
    const int across = (n + COLUMNS - 1) / COLUMNS, down = (m + ROWS - 1) / ROWS;
    const int group = blockIdx.x / (GROUP * across), in_group = blockIdx.x % (GROUP * across);
    const int height = min(GROUP, down - group * GROUP);
    const int first_row = (group * GROUP + in_group % height) * ROWS, first_column = in_group / height * COLUMNS;

    const Part<THREADS, Word, T> part;
    const T* from_a = a + (long long)(first_row + part.row) * k + part.column;
    const T* from_b = b + (long long)part.row * n + first_column + part.column;
    int depth = 0, slot = 0;      // for the stage that is fetched next
    const auto fetch = [&] {      // past the end of k, the stage is filled with zeros
        T* const tile = ring + slot * STAGE;
        part.template copy<ROWS, DEPTH>(tile, from_a, first_row, depth, m, k);
        part.template copy<DEPTH, COLUMNS>(tile + TILE_A, from_b, depth, first_column, k, n);
        __pipeline_commit();
        from_a += DEPTH;
        from_b += (long long)DEPTH * n;
        depth += DEPTH;
        slot = slot == STAGES - 1 ? 0 : slot + 1;
    };

    // The addresses of this lane's rows for the first fragments. 16 steps further along a row are two chunks. Since
    // chunks are permuted by ^, ^ computes their addresses, too.
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int warp_row = warp / WARPS_ACROSS * WARP_ROWS, warp_column = warp % WARPS_ACROSS * WARP_COLUMNS;
    const unsigned base = __cvta_generic_to_shared(ring);
    const unsigned in_a = sizeof(T) * place(ROWS, warp_row + lane % 16, lane / 16 * 8);
    const unsigned in_b = sizeof(T) * (TILE_A + place(DEPTH, lane % 16, warp_column + lane / 16 * 8));
    unsigned stage = base;                        // from which fragments are loaded
    unsigned of_a[2][I][4], of_b[2][J / 2][4];    // the fragments in use and the next ones
    const auto load = [&](int which, int q) {
        for (int j = 0; j < J / 2; ++j) {
            ldmatrix_transposed(of_b[which][j], (stage + in_b ^ j * 16 * sizeof(T)) + q * K * PANEL * sizeof(T));
        }
        for (int i = 0; i < I; ++i) {
            ldmatrix(of_a[which][i], (stage + in_a ^ q * K * sizeof(T)) + i * 16 * PANEL * sizeof(T));
        }
    };

    float sum[I][J][4] = {};
    for (int i = 0; i < STAGES - 1; ++i) fetch();
    __pipeline_wait_prior(STAGES - 2);
    __syncthreads();
    load(0, 0);
    #pragma unroll 1
    for (int step = 0; step * DEPTH < k; ++step) {
        #pragma unroll
        for (int q = 0; q < DEPTH / K; ++q) {
            const int next = (q + 1) % (DEPTH / K);
            if (next == 0) {  // the next stage is there, and no warp reads the one before this any more
                __pipeline_wait_prior(STAGES - 2);
                __syncthreads();
                stage = stage == base + (STAGES - 1) * STAGE_BYTES ? base : stage + STAGE_BYTES;
            }
            load((q + 1) % 2, next);
            if (q == 0) fetch();
            for (int i = 0; i < I; ++i) {
                for (int j = 0; j < J; ++j) multiply(sum[i][j], of_a[q % 2][i], &of_b[q % 2][j / 2][j % 2 * 2], T());
            }
        }
    }

    // Store through shared memory, so that whole rows of a panel are written.
    __pipeline_wait_prior(0);
    __syncthreads();
    for (int i = 0; i < I; ++i) {
        for (int j = 0; j < J; ++j) {
            for (int half = 0; half < 2; ++half) {
                const int row = warp_row + i * 16 + half * 8 + lane / 4, column = warp_column + j * 8 + lane % 4 * 2;
                const auto pair = rounded(sum[i][j][2 * half], sum[i][j][2 * half + 1], T());
                reinterpret_cast<unsigned&>(ring[place(ROWS, row, column)]) = reinterpret_cast<const unsigned&>(pair);
            }
        }
    }
    __syncthreads();
    for (int panel = 0; panel < COLUMNS; panel += PANEL) {
        const int column = first_column + panel + part.column;
        for (int y = part.row; y < ROWS; y += part.LINES) {
            const int row = first_row + y;
            if (row < m && column < n) {
                reinterpret_cast<Word&>(out[(long long)row * n + column]) =
                    reinterpret_cast<const Word&>(ring[place(ROWS, y, panel + part.column)]);
            }
        }
    }
}
