// Scan: out[i] = x[0] + … + x[i] in one pass over x, by decoupled look-back.
//
// A block scans one tile. Tile t publishes a status word: first its own sum, as soon as it is known, and later the sum
// of tiles 0 to t. To find the sum before it, a tile looks back: it adds the sums of its predecessors until it finds a
// tile that has published its prefix.

constexpr int WARP = 32, THREADS = 256, ITEMS = 16, TILE = THREADS * ITEMS;

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
        prefix += last_lane(warp_scan(threadIdx.x % WARP < lanes ? int(word) : 0));
        if (prefixes) return prefix;
    }
}

// One word of padding after every 32 avoids bank conflicts for neighboring lanes and for the neighbors of a thread.
__device__ int padded(int i) { return i + i / WARP; }

__global__ void scan(const int* x, int* out, unsigned long long* status, int* next_tile, int n) {
    __shared__ int values[TILE + TILE / WARP], before_warp[WARP], tile_of_block;
    const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;

    // A tile waits only for tiles with lower numbers. Blocks start in any order, so they take numbers when they start:
    // then every tile with a lower number belongs to a block that is running or has finished.
    if (threadIdx.x == 0) tile_of_block = atomicAdd(next_tile, 1);
    __syncthreads();
    const int tile = tile_of_block, base = tile * TILE + threadIdx.x, remaining = n - base;

    // Coalesced loads give a thread elements that are far apart. Through shared memory, it gets ITEMS neighbors.
    for (int k = 0; k < TILE; k += THREADS) values[padded(k + threadIdx.x)] = k < remaining ? x[base + k] : 0;
    __syncthreads();
    int sums[ITEMS], sum = 0;
    for (int k = 0; k < ITEMS; ++k) sums[k] = sum += values[padded(threadIdx.x * ITEMS + k)];
    const int in_warp = warp_scan(sum);
    if (lane == WARP - 1) before_warp[warp] = in_warp;
    __syncthreads();

    if (warp == 0) {
        const int warp_sum = lane < THREADS / WARP ? before_warp[lane] : 0;
        const int up_to_warp = warp_scan(warp_sum), tile_sum = last_lane(up_to_warp);
        if (lane == 0) publish(status + tile, SUM, tile_sum);  // before the wait, so that later tiles can go on
        const int prefix = look_back(status, tile);
        if (lane == 0) publish(status + tile, PREFIX, prefix + tile_sum);
        before_warp[lane] = prefix + up_to_warp - warp_sum;
    }
    __syncthreads();
    const int prefix = before_warp[warp] + in_warp - sum;
    for (int k = 0; k < ITEMS; ++k) values[padded(threadIdx.x * ITEMS + k)] = prefix + sums[k];
    __syncthreads();
    for (int k = 0; k < TILE && k < remaining; k += THREADS) out[base + k] = values[padded(k + threadIdx.x)];
}
