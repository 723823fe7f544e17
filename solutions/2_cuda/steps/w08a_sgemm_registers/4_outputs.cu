// TM x TN outputs per thread: TM + TN values of shared memory give TM * TN multiply-adds.

template <int BN, int TM>
__global__ void matmul(const float* a, const float* b, float* out, int n) {
    constexpr int BM = BN, BK = 16, TN = TM;
    constexpr int COLS = BN / TN, ROWS = BM / TM, THREADS = ROWS * COLS;
    // As is transposed. Without 4 more words in a row, the 16 rows that a warp stores to would share their banks.
    __shared__ float As[BK][BM + 4], Bs[BK][BN];
    const int threadRow = threadIdx.x / COLS, threadCol = threadIdx.x % COLS;
    const int cRow = blockIdx.y * BM, cCol = blockIdx.x * BN;  // the first row and column of the block's tile
    float acc[TM][TN] = {};

    for (int bkIdx = 0; bkIdx < n; bkIdx += BK) {
        for (int i = threadIdx.x; i < BM * BK; i += THREADS) {
            As[i % BK][i / BK] = a[(cRow + i / BK) * n + bkIdx + i % BK];
            Bs[i / BN][i % BN] = b[(bkIdx + i / BN) * n + cCol + i % BN];
        }
        __syncthreads();  // the tiles are complete
        #pragma unroll
        for (int dotIdx = 0; dotIdx < BK; ++dotIdx) {
            // The outputs of a thread are ROWS rows and COLS columns apart, so neighboring threads read neighbors.
            for (int i = 0; i < TM; ++i) {
                for (int j = 0; j < TN; ++j) {
                    acc[i][j] += As[dotIdx][threadRow + ROWS * i] * Bs[dotIdx][threadCol + COLS * j];
                }
            }
        }
        __syncthreads();  // before any thread overwrites what others still read
    }

    for (int i = 0; i < TM; ++i) {
        for (int j = 0; j < TN; ++j) out[(cRow + threadRow + ROWS * i) * n + cCol + threadCol + COLS * j] = acc[i][j];
    }
}
