// The baseline of matmul_tiled: one thread per element of out, with the lanes of a warp along a row.

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
