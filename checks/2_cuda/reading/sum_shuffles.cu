// Launch: <<<2, 128>>> float x[1024], float out[256]
__global__ void kernel(const float* x, float* out) {
    __shared__ float of_warp[4];
    const int t = threadIdx.x;
    float sum = x[blockIdx.x * 128 + t];
    for (int step = 16; step > 0; step /= 2)
        sum += __shfl_down_sync(0xffffffff, sum, step);
    if (t % 32 == 0)
        of_warp[t / 32] = sum;
    __syncthreads();
    if (t == 0)
        out[blockIdx.x] = of_warp[0] + of_warp[1] + of_warp[2] + of_warp[3];
}
