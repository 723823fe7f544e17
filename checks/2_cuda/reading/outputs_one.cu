// Launch: <<<1, 64>>> float x[1024], float out[4096]
__global__ void kernel(const float* x, float* out) {
    __shared__ float a[4][64], b[4][64];
    const int t = threadIdx.x;
    for (int step = 0; step < 4; ++step) {
        a[step][t] = x[step * 64 + t];
        b[step][t] = x[256 + step * 64 + t];
    }
    __syncthreads();
    float sum[1][1] = {};
    for (int step = 0; step < 4; ++step)
        for (int i = 0; i < 1; ++i)
            for (int j = 0; j < 1; ++j)
                sum[i][j] += a[step][t / 8] * b[step][t % 8];
    float all = 0;
    for (int i = 0; i < 1; ++i)
        for (int j = 0; j < 1; ++j)
            all += sum[i][j] * sum[i][j];
    out[t] = all;
}
