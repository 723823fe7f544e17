// GEMM: out[row, column] = sum over i of a[row, i] * b[i, column]; a is m x k, b is k x n, all float32.
//
// Each level of the machine has a tile. A block computes BM x BN outputs from tiles of a and b in shared memory, a warp
// computes WM x WN of them, and a thread TM x TN. A thread reads 16 values for 64 multiply-adds, 16 bytes at a time.
// The names come from https://github.com/siboehm/SGEMM_CUDA, kernels 6 and 10.
//
// Vector is the type that a thread loads and stores: float4 if n and k are multiples of 4 and addresses are multiples
// of 16 bytes, else float.

constexpr int BM = 128, BN = 128, BK = 8;  // the tile of a block, and the steps along k in shared memory
constexpr int WM = 32, WN = 64;            // the tile of a warp
constexpr int TM = 8, TN = 8;              // the tile of a thread, in groups of 4 x 4
constexpr int THREADS = (BM / WM) * (BN / WN) * 32;

template <typename Vector>
__device__ Vector load(const float* matrix, int row, int col, int rows, int cols) {
    if (row >= rows || col >= cols) return {};  // an element outside a matrix is 0, which adds nothing to a sum
    return *reinterpret_cast<const Vector*>(matrix + (long long)row * cols + col);
}

template <typename Vector>
__launch_bounds__(THREADS, 2)
__global__ void matmul(const float* a, const float* b, float* out, int m, int n, int k) {
    constexpr int WIDTH = sizeof(Vector) / sizeof(float);
    __shared__ alignas(16) float As[BK][BM + 4];  // transposed, so that a thread's 4 rows are adjacent; padded by 4
    __shared__ alignas(16) float Bs[BK][BN];
    const int cRow = blockIdx.y * BM, cCol = blockIdx.x * BN;  // the first row and column of the block's tile
    const int warp_id = threadIdx.x / 32, lane_id = threadIdx.x % 32;
    // The lanes of a warp form 4 rows of 8 in zigzag. Lanes that read the same 16 bytes of As or Bs are one or two
    // lanes apart, so that shared memory serves 16 lanes at a time.
    const int threadRow = warp_id / (BN / WN) * WM + (lane_id / 16 * 2 + lane_id % 2) * 4;
    const int threadCol = warp_id % (BN / WN) * WN + lane_id / 2 % 8 * 4;
    alignas(16) float acc[TM][TN] = {};

    for (int bkIdx = 0; bkIdx < k; bkIdx += BK) {
        // The number of iterations does not depend on threadIdx.x, so the compiler unrolls the loops over l.
        for (int l = 0; l < BM * BK / WIDTH / THREADS; ++l) {
            const int i = l * THREADS + threadIdx.x, row = i / (BK / WIDTH), col = i % (BK / WIDTH) * WIDTH;
            const Vector values = load<Vector>(a, cRow + row, bkIdx + col, m, k);  // neighbors in a row of a
            for (int e = 0; e < WIDTH; ++e) As[col + e][row] = reinterpret_cast<const float*>(&values)[e];
        }
        for (int l = 0; l < BK * BN / WIDTH / THREADS; ++l) {
            const int i = l * THREADS + threadIdx.x, row = i / (BN / WIDTH), col = i % (BN / WIDTH) * WIDTH;
            *reinterpret_cast<Vector*>(&Bs[row][col]) = load<Vector>(b, bkIdx + row, cCol + col, k, n);
        }
        __syncthreads();  // the tiles are complete

        #pragma unroll
        for (int dotIdx = 0; dotIdx < BK; ++dotIdx) {
            alignas(16) float regM[TM], regN[TN];
            // Two groups of four, 16 rows or 32 columns apart: neighboring lanes read neighboring 16 bytes.
            for (int g = 0; g < 2; ++g) {
                *reinterpret_cast<float4*>(regM + 4 * g) = *reinterpret_cast<float4*>(&As[dotIdx][threadRow + 16 * g]);
                *reinterpret_cast<float4*>(regN + 4 * g) = *reinterpret_cast<float4*>(&Bs[dotIdx][threadCol + 32 * g]);
            }
            for (int i = 0; i < TM; ++i) {
                for (int j = 0; j < TN; ++j) acc[i][j] += regM[i] * regN[j];
            }
        }
        __syncthreads();  // before any thread overwrites values that others still read
    }

    for (int i = 0; i < TM; ++i) {
        for (int j = 0; j < TN; j += WIDTH) {
            const int row = cRow + threadRow + i / 4 * 16 + i % 4, col = cCol + threadCol + j / 4 * 32 + j % 4;
            if (row < m && col < n) {
                *reinterpret_cast<Vector*>(out + (long long)row * n + col) = *reinterpret_cast<Vector*>(&acc[i][j]);
            }
        }
    }
}
