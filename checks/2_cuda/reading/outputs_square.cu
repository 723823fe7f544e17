// Launch: <<<1, 64>>> float x[1024], float out[4096]
__global__ void kernel(const float* x, float* out) {
    __shared__ float a[4][64], b[4][64];
    const int t = threadIdx.x;
    for (int step = 0; step < 4; ++step) {
        a[step][t] = x[step * 64 + t];
        b[step][t] = x[256 + step * 64 + t];
    }
    __syncthreads();
    float sum[4][4] = {};
    for (int step = 0; step < 4; ++step)
        for (int i = 0; i < 4; ++i)
            for (int j = 0; j < 4; ++j)
                sum[i][j] += a[step][t / 8 + 8 * i] * b[step][t % 8 + 8 * j];
    float all = 0;
    for (int i = 0; i < 4; ++i)
        for (int j = 0; j < 4; ++j)
            all += sum[i][j] * sum[i][j];
    out[t] = all;
}
