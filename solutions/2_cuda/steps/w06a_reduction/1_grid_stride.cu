// Many elements per thread: a thread adds its share in a register, and a block ends with one atomic.

__device__ float block_sum(float sum) {  // thread 0 gets the sum
    __shared__ float warp_sums[32];
    for (int step = 16; step > 0; step /= 2) sum += __shfl_down_sync(0xffffffff, sum, step);
    if (threadIdx.x % 32 == 0) warp_sums[threadIdx.x / 32] = sum;
    __syncthreads();
    sum = threadIdx.x < blockDim.x / 32 ? warp_sums[threadIdx.x] : 0.0f;
    for (int step = 16; step > 0; step /= 2) sum += __shfl_down_sync(0xffffffff, sum, step);
    return sum;
}

__global__ void vector_sum(const float* x, float* out, long long n) {
    const long long thread = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    const long long threads = (long long)gridDim.x * blockDim.x;
    float sum = 0;
    #pragma unroll 1
    for (long long i = thread; i < n; i += threads) sum += x[i];
    sum = block_sum(sum);
    if (threadIdx.x == 0) atomicAdd(out, sum);
}
