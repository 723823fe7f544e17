// A column of TM outputs per thread: a value of Bs stays in a register for TM multiply-adds.

template <int BN, int TM>
__global__ void matmul(const float* a, const float* b, float* out, int n) {
    constexpr int BM = BN, BK = TM;
    __shared__ float As[BM][BK], Bs[BK][BN];
    const int threadRow = threadIdx.x / BN, threadCol = threadIdx.x % BN;
    const int innerRowA = threadIdx.x / BK, innerColA = threadIdx.x % BK;
    const int cRow = blockIdx.y * BM, cCol = blockIdx.x * BN;  // the first row and column of the block's tile
    float acc[TM] = {};

    for (int bkIdx = 0; bkIdx < n; bkIdx += BK) {
        As[innerRowA][innerColA] = a[(cRow + innerRowA) * n + bkIdx + innerColA];
        Bs[threadRow][threadCol] = b[(bkIdx + threadRow) * n + cCol + threadCol];
        __syncthreads();  // the tiles are complete
        #pragma unroll
        for (int dotIdx = 0; dotIdx < BK; ++dotIdx) {
            const float regN = Bs[dotIdx][threadCol];
            for (int i = 0; i < TM; ++i) acc[i] += As[threadRow * TM + i][dotIdx] * regN;
        }
        __syncthreads();  // before any thread overwrites what others still read
    }

    for (int i = 0; i < TM; ++i) out[(cRow + threadRow * TM + i) * n + cCol + threadCol] = acc[i];
}
