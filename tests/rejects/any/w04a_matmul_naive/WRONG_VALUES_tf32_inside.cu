__global__ void matmul(const float* a, const float* b, float* out, int m, int n, int k) {
    const int column = blockIdx.x * 32 + threadIdx.x, row = blockIdx.y * 8 + threadIdx.y;
    if (row >= m || column >= n) return;
    const auto tf32 = [](float x) { return __uint_as_float(__float_as_uint(x) + 0x1000 & ~0x1FFF); };
    float sum = 0;
    for (int i = 0; i < k; ++i) sum += tf32(a[row * k + i]) * tf32(b[i * n + column]);
    out[row * n + column] = sum;
}
