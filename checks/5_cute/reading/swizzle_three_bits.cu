// Launch: <<<1, 32>>> float x[1024], float out[1024]
__global__ void kernel(const float* x, float* out) {
    __shared__ float tile[1024];
    const int t = threadIdx.x;
    for (int row = 0; row < 32; ++row) tile[32 * row + (t ^ row % 8)] = x[32 * row + t];
    __syncthreads();
    for (int row = 0; row < 32; ++row) out[32 * row + t] = tile[32 * t + (row ^ t % 8)];
}
