// Launch: <<<1, 64>>> float x[64], float out[64]
__global__ void kernel(const float* x, float* out) {
    __shared__ float sum[64];
    const int t = threadIdx.x;
    sum[t] = x[t];
    __syncthreads();
    for (int step = 1; step < 64; step *= 2) {
        const float more = t >= step ? sum[t - step] : 0;
        sum[t] += more;
        __syncthreads();
    }
    out[t] = sum[t];
}
