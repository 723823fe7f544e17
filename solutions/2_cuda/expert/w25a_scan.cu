// Scan: out[i] = x[0] + … + x[i] in one pass over x, by decoupled look-back.
//
// A block scans one tile. Tile t publishes a status word: first its own sum, as soon as it is known, and later the sum
// of tiles 0 to t. To find the sum before it, a tile looks back: it adds the sums of its predecessors until it finds a
// tile that has published its prefix.

constexpr int WARP = 32, THREADS = 256, WARPS = THREADS / WARP, ROWS = 8, ROW = 4 * WARP, TILE = THREADS * 4 * ROWS;

// The state of a tile, in the upper half of its status word. The lower half is the sum.
constexpr unsigned EMPTY = 0, SUM = 1, PREFIX = 2;

// State and sum share one aligned word of 8 bytes, which is stored as a whole, so no fence is needed between them.
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

// Loads 4 elements, or those of them that exist. x[1:] is not aligned to 16 bytes.
__device__ int4 load_four(const int* x, int remaining, bool aligned) {
    if (aligned && remaining >= 4) return *reinterpret_cast<const int4*>(x);
    return {remaining > 0 ? x[0] : 0, remaining > 1 ? x[1] : 0, remaining > 2 ? x[2] : 0, remaining > 3 ? x[3] : 0};
}

__device__ void store_four(int* out, int remaining, int4 v) {  // out is a new tensor, which is always aligned
    if (remaining >= 4) {
        *reinterpret_cast<int4*>(out) = v;
    } else {
        if (remaining > 0) out[0] = v.x;
        if (remaining > 1) out[1] = v.y;
        if (remaining > 2) out[2] = v.z;
    }
}

__global__ void __launch_bounds__(THREADS, 1)
scan(const int* x, int* out, unsigned long long* status, int* next_tile, int n, bool aligned) {
    __shared__ int warp_sums[WARP], tile_of_block;
    const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;

    // A tile waits only for tiles with lower numbers. Blocks start in any order, so they take numbers when they start:
    // then every tile with a lower number belongs to a block that is running or has finished.
    if (threadIdx.x == 0) tile_of_block = atomicAdd(next_tile, 1);
    __syncthreads();
    const int tile = tile_of_block, base = tile * TILE + warp * ROWS * ROW + 4 * lane, remaining = n - base;

    // A lane has 4 neighbors in each of its warp's rows of 128 elements. All loads come before the first use.
    int4 v[ROWS];
    if (aligned && (tile + 1) * TILE <= n) {
        for (int k = 0; k < ROWS; ++k) v[k] = *reinterpret_cast<const int4*>(x + base + k * ROW);
    } else {
        for (int k = 0; k < ROWS; ++k) v[k] = load_four(x + base + k * ROW, remaining - k * ROW, aligned);
    }
    int sum = 0;
    for (int k = 0; k < ROWS; ++k) {
        v[k].y += v[k].x, v[k].z += v[k].y, v[k].w += v[k].z;
        const int in_row = warp_scan(v[k].w), prefix = sum + in_row - v[k].w;
        sum += last_lane(in_row);
        v[k].x += prefix, v[k].y += prefix, v[k].z += prefix, v[k].w += prefix;
    }
    if (lane == WARP - 1) warp_sums[warp] = sum;
    __syncthreads();

    const int own_warp = lane < WARPS ? warp_sums[lane] : 0, up_to_warp = warp_scan(own_warp);
    const int tile_sum = last_lane(up_to_warp), before_warp = __shfl_sync(~0u, up_to_warp - own_warp, warp);
    if (threadIdx.x == 0) publish(status + tile, tile ? SUM : PREFIX, tile_sum);  // before it waits for other tiles
    const int before_tile = look_back(status, tile), prefix = before_tile + before_warp;
    if (threadIdx.x == 0) publish(status + tile, PREFIX, before_tile + tile_sum);

    for (int k = 0; k < ROWS; ++k) {
        v[k].x += prefix, v[k].y += prefix, v[k].z += prefix, v[k].w += prefix;
        store_four(out + base + k * ROW, remaining - k * ROW, v[k]);
    }
}
