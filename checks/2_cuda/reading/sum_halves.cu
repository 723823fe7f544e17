// Launch: <<<2, 128>>> float x[1024], float out[256]
__global__ void kernel(const float* x, float* out) {
    __shared__ float sum[128];
    const int t = threadIdx.x;
    sum[t] = x[blockIdx.x * 128 + t];
    __syncthreads();
    for (int half = 64; half > 0; half /= 2) {
        if (t < half)
            sum[t] += sum[t + half];
        __syncthreads();
    }
    if (t == 0)
        out[blockIdx.x] = sum[0];
}
