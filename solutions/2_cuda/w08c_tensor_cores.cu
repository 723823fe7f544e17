// Matrix product on tensor cores: out[row, column] = sum over i of a[row, i] * b[i, column]. a is m x k and b is k x n;
// they and out are bfloat16 or float16, the sums float32.
//
// A block makes ROWS x COLUMNS of out, a warp WARP_ROWS x WARP_COLUMNS of them. Tiles of a and b, DEPTH deep along k,
// stream through a ring of STAGES buffers in shared memory, filled by cp.async. ldmatrix takes fragments from there, and
// mma.sync multiplies them.

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_pipeline.h>

constexpr int DEPTH = 64;   // steps along k in a stage
constexpr int STAGES = 3;
constexpr int K = 16;       // steps along k that one mma takes
constexpr int GROUP = 8;    // rows of blocks that walk along n together

// Where an element of a tile lies. Rows are cut into chunks of 16 bytes, and the chunks of 8 neighboring rows that are
// below one another lie in 8 different groups of 4 banks: ldmatrix reads them in one wavefront.
template <int COLUMNS>
__device__ int swizzled(int row, int column) {
    static_assert(COLUMNS % 64 == 0, "8 chunks change places");
    return row * COLUMNS + (column / 8 ^ row % 8) * 8 + column % 8;
}

// Four 8 x 8 matrices; lane l gives the address of row l % 8 of matrix l / 8. Lane 4g + t gets elements 2t and 2t + 1 of
// row g of each.
__device__ void ldmatrix(unsigned (&fragment)[4], const void* row) {
    const unsigned address = __cvta_generic_to_shared(row);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(fragment[0]), "=r"(fragment[1]), "=r"(fragment[2]), "=r"(fragment[3])
                 : "r"(address) : "memory");
}

// The same of the transposed matrices: elements 2t and 2t + 1 of column g.
__device__ void ldmatrix_transposed(unsigned (&fragment)[4], const void* row) {
    const unsigned address = __cvta_generic_to_shared(row);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(fragment[0]), "=r"(fragment[1]), "=r"(fragment[2]), "=r"(fragment[3])
                 : "r"(address) : "memory");
}

template <typename T>
struct Numbers;

template <>
struct Numbers<__nv_bfloat16> {
    // sum (16 x 8) += a (16 x 16) * b (16 x 8)
    static __device__ void multiply(float (&sum)[4], const unsigned (&a)[4], const unsigned* b) {
        asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
            : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
    }
    static __device__ __nv_bfloat162 rounded(float x, float y) { return __floats2bfloat162_rn(x, y); }
};

template <>
struct Numbers<__half> {
    static __device__ void multiply(float (&sum)[4], const unsigned (&a)[4], const unsigned* b) {
        asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
            : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
    }
    static __device__ __half2 rounded(float x, float y) { return __floats2half2_rn(x, y); }
};

// A tile of a matrix (rows x columns) into shared memory, 0 where it lies outside. It begins at (first_row,
// first_column). Word is what a thread copies at a time: 16 or 4 bytes by cp.async, or one element, for which there is
// no cp.async.
template <int ROWS, int COLUMNS, int THREADS, typename Word, typename T>
__device__ void copy(T* tile, const T* matrix, int first_row, int first_column, int rows, int columns) {
    constexpr int WIDTH = sizeof(Word) / sizeof(T), ACROSS = COLUMNS / WIDTH, DOWN = THREADS / ACROSS;
    static_assert(THREADS % ACROSS == 0 && ROWS % DOWN == 0);
    const int y = threadIdx.x / ACROSS, x = threadIdx.x % ACROSS * WIDTH;
    const int row = first_row + y, column = first_column + x;
    const T* from = matrix + (long long)row * columns + column;
    #pragma unroll (WIDTH == 8 ? ROWS / DOWN : 8)
    for (int down = 0; down < ROWS; down += DOWN) {
        const bool inside = row + down < rows && column < columns;
        T* to = tile + swizzled<COLUMNS>(y + down, x);
        if constexpr (WIDTH > 1) {
            __pipeline_memcpy_async(to, from, sizeof(Word), inside ? 0 : sizeof(Word));
        } else {
            *to = inside ? *from : T(0.0f);
        }
        from += (long long)DOWN * columns;
    }
}

