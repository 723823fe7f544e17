// GEMM on tensor cores: out[row, column] = sum over i of a[row, i] * b[i, column]. a is m x k and b is k x n; they and
// out are bfloat16 or float16, the accumulators float32.
//
// A block computes BM x BN outputs, and a warp WM x WN of them. cp.async copies the tiles of a and b to shared memory,
// in a circular buffer of STAGES. ldmatrix loads fragments from there, and mma.sync multiplies them. The PTX ISA
// describes the fragments' layouts under "Matrix Fragments for mma.m16n8k16".

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_pipeline.h>

constexpr int BM = 128, BN = 128, BK = 32, STAGES = 3;
constexpr int WM = 64, WN = 32;  // 64 registers per thread hold the accumulators
constexpr int THREADS = (BM / WM) * (BN / WN) * 32;
// The leading dimensions: the distance between two rows of a tile, in elements. Rows are padded by 16 bytes, so the 8
// rows of 16 bytes that ldmatrix reads at a time are in different banks.
constexpr int LDA = BK + 8, LDB = BN + 8;
constexpr int STAGE = BM * LDA + BK * LDB;  // elements of a tile of a and a tile of b

// Load four 8 x 8 matrices. This is a macro because TRANS (".trans" or "") is a part of the instruction's name.
#define LDMATRIX(TRANS, frag, src)                                                                           \
    asm volatile("ldmatrix.sync.aligned.m8n8.x4" TRANS ".shared.b16 {%0, %1, %2, %3}, [%4];"                 \
                 : "=r"(frag[0]), "=r"(frag[1]), "=r"(frag[2]), "=r"(frag[3])                                \
                 : "r"((unsigned)__cvta_generic_to_shared(src)) : "memory")

