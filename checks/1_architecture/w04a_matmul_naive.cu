// The baseline of matmul_naive: one thread per element of out, with the lanes of a warp down a column.

__global__ void matmul(const float* a, const float* b, float* out, int m, int n, int k) {
    const int row = blockIdx.x * blockDim.x + threadIdx.x;
    const int column = blockIdx.y * blockDim.y + threadIdx.y;
    if (row >= m || column >= n) return;
    float sum = 0;
    for (int i = 0; i < k; ++i) sum += a[(long long)row * k + i] * b[(long long)i * n + column];
    out[(long long)row * n + column] = sum;
}
