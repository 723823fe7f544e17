// Launch: <<<4, 64>>> float x[1024], float out[16], int columns = 64
__global__ void kernel(const float* x, float* out, int columns) {
    __shared__ float sum[4];
    const int lane = threadIdx.x % 16, row = threadIdx.x / 16;
    float own = 0;
    for (int c = lane; c < columns; c += 16)
        own += x[(blockIdx.x * 4 + row) * columns + c];
    atomicAdd(&sum[row], own);
    __syncthreads();
    if (lane == 0)
        out[blockIdx.x * 4 + row] = sum[row];
}
