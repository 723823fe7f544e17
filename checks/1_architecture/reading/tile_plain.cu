// Launch: <<<1, (32, 32)>>> float x[1024], float out[1024]
__global__ void kernel(const float* x, float* out) {
    __shared__ float tile[32][32];
    const int lane = threadIdx.x, row = threadIdx.y;
    tile[row][lane] = x[32 * row + lane];
    __syncthreads();
    out[32 * row + lane] = tile[lane][row];
}
