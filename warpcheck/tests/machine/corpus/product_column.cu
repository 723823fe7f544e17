// grid 2 2, block 512, n 128: a product of n x n, 64 x 64 tiles, a column of 8 results in each thread
extern "C" __global__ void product_column(const float* a, const int* c, float* b, int n) {
    __shared__ float As[64 * 8];
    __shared__ float Bs[8 * 64];
    const float* A = a + blockIdx.y * 64 * n;
    const float* B = a + n * n + blockIdx.x * 64;
    const int col = threadIdx.x % 64, row = threadIdx.x / 64;
    const int inner_a = threadIdx.x % 8, row_a = threadIdx.x / 8;
    const int col_b = threadIdx.x % 64, inner_b = threadIdx.x / 64;
    float sums[8] = {0};
    for (int k0 = 0; k0 < n; k0 += 8) {
        As[row_a * 8 + inner_a] = A[row_a * n + inner_a];
        Bs[inner_b * 64 + col_b] = B[inner_b * n + col_b];
        __syncthreads();
        A += 8;
        B += 8 * n;
        for (int k = 0; k < 8; ++k) {
            float y = Bs[k * 64 + col];
            for (int i = 0; i < 8; ++i) sums[i] += As[(row * 8 + i) * 8 + k] * y;
        }
        __syncthreads();
    }
    for (int i = 0; i < 8; ++i) b[(blockIdx.y * 64 + row * 8 + i) * n + blockIdx.x * 64 + col] = sums[i];
}
