__global__ void matmul(const float* a, const float* b, float* out, int m, int n, int k) {
    const int column = blockIdx.x * 32 + threadIdx.x, row = blockIdx.y * 8 + threadIdx.y;
    if (row >= m || column >= n) return;
    float sum = 0;
    for (int i = 0; i < k; ++i) {
        if (row * n + i < m * k) sum += a[row * n + i] * b[i * n + column];
    }
    out[row * n + column] = sum;
}
