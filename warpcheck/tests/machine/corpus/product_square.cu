// grid 2 2, block 64, n 128: 64 x 64 tiles, 8 x 8 results in each thread, loaded with strides
extern "C" __global__ void product_square(const float* a, const int* c, float* b, int n) {
    __shared__ float As[64][8];
    __shared__ float Bs[8][64];
    const float *A = a + blockIdx.y * 64 * n, *B = a + n * n + blockIdx.x * 64;
    const int ty = threadIdx.x / 8, tx = threadIdx.x % 8;
    float sums[8][8] = {}, x[8], y[8];
    for (int k0 = 0; k0 < n; k0 += 8) {
        for (int i = threadIdx.x; i < 512; i += 64) {
            As[i / 8][i % 8] = A[i / 8 * n + k0 + i % 8];
            Bs[i / 64][i % 64] = B[(k0 + i / 64) * n + i % 64];
        }
        __syncthreads();
#pragma unroll
        for (int k = 0; k < 8; ++k) {
            for (int i = 0; i < 8; ++i) x[i] = As[ty * 8 + i][k];
            for (int j = 0; j < 8; ++j) y[j] = Bs[k][tx * 8 + j];
            for (int i = 0; i < 8; ++i)
                for (int j = 0; j < 8; ++j) sums[i][j] += x[i] * y[j];
        }
        __syncthreads();
    }
    for (int i = 0; i < 8; ++i)
        for (int j = 0; j < 8; ++j) b[(blockIdx.y * 64 + ty * 8 + i) * n + blockIdx.x * 64 + tx * 8 + j] = sums[i][j];
}
