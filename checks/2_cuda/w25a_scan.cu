// The baseline of the scan: it reads x twice. sum_tiles adds up each tile, scan_sums scans these sums in one block, and
// scan_tiles scans each tile from the sum of all tiles before it.

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

extern "C" __global__ void __launch_bounds__(THREADS) sum_tiles(const int* x, int* sums, int n) {
    const int first = blockIdx.x * TILE + threadIdx.x;
    int sum = 0, total;
    for (int k = 0; k < ITEMS; ++k) sum += first + k * THREADS < n ? x[first + k * THREADS] : 0;
    block_scan(sum, &total);
    if (threadIdx.x == 0) sums[blockIdx.x] = total;
}

// Replaces each sum with the sum of all earlier sums.
extern "C" __global__ void __launch_bounds__(1024) scan_sums(int* sums, int tiles) {
    int before = 0;
    for (int first = 0; first < tiles; first += blockDim.x) {
        const int i = first + threadIdx.x, sum = i < tiles ? sums[i] : 0;
        int total;
        const int upto = block_scan(sum, &total);
        if (i < tiles) sums[i] = before + upto - sum;
        before += total;
    }
}

extern "C" __global__ void __launch_bounds__(THREADS) scan_tiles(const int* x, int* out, const int* sums, int n) {
    __shared__ int values[TILE + TILE / WARP];  // one word of padding after 32 avoids bank conflicts
    const int first = blockIdx.x * TILE, base = threadIdx.x * ITEMS;
    for (int k = 0; k < TILE; k += THREADS) {
        const int i = k + threadIdx.x;
        values[i + i / WARP] = first + i < n ? x[first + i] : 0;
    }
    __syncthreads();
    int sum = 0, total;
    for (int k = 0; k < ITEMS; ++k) sum += values[base + k + (base + k) / WARP];
    int running = sums[blockIdx.x] + block_scan(sum, &total) - sum;
    for (int k = 0; k < ITEMS; ++k) {
        int& value = values[base + k + (base + k) / WARP];
        value = running += value;
    }
    __syncthreads();
    for (int k = 0; k < TILE; k += THREADS) {
        const int i = k + threadIdx.x;
        if (first + i < n) out[first + i] = values[i + i / WARP];
    }
}
