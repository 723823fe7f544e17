__global__ void matmul(const float* a, const float* b, float* out, int m, int n, int k) {
    const int column = blockIdx.x * blockDim.x + threadIdx.x;
    const int row = blockIdx.y * blockDim.y + threadIdx.y;
    if (row >= m || column >= n) return;
    for (int i = 0; i < k; ++i) {
        out[(long long)row * n + column] += a[(long long)row * k + i] * b[(long long)i * n + column];
    }
}
