// Bytes in flight: a thread issues LOADS loads of WIDTH floats each before it adds the first of them.

template <int WIDTH>
struct alignas(4 * WIDTH) Floats {
    float of[WIDTH];
};

__device__ float block_sum(float sum) {  // thread 0 gets the sum
    __shared__ float warp_sums[32];
    for (int step = 16; step > 0; step /= 2) sum += __shfl_down_sync(0xffffffff, sum, step);
    if (threadIdx.x % 32 == 0) warp_sums[threadIdx.x / 32] = sum;
    __syncthreads();
    sum = threadIdx.x < blockDim.x / 32 ? warp_sums[threadIdx.x] : 0.0f;
    for (int step = 16; step > 0; step /= 2) sum += __shfl_down_sync(0xffffffff, sum, step);
    return sum;
}

template <int WIDTH, int LOADS>
__device__ float thread_sum(const Floats<WIDTH>* x, long long n) {
    const long long thread = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    const long long threads = (long long)gridDim.x * blockDim.x;
    float sum = 0;
    #pragma unroll 1
    for (long long i = thread; i < n; i += LOADS * threads) {
        Floats<WIDTH> loaded[LOADS];
        #pragma unroll
        for (int k = 0; k < LOADS; ++k) loaded[k] = i + k * threads < n ? x[i + k * threads] : Floats<WIDTH>{};
        #pragma unroll
        for (int k = 0; k < LOADS; ++k) {
            for (float value : loaded[k].of) sum += value;
        }
    }
    return sum;
}

template <int WIDTH, int LOADS>
__global__ void vector_sum(const Floats<WIDTH>* x, float* out, long long n) {
    const float sum = block_sum(thread_sum<WIDTH, LOADS>(x, n));
    if (threadIdx.x == 0) atomicAdd(out, sum);
}
