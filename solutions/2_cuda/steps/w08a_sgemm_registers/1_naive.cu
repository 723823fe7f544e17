// One output per thread: each multiply-add takes two loads from global memory.

template <int BN>
__global__ void matmul(const float* a, const float* b, float* out, int n) {
    const int threadRow = threadIdx.y, threadCol = threadIdx.x;
    const int row = blockIdx.y * BN + threadRow, col = blockIdx.x * BN + threadCol;
    float acc = 0;

    for (int k = 0; k < n; ++k) acc += a[row * n + k] * b[k * n + col];

    out[row * n + col] = acc;
}
