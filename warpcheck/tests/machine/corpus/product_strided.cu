// grid 2 2, block 16 16, n 128: 64 x 64 tiles, 4 x 4 results in each thread that are 16 apart, padded
extern "C" __global__ void product_strided(const float* a, const int* c, float* b, int n) {
    __shared__ float x[64][17], y[16][65];
    int tx = threadIdx.x, ty = threadIdx.y, t = ty * 16 + tx;
    float sum[4][4] = {};
    for (int k0 = 0; k0 < n; k0 += 16) {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            x[t / 16 + 16 * i][t % 16] = a[(blockIdx.y * 64 + t / 16 + 16 * i) * n + k0 + t % 16];
            y[t / 64 + 4 * i][t % 64] = a[n * n + (k0 + t / 64 + 4 * i) * n + blockIdx.x * 64 + t % 64];
        }
        __syncthreads();
#pragma unroll 4
        for (int k = 0; k < 16; k++)
#pragma unroll
            for (int i = 0; i < 4; i++)
#pragma unroll
                for (int j = 0; j < 4; j++) sum[i][j] += x[ty + 16 * i][k] * y[k][tx + 16 * j];
        __syncthreads();
    }
    for (int i = 0; i < 4; i++)
        for (int j = 0; j < 4; j++) b[(blockIdx.y * 64 + ty + 16 * i) * n + blockIdx.x * 64 + tx + 16 * j] = sum[i][j];
}
