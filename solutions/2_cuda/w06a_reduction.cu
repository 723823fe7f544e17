// Sum: out[0] = x[0] + … + x[n - 1] in one launch, with the same bits in every call.
//
// Each thread adds its share in registers, each warp uses shuffles, and each block uses shared memory. A block stores
// its sum in partial, and the block that finishes last adds up these sums, in the order of the blocks.

constexpr int WARP = 32, THREADS = 512, LOADS = 4, MAX_BLOCKS = 4096;

// Variables of the module persist from launch to launch.
__device__ float partial[MAX_BLOCKS];
__device__ unsigned int finished;

__device__ float warp_sum(float sum) {
    for (int step = WARP / 2; step > 0; step /= 2) sum += __shfl_down_sync(0xffffffff, sum, step);
    return sum;
}

// Return the sum over the block in thread 0.
__device__ float block_sum(float sum) {
    __shared__ float warp_sums[THREADS / WARP];
    const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    sum = warp_sum(sum);
    if (lane == 0) warp_sums[warp] = sum;
    __syncthreads();
    return warp == 0 ? warp_sum(lane < THREADS / WARP ? warp_sums[lane] : 0.0f) : 0.0f;
}

// Return the sum of a thread's share of n floats. The first float may be at any alignment.
__device__ float thread_sum(const float* x, long long n) {
    const long long thread = (long long)blockIdx.x * THREADS + threadIdx.x, threads = (long long)gridDim.x * THREADS;

    // Up to three elements come before the first multiple of 16 bytes, and up to three after the last vector.
    const long long head = min(n, (long long)(-(reinterpret_cast<unsigned long long>(x) / 4) % 4));
    const long long vectors = (n - head) / 4, tail = head + 4 * vectors;
    const float4* from = reinterpret_cast<const float4*>(x + head);
    float sum = 0;
    if (thread < head) sum += x[thread];
    if (tail + thread < n) sum += x[tail + thread];

    float4 sums = {};
    for (long long first = thread; first < vectors; first += LOADS * threads) {
        float4 loaded[LOADS];
#pragma unroll
        for (int k = 0; k < LOADS; ++k) {
            const long long v = first + k * threads;
            loaded[k] = v < vectors ? from[v] : float4{};
        }
#pragma unroll
        for (float4 four : loaded) {
            sums.x += four.x;
            sums.y += four.y;
            sums.z += four.z;
            sums.w += four.w;
        }
    }
    return sum + ((sums.x + sums.y) + (sums.z + sums.w));
}

__launch_bounds__(THREADS, 2)
__global__ void vector_sum(const float* x, float* out, long long n) {
    __shared__ bool is_last;
    float sum = block_sum(thread_sum(x, n));
    if (gridDim.x > 1) {
        if (threadIdx.x == 0) {
            partial[blockIdx.x] = sum;
            __threadfence();  // the block that sees this block's ticket must also see its sum
            is_last = atomicInc(&finished, gridDim.x - 1) == gridDim.x - 1;  // the last block resets finished to 0
        }
        __syncthreads();
        if (!is_last) return;
        __threadfence();
        sum = 0;
        for (int block = threadIdx.x; block < gridDim.x; block += THREADS) sum += __ldcg(&partial[block]);
        sum = block_sum(sum);
    }
    if (threadIdx.x == 0) out[0] = sum;
}
