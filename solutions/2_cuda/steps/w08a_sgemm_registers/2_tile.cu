// A tile in shared memory: BN threads use each element that a block loads.

template <int BN>
__global__ void matmul(const float* a, const float* b, float* out, int n) {
    __shared__ float As[BN][BN], Bs[BN][BN];
    const int threadRow = threadIdx.y, threadCol = threadIdx.x;
    const int row = blockIdx.y * BN + threadRow, col = blockIdx.x * BN + threadCol;
    float acc = 0;

    for (int bkIdx = 0; bkIdx < n; bkIdx += BN) {
        As[threadRow][threadCol] = a[row * n + bkIdx + threadCol];
        Bs[threadRow][threadCol] = b[(bkIdx + threadRow) * n + col];
        __syncthreads();  // the tiles are complete
        for (int dotIdx = 0; dotIdx < BN; ++dotIdx) acc += As[threadRow][dotIdx] * Bs[dotIdx][threadCol];
        __syncthreads();  // before any thread overwrites what others still read
    }

    out[row * n + col] = acc;
}