// acc (16 x 8) += a (16 x 16) * b (16 x 8). A lane holds 4, 8 and 4 of their elements; a register holds two of a or b.
#define MMA(TYPE)                                                                                            \
    asm("mma.sync.aligned.m16n8k16.row.col.f32." TYPE "." TYPE ".f32 "                                       \
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"                                    \
        : "+f"(acc[0]), "+f"(acc[1]), "+f"(acc[2]), "+f"(acc[3])                                             \
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]))

// The last parameter only chooses the type.
__device__ void mma(float (&acc)[4], const unsigned (&a)[4], const unsigned* b, __nv_bfloat16) { MMA("bf16"); }
__device__ void mma(float (&acc)[4], const unsigned (&a)[4], const unsigned* b, __half) { MMA("f16"); }

// Copy the tile that starts at (row0, col0) of a matrix, with 0 for elements outside. cp.async copies 16 bytes; if rows
// do not start at multiples of 16 bytes, Word is one element, which an ordinary load and store copies.
template <int TILE_ROWS, int TILE_COLS, typename Word, typename T>
__device__ void copy_tile(T* tile, int ld, const T* matrix, int row0, int col0, int rows, int cols) {
    constexpr int WIDTH = sizeof(Word) / sizeof(T), WORDS = TILE_COLS / WIDTH;
    // The number of iterations does not depend on threadIdx.x, so the compiler can unroll the loop.
    for (int l = 0; l < TILE_ROWS * WORDS / THREADS; ++l) {
        const int i = l * THREADS + threadIdx.x, row = row0 + i / WORDS, col = col0 + i % WORDS * WIDTH;
        T* const dst = tile + i / WORDS * ld + i % WORDS * WIDTH;
        const bool in_bounds = row < rows && col < cols;
        const T* const src = in_bounds ? matrix + (long long)row * cols + col : matrix;
        // if constexpr is decided when the template is compiled: copies of 2 bytes do not exist.
        if constexpr (WIDTH > 1) __pipeline_memcpy_async(dst, src, sizeof(Word), in_bounds ? 0 : sizeof(Word));
        else *dst = in_bounds ? *src : T(0.0f);
    }
}

template <typename T, typename Word>
__global__ void __launch_bounds__(THREADS, 2) matmul(const T* a, const T* b, T* out, int m, int n, int k) {
    extern __shared__ uint4 shared[];
    T* const smem = reinterpret_cast<T*>(shared);
    const int cRow = blockIdx.y * BM, cCol = blockIdx.x * BN;  // the first row and column of the block's tile
    const auto copy_stage = [&](int tile) {  // past the end of k, the stage is filled with zeros
        T* const stage = smem + tile % STAGES * STAGE;
        copy_tile<BM, BK, Word>(stage, LDA, a, cRow, tile * BK, m, k);
        copy_tile<BK, BN, Word>(stage + BM * LDA, LDB, b, tile * BK, cCol, k, n);
        __pipeline_commit();
    };
    const int warp_id = threadIdx.x / 32, lane_id = threadIdx.x % 32;
    const int warpRow = warp_id / (BN / WN) * WM, warpCol = warp_id % (BN / WN) * WN;
    float acc[WM / 16][WN / 8][4] = {};

    for (int tile = 0; tile < STAGES - 1; ++tile) copy_stage(tile);
    for (int tile = 0; tile * BK < k; ++tile) {
        __pipeline_wait_prior(STAGES - 2);  // this thread's copies of the tile have arrived,
        __syncthreads();  // and so have all others' copies; and all warps are done with the stage that is filled next
        copy_stage(tile + STAGES - 1);
        const T* const As = smem + tile % STAGES * STAGE;
        const T* const Bs = As + BM * LDA;
        for (int kk = 0; kk < BK; kk += 16) {
            // Lane l gives the address of row l % 8 of matrix l / 8 of four: upper left, lower left, upper right, lower
            // right. b is transposed on the way, because a register must hold two elements that are adjacent along k.
            unsigned a_frag[WM / 16][4], b_frag[WN / 16][4];
            const T* const a_src = As + (warpRow + lane_id % 16) * LDA + kk + lane_id / 16 * 8;
            const T* const b_src = Bs + (kk + lane_id % 16) * LDB + warpCol + lane_id / 16 * 8;
            for (int i = 0; i < WM / 16; ++i) LDMATRIX("", a_frag[i], a_src + 16 * i * LDA);
            for (int j = 0; j < WN / 16; ++j) LDMATRIX(".trans", b_frag[j], b_src + 16 * j);
            for (int i = 0; i < WM / 16; ++i) {
                for (int j = 0; j < WN / 8; ++j) mma(acc[i][j], a_frag[i], &b_frag[j / 2][j % 2 * 2], T());
            }
        }
    }

    // Store through shared memory, so that neighboring threads store neighboring columns. Lane 4g + t holds columns 2t
    // and 2t + 1 of row g, then of row g + 8.
    __pipeline_wait_prior(0);  // the copies past the end of k, too
    __syncthreads();
    T* const c_dst = smem + (warpRow + lane_id / 4) * LDB + warpCol + lane_id % 4 * 2;
    for (int i = 0; i < WM / 16; ++i) {
        for (int j = 0; j < WN / 8; ++j) {
            for (int e = 0; e < 4; ++e) c_dst[(16 * i + e / 2 * 8) * LDB + 8 * j + e % 2] = T(acc[i][j][e]);
        }
    }
    __syncthreads();
    constexpr int WIDTH = sizeof(Word) / sizeof(T), WORDS = BN / WIDTH;
    for (int i = threadIdx.x; i < BM * WORDS; i += THREADS) {
        const int row = i / WORDS, col = i % WORDS * WIDTH;
        if (cRow + row < m && cCol + col < n) {
            Word* const dst = reinterpret_cast<Word*>(out + (long long)(cRow + row) * n + cCol + col);
            *dst = *reinterpret_cast<const Word*>(smem + row * LDB + col);
        }
    }
}
