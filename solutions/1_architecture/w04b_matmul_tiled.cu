// GEMM: out[row, column] = sum over i of a[row, i] * b[i, column]; a is m x k, b is k x n, all float32.
//
// A block computes a tile of out. It moves along k and keeps a tile of a and a tile of b in shared memory, where many
// threads use each element. m, n and k may have any value, so tiles may extend beyond the edges.
//
// A thread accumulates TM x TN outputs in registers, so that it uses each value from shared memory TM or TN times. The
// names BM, BN, BK, TM, TN, threadRow, threadCol, bkIdx, dotIdx, regM and regN are taken from kernel 5 in
// https://github.com/siboehm/SGEMM_CUDA.

constexpr int BM = 64, BN = 64;  // rows and columns of out per block
constexpr int BK = 16;           // steps along k whose elements are in shared memory at a time
constexpr int TM = 4, TN = 4;    // rows and columns of out per thread
constexpr int THREADS = (BM / TM) * (BN / TN);

__global__ void matmul(const float* a, const float* b, float* out, int m, int n, int k) {
    __shared__ float As[BM][BK], Bs[BK][BN];
    const int threadRow = threadIdx.x / (BN / TN), threadCol = threadIdx.x % (BN / TN);
    const int cRow = blockIdx.y * BM, cCol = blockIdx.x * BN;  // the first row and column of the block's tile
    float acc[TM][TN] = {};  // in registers, because every index is known when the loops are unrolled

    for (int bkIdx = 0; bkIdx < k; bkIdx += BK) {
        // Neighboring threads load neighboring columns. An element outside a matrix is 0, which adds nothing to a sum.
        // The number of iterations does not depend on threadIdx.x, so the compiler unrolls the loops over l.
        for (int l = 0; l < BM * BK / THREADS; ++l) {
            const int i = l * THREADS + threadIdx.x;
            const int row = cRow + i / BK, col = bkIdx + i % BK;
            As[i / BK][i % BK] = row < m && col < k ? a[(long long)row * k + col] : 0;
        }
        for (int l = 0; l < BK * BN / THREADS; ++l) {
            const int i = l * THREADS + threadIdx.x;
            const int row = bkIdx + i / BN, col = cCol + i % BN;
            Bs[i / BN][i % BN] = row < k && col < n ? b[(long long)row * n + col] : 0;
        }
        __syncthreads();  // the tiles are complete

        #pragma unroll
        for (int dotIdx = 0; dotIdx < BK; ++dotIdx) {
            float regM[TM], regN[TN];
            // A thread's outputs are BM / TM rows and BN / TN columns apart. So for each j, the 16 threads in a row
            // access 16 neighboring words of Bs, in 16 banks, and 16 neighboring columns of out. For each i, they all
            // read the same word of As.
            for (int i = 0; i < TM; ++i) regM[i] = As[threadRow + i * (BM / TM)][dotIdx];
            for (int j = 0; j < TN; ++j) regN[j] = Bs[dotIdx][threadCol + j * (BN / TN)];
            for (int i = 0; i < TM; ++i) {
                for (int j = 0; j < TN; ++j) acc[i][j] += regM[i] * regN[j];
            }
        }
        __syncthreads();  // before any thread overwrites what others still read
    }

    for (int i = 0; i < TM; ++i) {
        for (int j = 0; j < TN; ++j) {
            const int row = cRow + threadRow + i * (BM / TM), col = cCol + threadCol + j * (BN / TN);
            if (row < m && col < n) out[(long long)row * n + col] = acc[i][j];
        }
    }
}
