// GEMM: out[row, column] = sum over i of a[row, i] * b[i, column]; a is m x k, b is k x n, all float32.
//
// cp.async copies the tiles of a and b to shared memory, in a circular buffer of STAGES. While one stage is multiplied,
// the copies for the next STAGES - 1 are in flight. No register waits for memory, and a tile takes one barrier. The
// tiles per block, warp and thread and the names match sgemm_registers (https://github.com/siboehm/SGEMM_CUDA).
// Wait, barrier, copy and multiply follow the order in CUTLASS's multistage pipeline (MmaMultistage).
//
// Vector is the type of a copy: float4 if all rows of a and b start at multiples of 16 bytes, else float. A 16-byte
// copy cannot transpose, so As keeps the order of a, and a thread reads 4 steps along k of a row at a time.

#include <cuda_pipeline.h>

constexpr int BM = 128, BN = 128, BK = 16;  // the tile of a block, and the steps along k in a stage
constexpr int WM = 32, WN = 64;             // the tile of a warp
constexpr int TM = 8, TN = 8;               // the tile of a thread
constexpr int STAGES = 3;                   // 16 KiB each: together the 48 KiB that need no dynamic shared memory
constexpr int THREADS = (BM / WM) * (BN / WN) * 32;

// Start copying the tile at (row0, col0) of a matrix to shared memory. Elements outside the matrix become 0.
template <typename Vector, int ROWS, int COLS>
__device__ void copy_tile(float (&tile)[ROWS][COLS], const float* matrix, int row0, int col0, int rows, int cols) {
    constexpr int WIDTH = sizeof(Vector) / sizeof(float);
    // The number of iterations does not depend on threadIdx.x, so the compiler can unroll them: two 16-byte copies, or
    // two of eight 4-byte copies, because the addresses of all eight would not fit in the registers.
    #pragma unroll 2
    for (int l = 0; l < ROWS * COLS / WIDTH / THREADS; ++l) {
        const int i = l * THREADS + threadIdx.x, row = i / (COLS / WIDTH), col = i % (COLS / WIDTH) * WIDTH;
        const bool in_bounds = row0 + row < rows && col0 + col < cols;
        const float* src = matrix + (long long)(row0 + row) * cols + col0 + col;
        // The last argument is the number of bytes that become 0 and are not read: all of them outside the matrix.
        __pipeline_memcpy_async(&tile[row][col], src, sizeof(Vector), in_bounds ? 0 : sizeof(Vector));
    }
}

template <typename Vector>
__launch_bounds__(THREADS, 2)
__global__ void matmul(const float* a, const float* b, float* out, int m, int n, int k) {
    __shared__ alignas(16) float As[STAGES][BM][BK], Bs[STAGES][BK][BN];
    const int cRow = blockIdx.y * BM, cCol = blockIdx.x * BN;
    const int warp_id = threadIdx.x / 32, lane_id = threadIdx.x % 32;
    // The lanes of a warp form 4 rows of 8 in zigzag, as in sgemm_registers. But a thread's rows are 4 apart, so the 4
    // rows of As that a warp reads at a time are neighbors. Shared memory serves 16 lanes at a time, which read 2 of
    // these rows. They start 64 bytes apart, so they are in different banks.
    const int threadRow = warp_id / (BN / WN) * WM + lane_id / 16 * 2 + lane_id % 2;
    const int threadCol = warp_id % (BN / WN) * WN + lane_id / 2 % 8 * 4;
    alignas(16) float acc[TM][TN] = {};

    const auto copy_stage = [&](int tile) {
        if (tile * BK < k) {
            copy_tile<Vector>(As[tile % STAGES], a, cRow, tile * BK, m, k);
            copy_tile<Vector>(Bs[tile % STAGES], b, tile * BK, cCol, k, n);
        }
        __pipeline_commit();  // past the last tile, too: the wait below counts one group of copies per tile
    };
    for (int tile = 0; tile < STAGES - 1; ++tile) copy_stage(tile);
    for (int tile = 0; tile * BK < k; ++tile) {
        __pipeline_wait_prior(STAGES - 2);  // this thread's copies of the tile have arrived,
        __syncthreads();  // and so have all others' copies; and all threads are done with the stage that is filled next
        copy_stage(tile + STAGES - 1);
        const int stage = tile % STAGES;
        #pragma unroll
        for (int dotIdx = 0; dotIdx < BK; dotIdx += 4) {
            alignas(16) float regM[TM][4], regN[TN];
            for (int i = 0; i < TM; ++i) *(float4*)regM[i] = *(float4*)&As[stage][threadRow + 4 * i][dotIdx];
            for (int l = 0; l < 4; ++l) {
                // Two groups of 4 columns, 32 apart, so that neighboring lanes read neighboring 16 bytes.
                const float* Bs_row = Bs[stage][dotIdx + l];
                for (int j = 0; j < TN; j += 4) *(float4*)(regN + j) = *(float4*)&Bs_row[threadCol + 8 * j];
                for (int i = 0; i < TM; ++i) {
                    for (int j = 0; j < TN; ++j) acc[i][j] += regM[i][l] * regN[j];
                }
            }
        }
    }

    for (int i = 0; i < TM; ++i) {
        for (int j = 0; j < TN; j += sizeof(Vector) / sizeof(float)) {
            const int row = cRow + threadRow + 4 * i, col = cCol + threadCol + j / 4 * 32 + j % 4;
            if (row < m && col < n) *(Vector*)(out + (long long)row * n + col) = *(Vector*)&acc[i][j];
        }
    }
}
