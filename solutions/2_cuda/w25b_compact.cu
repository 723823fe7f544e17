// Compact: the positive elements of x, in order, in one pass over x.
//
// A lane counts the kept elements before its own with __ballot_sync. Warps and tiles are scanned as in `scan`, by
// decoupled look-back: tile t publishes how many elements it keeps, and later how many tiles 0 to t keep.

constexpr int WARP = 32, THREADS = 256, WARPS = THREADS / WARP, ITEMS = 16, TILE = THREADS * ITEMS;

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

// Returns the sum of all tiles before `tile`, in all lanes. Lane l reads the status of the tile l + 1 places earlier.
__device__ int look_back(const unsigned long long* status, int tile) {
    int prefix = 0;
    for (int pred = tile - 1 - int(threadIdx.x % WARP);; pred -= WARP) {
        unsigned long long word = (unsigned long long)PREFIX << 32;  // before tile 0, the prefix is 0
        if (pred >= 0) do word = load_status(status + pred); while (word >> 32 == EMPTY);
        __syncwarp();
        // The nearest prefix includes all earlier tiles. Nearer tiles, which are in lower lanes, have sums.
        const unsigned prefixes = __ballot_sync(~0u, word >> 32 == PREFIX);
        const int lanes = prefixes ? __ffs(prefixes) : WARP;
        prefix += __shfl_sync(~0u, warp_scan(threadIdx.x % WARP < lanes ? int(word) : 0), WARP - 1);
        if (prefixes) return prefix;
    }
}

__global__ void compact(const float* x, float* out, int* count, unsigned long long* status, int* next_tile, int n) {
    __shared__ int before_warp[WARP], tile_of_block;
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
    if (lane == 0) before_warp[warp] = in_warp;
    __syncthreads();

    if (warp == 0) {
        const int warp_sum = lane < WARPS ? before_warp[lane] : 0;
        const int up_to_warp = warp_scan(warp_sum), tile_sum = __shfl_sync(~0u, up_to_warp, WARP - 1);
        if (lane == 0) publish(status + tile, SUM, tile_sum);
        const int prefix = look_back(status, tile);
        if (lane == 0) publish(status + tile, PREFIX, prefix + tile_sum);
        if (lane == 0 && tile == gridDim.x - 1) *count = prefix + tile_sum;
        before_warp[lane] = prefix + up_to_warp - warp_sum;
    }
    __syncthreads();
    int out_index = before_warp[warp];
    for (int k = 0; k < ITEMS; ++k) {
        const unsigned keep_mask = __ballot_sync(~0u, values[k] > 0);
        if (values[k] > 0) out[out_index + __popc(keep_mask & ((1u << lane) - 1))] = values[k];
        out_index += __popc(keep_mask);
    }
}
