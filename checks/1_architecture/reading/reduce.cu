// Launch: <<<2, 128>>> float x[256], float out[2]
__global__ void kernel(const float* x, float* out) {
    __shared__ float sum[128];
    const int t = threadIdx.x;
    sum[t] = x[blockIdx.x * 128 + t];
    for (int half = 64; half > 0; half /= 2) {
        __syncthreads();
        if (t < half)
            sum[t] += sum[t + half];
    }
    if (t == 64)
        out[blockIdx.x] = sum[0];
}
