// The baseline of the pass: it reads the keys twice and writes each key to its place at once. count_digits counts the
// digits of each tile, scan_counts scans the counts of each digit over the tiles, and scatter writes the keys.

constexpr int WARP = 32, DIGITS = 256, THREADS = DIGITS, WARPS = THREADS / WARP, ITEMS = 16, TILE = THREADS * ITEMS;

extern "C" __global__ void count_digits(const int* keys, int* counts, int n, int shift, int tiles) {
    __shared__ int tile_counts[DIGITS];
    tile_counts[threadIdx.x] = 0;
    __syncthreads();
    const int base = blockIdx.x * TILE + threadIdx.x;
    for (int k = 0; k < TILE; k += THREADS) {
        if (base + k < n) atomicAdd(&tile_counts[(unsigned(keys[base + k]) >> shift) & (DIGITS - 1)], 1);
    }
    __syncthreads();
    counts[threadIdx.x * tiles + blockIdx.x] = tile_counts[threadIdx.x];
}

// A block replaces each count of its digit with the place of the tile's first key with this digit.
extern "C" __global__ void scan_counts(int* counts, const int* first, int tiles) {
    __shared__ int warp_sums[WARPS];
    const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    int before = first[blockIdx.x];
    for (int begin = 0; begin < tiles; begin += THREADS) {
        const int i = begin + threadIdx.x, count = i < tiles ? counts[blockIdx.x * tiles + i] : 0;
        int sum = count;
        for (int step = 1; step < WARP; step *= 2) {
            const int below = __shfl_up_sync(0xffffffff, sum, step);
            if (lane >= step) sum += below;
        }
        if (lane == WARP - 1) warp_sums[warp] = sum;
        __syncthreads();
        int total = 0;
        for (int w = 0; w < WARPS; ++w) {
            if (w < warp) sum += warp_sums[w];
            total += warp_sums[w];
        }
        if (i < tiles) counts[blockIdx.x * tiles + i] = before + sum - count;
        before += total;
        __syncthreads();
    }
}

extern "C" __global__ void scatter(const int* keys, int* out, const int* counts, int n, int shift, int tiles) {
    __shared__ int places[WARPS][DIGITS];
    const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    const int base = blockIdx.x * TILE + warp * ITEMS * WARP + lane;
    for (int w = 0; w < WARPS; ++w) places[w][threadIdx.x] = 0;
    __syncthreads();
    int key[ITEMS], rank[ITEMS];
    for (int k = 0; k < ITEMS; ++k) key[k] = base + k * WARP < n ? keys[base + k * WARP] : -1;
    for (int k = 0; k < ITEMS; ++k) {
        int* const count = &places[warp][(unsigned(key[k]) >> shift) & (DIGITS - 1)];
        const unsigned peers = __match_any_sync(0xffffffff, (unsigned(key[k]) >> shift) & (DIGITS - 1));
        const int below = __popc(peers & ((1u << lane) - 1));
        rank[k] = *count + below;
        __syncwarp();
        if (below == 0) *count += __popc(peers);
        __syncwarp();
    }
    __syncthreads();
    int place = counts[threadIdx.x * tiles + blockIdx.x];
    for (int w = 0; w < WARPS; ++w) {
        const int warp_sums = places[w][threadIdx.x];
        places[w][threadIdx.x] = place;
        place += warp_sums;
    }
    __syncthreads();
    for (int k = 0; k < ITEMS; ++k) {
        if (base + k * WARP < n) out[places[warp][(unsigned(key[k]) >> shift) & (DIGITS - 1)] + rank[k]] = key[k];
    }
}
