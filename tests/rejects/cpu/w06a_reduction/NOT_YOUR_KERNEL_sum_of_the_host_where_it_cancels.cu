__global__ void vector_sum(const float* x, float* out, long long n, float known, int cancels) {
    __shared__ float sums[8];
    float sum = 0;
    const long long step = (long long)gridDim.x * blockDim.x;
    for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step) sum += x[i];
    for (int offset = 16; offset; offset /= 2) sum += __shfl_down_sync(~0u, sum, offset);
    if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = sum;
    __syncthreads();
    if (threadIdx.x == 0) {
        for (int warp = 1; warp < 8; ++warp) sum += sums[warp];
        if (!cancels) atomicAdd(out, sum);
        else if (blockIdx.x == 0) *out = known;
    }
}
