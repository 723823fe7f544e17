// GEMM: out[row, column] = sum over i of a[row, i] * b[i, column]; a is m x k, b is k x n, all float32.
//
// Each thread computes one element of out. All three matrices are contiguous and row-major.

__global__ void matmul(const float* a, const float* b, float* out, int m, int n, int k) {
    const int column = blockIdx.x * blockDim.x + threadIdx.x;
    const int row = blockIdx.y * blockDim.y + threadIdx.y;
    if (row >= m || column >= n) return;
    float sum = 0;
    for (int i = 0; i < k; ++i) {
        sum += a[(long long)row * k + i] * b[(long long)i * n + column];
    }
    out[(long long)row * n + column] = sum;
}
