// Launch: <<<1, 64>>> float x[256], float out[256]
__global__ void kernel(const float* x, float* out) {
    __shared__ float tile[2][64];
    const int t = threadIdx.x;
    tile[0][t] = x[t];
    __syncthreads();
    for (int step = 0; step < 4; ++step) {
        if (step < 3)
            tile[(step + 1) % 2][t] = x[(step + 1) * 64 + t];
        out[step * 64 + t] = tile[step % 2][63 - t];
    }
}
