// 16 bytes at a time: a load or store of a float4 takes one instruction instead of four.

__launch_bounds__(256, 2)
__global__ void matmul(const float* a, const float* b, float* out, int n) {
    constexpr int BM = 128, BN = 128, BK = 8, TM = 8, TN = 8;
    // As is transposed. With 4 more words in a row, the two rows that a warp stores to are 16 banks apart.
    __shared__ alignas(16) float As[BK][BM + 4], Bs[BK][BN];
    const int innerRowA = threadIdx.x / 2, innerColA = threadIdx.x % 2 * 4;
    const int innerRowB = threadIdx.x / 32, innerColB = threadIdx.x % 32 * 4;
    const int threadRow = threadIdx.x / 16 * 4, threadCol = threadIdx.x % 16 * 4;
    constexpr int ROWS = 64, COLS = 64;  // from the first group of four rows or columns of a thread to the second
    const int cRow = blockIdx.y * BM, cCol = blockIdx.x * BN;  // the first row and column of the block's tile
    alignas(16) float acc[TM][TN] = {};

    for (int bkIdx = 0; bkIdx < n; bkIdx += BK) {
        const float4 row = *reinterpret_cast<const float4*>(a + (cRow + innerRowA) * n + bkIdx + innerColA);
        for (int e = 0; e < 4; ++e) As[innerColA + e][innerRowA] = (&row.x)[e];
        *reinterpret_cast<float4*>(&Bs[innerRowB][innerColB]) =
            *reinterpret_cast<const float4*>(b + (bkIdx + innerRowB) * n + cCol + innerColB);
        __syncthreads();  // the tiles are complete
        #pragma unroll
        for (int dotIdx = 0; dotIdx < BK; ++dotIdx) {
            alignas(16) float regM[TM], regN[TN];
            for (int g = 0; g < 2; ++g) {
                *reinterpret_cast<float4*>(regM + 4 * g) = *reinterpret_cast<float4*>(&As[dotIdx][threadRow + ROWS * g]);
                *reinterpret_cast<float4*>(regN + 4 * g) = *reinterpret_cast<float4*>(&Bs[dotIdx][threadCol + COLS * g]);
            }
            for (int i = 0; i < TM; ++i) {
                for (int j = 0; j < TN; ++j) acc[i][j] += regM[i] * regN[j];
            }
        }
        __syncthreads();  // before any thread overwrites what others still read
    }

    for (int i = 0; i < TM; ++i) {
        for (int j = 0; j < TN; j += 4) {
            const int row = cRow + threadRow + i / 4 * ROWS + i % 4, col = cCol + threadCol + j / 4 * COLS;
            *reinterpret_cast<float4*>(out + row * n + col) = *reinterpret_cast<float4*>(&acc[i][j]);
        }
    }
}
