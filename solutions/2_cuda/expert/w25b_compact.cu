// Compact: the positive elements of x, in order, in one pass over x.
//
// A lane counts the kept elements before its own with __ballot_sync. Warps and tiles are scanned as in `scan`, by
// decoupled look-back: tile t publishes how many elements it keeps, and later how many tiles 0 to t keep.

constexpr int WARP = 32, THREADS = 512, WARPS = THREADS / WARP, ITEMS = 16, TILE = THREADS * ITEMS;

// The state of a tile, in the upper half of its status word. The lower half is the sum.
constexpr unsigned EMPTY = 0, SUM = 1, PREFIX = 2;

// State and sum travel in one aligned word of 8 bytes, which arrives as a whole. So no fence is needed between them.
__device__ void publish(unsigned long long* status, unsigned state, int sum) {
    const unsigned long long word = (unsigned long long)state << 32 | unsigned(sum);
    asm volatile("st.relaxed.gpu.u64 [%0], %1;" ::"l"(status), "l"(word) : "memory");
}

__device__ unsigned long long load_status(const unsigned long long* status) {
    unsigned long long word;
    asm volatile("ld.relaxed.gpu.u64 %0, [%1];" : "=l"(word) : "l"(status) : "memory");
    return word;
}

// Returns the sum over the lanes up to and including this lane.
__device__ int warp_scan(int sum) {
    for (int step = 1; step < WARP; step *= 2) {
        const int below = __shfl_up_sync(~0u, sum, step);
        if (threadIdx.x % WARP >= step) sum += below;
    }
    return sum;
}

__device__ int last_lane(int value) { return __shfl_sync(~0u, value, WARP - 1); }

// Returns the sum of all tiles before `tile`. Thread i reads the status of the tile i + 1 places earlier, so that one
// round trip to the L2 cache nearly always finds a prefix. A warp alone would look at 32 tiles in each round trip.
__device__ int look_back(const unsigned long long* status, int tile) {
    __shared__ int sums[WARPS];
    __shared__ bool has_prefix[WARPS];
    const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    int prefix = 0;
    for (int pred = tile - 1 - int(threadIdx.x);; pred -= THREADS) {
        unsigned long long word = (unsigned long long)PREFIX << 32;  // before tile 0, the prefix is 0
        if (pred >= 0) do word = load_status(status + pred); while (word >> 32 == EMPTY);
        __syncwarp();
        // The nearest prefix includes all earlier tiles. Nearer tiles, which are in lower lanes, have sums.
        const unsigned prefixes = __ballot_sync(~0u, word >> 32 == PREFIX);
        const int lanes = prefixes ? __ffs(prefixes) : WARP;
        const int sum = warp_scan(lane < lanes ? int(word) : 0);
        if (lane == WARP - 1) sums[warp] = sum, has_prefix[warp] = prefixes != 0;
        __syncthreads();
        for (int w = 0; w < WARPS; ++w) {
            prefix += sums[w];
            if (has_prefix[w]) return prefix;
        }
        __syncthreads();
    }
}

__global__ void __launch_bounds__(THREADS, 4)
compact(const float* x, float* out, int* count, unsigned long long* status, int* next_tile, int n) {
    __shared__ int warp_sums[WARP], tile_of_block;
    __shared__ float kept_in_tile[TILE];
    const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    if (threadIdx.x == 0) tile_of_block = atomicAdd(next_tile, 1);
    __syncthreads();
    const int tile = tile_of_block;

    // A warp has ITEMS rows of 32 neighbors, one row after the other, so that ranks in a warp need no other warp.
    const int base = tile * TILE + warp * ITEMS * WARP + lane, remaining = n - base;
    float values[ITEMS];
    int in_warp = 0;
    for (int k = 0; k < ITEMS; ++k) values[k] = k * WARP < remaining ? x[base + k * WARP] : 0.0f;  // 0 is not kept
    for (int k = 0; k < ITEMS; ++k) in_warp += __popc(__ballot_sync(~0u, values[k] > 0));
    if (lane == 0) warp_sums[warp] = in_warp;
    __syncthreads();

    const int own_warp = lane < WARPS ? warp_sums[lane] : 0, up_to_warp = warp_scan(own_warp);
    const int tile_sum = last_lane(up_to_warp);
    if (threadIdx.x == 0) publish(status + tile, tile ? SUM : PREFIX, tile_sum);  // before it waits for other tiles

    // The kept elements move together in shared memory, so that the tile is written in one contiguous piece.
    int out_index = __shfl_sync(~0u, up_to_warp - own_warp, warp);
    for (int k = 0; k < ITEMS; ++k) {
        const unsigned keep_mask = __ballot_sync(~0u, values[k] > 0);
        if (values[k] > 0) kept_in_tile[out_index + __popc(keep_mask & ((1u << lane) - 1))] = values[k];
        out_index += __popc(keep_mask);
    }
    const int prefix = look_back(status, tile);
    if (threadIdx.x == 0) {
        publish(status + tile, PREFIX, prefix + tile_sum);
        if (tile == gridDim.x - 1) *count = prefix + tile_sum;
    }
    __syncthreads();
    for (int k = threadIdx.x; k < tile_sum; k += THREADS) out[prefix + k] = kept_in_tile[k];
}
