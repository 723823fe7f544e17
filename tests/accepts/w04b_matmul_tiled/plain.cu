__global__ void matmul(const float* a, const float* b, float* out, int m, long long n, long long k) {
    constexpr int T = 32;
    const int x = threadIdx.x, y = threadIdx.y;
    const int row = blockIdx.y * T + y, column = blockIdx.x * T + x;
    __shared__ float of_a[T][T], of_b[T][T];
    float sum = 0;
    for (int begin = 0; begin < k; begin += T) {
        of_a[y][x] = row < m && begin + x < k ? a[row * k + begin + x] : 0;
        of_b[y][x] = begin + y < k && column < n ? b[(begin + y) * n + column] : 0;
        __syncthreads();
        for (int i = 0; i < T; ++i) sum += of_a[y][i] * of_b[i][x];
        __syncthreads();
    }
    if (row < m && column < n) out[row * n + column] = sum;
}
