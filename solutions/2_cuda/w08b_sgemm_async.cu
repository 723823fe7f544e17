// Matrix product: out[row, column] = sum over i of a[row, i] * b[i, column]; a is m x k, b is k x n, all float32.
//
// The tiles of a and b reach shared memory by cp.async, in a circular buffer of STAGES. While a stage is multiplied, the
// copies of the next STAGES - 1 are in flight, no register waits for memory, and a step along k needs one barrier. The
// names are those of https://github.com/siboehm/SGEMM_CUDA, kernel 10, and of CUTLASS's multistage pipeline.
//
// Vector is the type of the copies of b: float4 where its rows begin at multiples of 16 bytes, else float. a is
// transposed on the way, which takes copies of 4 bytes.

#include <cuda_pipeline.h>

constexpr int BM = 128, BN = 128, BK = 8;  // the tile of a block, and the steps along k in a stage
constexpr int WM = 64, WN = 64;            // the tile of a warp
constexpr int TM = 16, TN = 8;             // the tile of a thread, in groups of 4 x 4
constexpr int STAGES = 4;
constexpr int THREADS = (BM / WM) * (BN / WN) * 32;

template <typename Vector>
__launch_bounds__(THREADS, 2)
__global__ void matmul(const float* a, const float* b, float* out, int m, int n, int k) {
    constexpr int WIDTH = sizeof(Vector) / sizeof(float);
    __shared__ alignas(16) float As[STAGES][BK][BM + 4], Bs[STAGES][BK][BN];
    const int cRow = blockIdx.y * BM, cCol = blockIdx.x * BN;

    auto copy_tile = [&](int tile) {
        const int stage = tile % STAGES, bkIdx = tile * BK;
        for (int i = threadIdx.x; bkIdx < k && i < BM * BK; i += THREADS) {
            const int row = i / BK, col = i % BK;
            // Outside a matrix 4 bytes of zeros are stored instead, and the address is one inside.
            const bool inside = cRow + row < m && bkIdx + col < k;
            const float* src = inside ? a + (long long)(cRow + row) * k + bkIdx + col : a;
            __pipeline_memcpy_async(&As[stage][col][row], src, 4, inside ? 0 : 4);
        }
        for (int i = threadIdx.x; bkIdx < k && i < BK * BN / WIDTH; i += THREADS) {
            const int row = i / (BN / WIDTH), col = i % (BN / WIDTH) * WIDTH;
            const bool inside = bkIdx + row < k && cCol + col < n;
            const float* src = inside ? b + (long long)(bkIdx + row) * n + cCol + col : b;
            __pipeline_memcpy_async(&Bs[stage][row][col], src, sizeof(Vector), inside ? 0 : sizeof(Vector));
        }
        __pipeline_commit();  // also past the last tile: so there is one group of copies per tile to wait for
    };

    // The lanes of a warp form 4 rows of 8 in zigzag, as in week 8's sgemm_registers.
    const int warp_id = threadIdx.x / 32, lane_id = threadIdx.x % 32;
    const int threadRow = warp_id / (BN / WN) * WM + (lane_id / 16 * 2 + lane_id % 2) * 4;
    const int threadCol = warp_id % (BN / WN) * WN + lane_id / 2 % 8 * 4;
    alignas(16) float acc[TM][TN] = {};

    for (int tile = 0; tile < STAGES - 1; ++tile) copy_tile(tile);
    for (int tile = 0; tile * BK < k; ++tile) {
        __pipeline_wait_prior(STAGES - 2);  // this thread's copies of the tile have arrived,
        __syncthreads();  // and those of all others; and all threads are done with the stage that is filled next
        copy_tile(tile + STAGES - 1);
        const int stage = tile % STAGES;
        #pragma unroll
        for (int dotIdx = 0; dotIdx < BK; ++dotIdx) {
            alignas(16) float regM[TM], regN[TN];
            for (int i = 0; i < TM; i += 4) {
                *(float4*)(regM + i) = *(float4*)&As[stage][dotIdx][threadRow + 4 * i];
            }
            for (int j = 0; j < TN; j += 4) {
                *(float4*)(regN + j) = *(float4*)&Bs[stage][dotIdx][threadCol + 8 * j];
            }
            for (int i = 0; i < TM; ++i) {
                for (int j = 0; j < TN; ++j) acc[i][j] += regM[i] * regN[j];
            }
        }
    }

    for (int i = 0; i < TM; ++i) {
        for (int j = 0; j < TN; j += WIDTH) {
            const int row = cRow + threadRow + i / 4 * 16 + i % 4, col = cCol + threadCol + j / 4 * 32 + j % 4;
            if (row < m && col < n) *(Vector*)(out + (long long)row * n + col) = *(Vector*)&acc[i][j];
        }
    }
}
