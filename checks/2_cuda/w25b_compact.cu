// The baseline of the compaction: it reads x twice. count_tiles counts the positive elements of each tile, scan_counts
// scans these counts in one block, and write_tiles writes the elements of each tile after the earlier tiles' elements.

constexpr int WARP = 32, THREADS = 256, ITEMS = 16, TILE = THREADS * ITEMS;

__device__ int warp_scan(int sum) {
    for (int step = 1; step < WARP; step *= 2) {
        const int below = __shfl_up_sync(0xffffffff, sum, step);
        if (threadIdx.x % WARP >= step) sum += below;
    }
    return sum;
}

// Returns the sum of the values of this thread and all threads before it, and in `total` the sum of the whole block.
__device__ int block_scan(int sum, int* total) {
    __shared__ int warp_sums[WARP];
    const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP, warps = blockDim.x / WARP;
    sum = warp_scan(sum);
    __syncthreads();  // an earlier call has been read
    if (lane == WARP - 1) warp_sums[warp] = sum;
    __syncthreads();
    const int upto = warp_scan(lane < warps ? warp_sums[lane] : 0);
    *total = __shfl_sync(0xffffffff, upto, WARP - 1);
    return sum + (warp > 0 ? __shfl_sync(0xffffffff, upto, max(warp - 1, 0)) : 0);
}

extern "C" __global__ void __launch_bounds__(THREADS) count_tiles(const float* x, int* counts, int n) {
    const int first = blockIdx.x * TILE + threadIdx.x;
    int kept = 0, total;
    for (int k = 0; k < TILE; k += THREADS) kept += first + k < n && x[first + k] > 0;
    block_scan(kept, &total);
    if (threadIdx.x == 0) counts[blockIdx.x] = total;
}

// Replaces each count with the sum of all earlier counts, and writes the total.
extern "C" __global__ void __launch_bounds__(1024) scan_counts(int* counts, int* count, int tiles) {
    int before = 0;
    for (int first = 0; first < tiles; first += blockDim.x) {
        const int i = first + threadIdx.x, kept = i < tiles ? counts[i] : 0;
        int total;
        const int upto = block_scan(kept, &total);
        if (i < tiles) counts[i] = before + upto - kept;
        before += total;
    }
    if (threadIdx.x == 0) *count = before;
}

extern "C" __global__ void write_tiles(const float* x, float* out, const int* counts, int n) {
    const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    const int base = blockIdx.x * TILE + warp * WARP * ITEMS + lane;
    float values[ITEMS];
    int in_warp = 0, total;
    for (int k = 0; k < ITEMS; ++k) {
        values[k] = base + k * WARP < n ? x[base + k * WARP] : 0.0f;
        in_warp += __popc(__ballot_sync(0xffffffff, values[k] > 0));
    }
    const int upto = block_scan(lane == 0 ? in_warp : 0, &total);
    int next = counts[blockIdx.x] + __shfl_sync(0xffffffff, upto, 0) - in_warp;
    for (int k = 0; k < ITEMS; ++k) {
        const unsigned kept = __ballot_sync(0xffffffff, values[k] > 0);
        if (values[k] > 0) out[next + __popc(kept & ((1u << lane) - 1))] = values[k];
        next += __popc(kept);
    }
}
