// Launch: <<<2, 64>>> float x[512], float out[512], int n = 512
__global__ void kernel(const float* x, float* out, int n) {
    __shared__ float stage[2][64];
    const int t = threadIdx.x;
    stage[0][t] = x[blockIdx.x * 256 + t];
    for (int step = 0; step < 4; ++step) {
        const int at = blockIdx.x * 256 + step * 64;
        __syncthreads();
        if (step < 3)
            stage[0][t] = x[at + 64 + t];
        out[at + t] = stage[0][63 - t];
    }
}