template <typename T, typename Word, int ROWS, int COLUMNS, int WARP_ROWS, int WARP_COLUMNS>
__global__ void __launch_bounds__(ROWS / WARP_ROWS * (COLUMNS / WARP_COLUMNS) * 32)
matmul(const T* a, const T* b, T* out, int m, int n, int k) {
    constexpr int WARPS_ACROSS = COLUMNS / WARP_COLUMNS, THREADS = ROWS / WARP_ROWS * WARPS_ACROSS * 32;
    constexpr int TILE_A = ROWS * DEPTH, TILE_B = DEPTH * COLUMNS;
    extern __shared__ __align__(128) unsigned char shared[];
    T* const stages = reinterpret_cast<T*>(shared);

    // Blocks are numbered down GROUP rows before they go on along n: those that run together share rows and columns in L2.
    const int across = (n + COLUMNS - 1) / COLUMNS, down = (m + ROWS - 1) / ROWS;
    const int group = blockIdx.x / (GROUP * across), in_group = blockIdx.x % (GROUP * across);
    const int height = min(GROUP, down - group * GROUP);
    const int first_row = (group * GROUP + in_group % height) * ROWS, first_column = in_group / height * COLUMNS;

    const auto fetch = [&](int step) {  // a step past the end fills its stage with zeros
        T* const tile_a = stages + step % STAGES * (TILE_A + TILE_B);
        copy<ROWS, DEPTH, THREADS, Word>(tile_a, a, first_row, step * DEPTH, m, k);
        copy<DEPTH, COLUMNS, THREADS, Word>(tile_a + TILE_A, b, step * DEPTH, first_column, k, n);
        __pipeline_commit();
    };

    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int warp_row = warp / WARPS_ACROSS * WARP_ROWS, warp_column = warp % WARPS_ACROSS * WARP_COLUMNS;
    unsigned of_a[2][WARP_ROWS / 16][4], of_b[2][WARP_COLUMNS / 16][4];  // those in use, and the next
    const auto load = [&](int which, int step, int depth) {
        const T* const tile_a = stages + step % STAGES * (TILE_A + TILE_B);
        const T* const tile_b = tile_a + TILE_A;
        for (int i = 0; i < WARP_ROWS / 16; ++i) {
            const int row = warp_row + i * 16 + lane % 16;
            ldmatrix(of_a[which][i], tile_a + swizzled<DEPTH>(row, depth + lane / 16 * 8));
        }
        for (int j = 0; j < WARP_COLUMNS / 16; ++j) {
            const int column = warp_column + j * 16 + lane / 16 * 8;
            ldmatrix_transposed(of_b[which][j], tile_b + swizzled<COLUMNS>(depth + lane % 16, column));
        }
    };

    float sum[WARP_ROWS / 16][WARP_COLUMNS / 8][4] = {};
    for (int step = 0; step < STAGES - 1; ++step) fetch(step);
    __pipeline_wait_prior(STAGES - 2);
    __syncthreads();
    load(0, 0, 0);
    for (int step = 0; step * DEPTH < k; ++step) {
        #pragma unroll
        for (int q = 0; q < DEPTH / K; ++q) {
            if (q == DEPTH / K - 1) {  // the next stage has arrived, and no warp reads the one before this any more
                __pipeline_wait_prior(STAGES - 2);
                __syncthreads();
                load((q + 1) % 2, step + 1, 0);
            } else {
                load((q + 1) % 2, step, (q + 1) * K);
            }
            if (q == 0) fetch(step + STAGES - 1);
            for (int i = 0; i < WARP_ROWS / 16; ++i) {
                for (int j = 0; j < WARP_COLUMNS / 8; ++j) {
                    Numbers<T>::multiply(sum[i][j], of_a[q % 2][i], &of_b[q % 2][j / 2][j % 2 * 2]);
                }
            }
        }
    }

    // Through shared memory, so that a row of the tile goes out as whole sectors.
    __pipeline_wait_prior(0);
    __syncthreads();
    for (int i = 0; i < WARP_ROWS / 16; ++i) {
        for (int j = 0; j < WARP_COLUMNS / 8; ++j) {
            for (int half = 0; half < 2; ++half) {
                const int row = warp_row + i * 16 + half * 8 + lane / 4, column = warp_column + j * 8 + lane % 4 * 2;
                const auto pair = Numbers<T>::rounded(sum[i][j][2 * half], sum[i][j][2 * half + 1]);
                *reinterpret_cast<unsigned*>(stages + swizzled<COLUMNS>(row, column)) =
                    reinterpret_cast<const unsigned&>(pair);
            }
        }
    }
    __syncthreads();
    constexpr int WIDTH = sizeof(Word) / sizeof(T), ACROSS = COLUMNS / WIDTH;
    for (int y = threadIdx.x / ACROSS; y < ROWS; y += THREADS / ACROSS) {
        const int x = threadIdx.x % ACROSS * WIDTH, row = first_row + y, column = first_column + x;
        if (row < m && column < n) {
            *reinterpret_cast<Word*>(out + (long long)row * n + column) =
                *reinterpret_cast<const Word*>(stages + swizzled<COLUMNS>(y, x));
        }
    }
}
