// Launch: <<<2, 256>>> float x[512], float out[2]
__global__ void kernel(const float* x, float* out) {
    __shared__ float sum[256];
    const int t = threadIdx.x;
    sum[t] = x[blockIdx.x * 256 + t];
    __syncthreads();
    for (int half = 128; half > 0; half /= 2)
        if (t < half)
            sum[t] += sum[t + half];
    if (t == 0)
        out[blockIdx.x] = sum[0];
}
