// A grid barrier: one cooperative launch, in which block 0 adds the sums after all blocks have stored theirs.

#include <cooperative_groups.h>

__device__ float partial[8192];

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
    __syncthreads();  // the next call overwrites warp_sums, which a warp may still read
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

__device__ float partial_sum() {
    float sum = 0;
    // __ldcg reads from L2, since L1 is not coherent between SMs.
    for (int i = threadIdx.x; i < gridDim.x; i += blockDim.x) sum += __ldcg(&partial[i]);
    return block_sum(sum);
}

template <int WIDTH, int LOADS>
__global__ void vector_sum(const Floats<WIDTH>* x, float* out, long long n) {
    float sum = block_sum(thread_sum<WIDTH, LOADS>(x, n));
    if (threadIdx.x == 0) partial[blockIdx.x] = sum;
    cooperative_groups::this_grid().sync();
    if (blockIdx.x > 0) return;
    sum = partial_sum();
    if (threadIdx.x == 0) out[0] = sum;
}
