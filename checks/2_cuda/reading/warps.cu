// Launch: <<<2, 128>>> float x[256], float out[2]
__global__ void kernel(const float* x, float* out) {
    __shared__ float of_warp[32];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    float sum = x[blockIdx.x * 128 + threadIdx.x];
    for (int step = 16; step > 0; step /= 2)
        sum += __shfl_xor_sync(0xffffffff, sum, step);
    if (lane == 0)
        of_warp[warp] = sum;
    __syncthreads();
    float all = of_warp[lane];
    for (int step = 16; step > 0; step /= 2)
        all += __shfl_xor_sync(0xffffffff, all, step);
    if (threadIdx.x == 0)
        out[blockIdx.x] = all;
}
