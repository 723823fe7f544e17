// One pass of a radix sort: out has the keys in the order of one digit, and keys with equal digits keep their order.
//
// The place of a key is first[digit] + keys with this digit in earlier tiles + such keys before it in its tile. Each
// thread of a block looks back for one digit. The tile is sorted in shared memory before it is written, so that keys
// with equal digits are written next to each other.

constexpr int WARP = 32, DIGITS = 256, THREADS = DIGITS, WARPS = THREADS / WARP, ITEMS = 24, TILE = THREADS * ITEMS;
constexpr int AHEAD = 8;

// A status word has its state in the two upper bits (0: nothing) and a count below them.
constexpr unsigned COUNT = 1u << 30, PREFIX = 2u << 30, VALUE = COUNT - 1;

__device__ unsigned load_status(const unsigned* status) {
    unsigned word;
    asm volatile("ld.relaxed.gpu.u32 %0, [%1];" : "=r"(word) : "l"(status) : "memory");
    return word;
}

__device__ void publish(unsigned* status, unsigned word) {
    asm volatile("st.relaxed.gpu.u32 [%0], %1;" ::"l"(status), "r"(word) : "memory");
}

// Returns the lanes with the same digit. __match_any_sync takes longer the more different digits there are.
__device__ unsigned lanes_with(unsigned digit) {
    unsigned peers = ~0u;
    for (int bit = 0; bit < 8; ++bit) {
        const bool is_set = digit >> bit & 1;
        const unsigned lanes = __ballot_sync(~0u, is_set);
        peers &= is_set ? lanes : ~lanes;
    }
    return peers;
}

// Returns the number of keys with a digit in all tiles before `tile`. Requests are AHEAD tiles ahead of their use.
__device__ unsigned look_back(const unsigned* status, int tile, int digit) {
    unsigned prefix = 0;
    for (int pred = tile - 1;; pred -= AHEAD) {
        unsigned words[AHEAD];
        for (int a = 0; a < AHEAD; ++a)
            words[a] = pred >= a ? load_status(status + (pred - a) * DIGITS + digit) : PREFIX;  // before tile 0: none
        for (int a = 0; a < AHEAD; ++a) {
            while (words[a] == 0) words[a] = load_status(status + (pred - a) * DIGITS + digit);
            prefix += words[a] & VALUE;
            if (words[a] >= PREFIX) return prefix;
        }
    }
}

// Returns the sum of the values of all earlier threads.
__device__ int exclusive_sum(int value) {
    __shared__ int warp_sums[WARPS];
    const int lane = threadIdx.x % WARP;
    int sum = value;
    for (int step = 1; step < WARP; step *= 2) {
        const int below = __shfl_up_sync(~0u, sum, step);
        if (lane >= step) sum += below;
    }
    if (lane == WARP - 1) warp_sums[threadIdx.x / WARP] = sum;
    __syncthreads();
    for (int warp = 0; warp < threadIdx.x / WARP; ++warp) sum += warp_sums[warp];
    return sum - value;
}

__global__ void __launch_bounds__(THREADS, 3)
radix_pass(const int* keys, const int* first, int* out, unsigned* status, int* next_tile, int n, int shift) {
    __shared__ int counts[WARPS][DIGITS], offset[DIGITS], sorted[TILE], tile_of_block;
    const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP, digit = threadIdx.x;
    if (threadIdx.x == 0) tile_of_block = atomicAdd(next_tile, 1);
    for (int w = 0; w < WARPS; ++w) counts[w][threadIdx.x] = 0;
    __syncthreads();
    const int tile = tile_of_block, base = tile * TILE + warp * ITEMS * WARP + lane;

    // A key's rank is the number of keys before it in its warp that have the same digit. Rows of 32 neighbors are
    // processed in order, so ranks are stable. Past the end of keys, -1 has the last digit and stays last.
    int key[ITEMS];
    unsigned short rank[ITEMS];  // below 768: two of them share a register
    for (int k = 0; k < ITEMS; ++k) key[k] = base + k * WARP < n ? keys[base + k * WARP] : -1;
    for (int k = 0; k < ITEMS; ++k) {
        int* const count = &counts[warp][(unsigned(key[k]) >> shift) & (DIGITS - 1)];
        const unsigned peers = lanes_with((unsigned(key[k]) >> shift) & (DIGITS - 1));
        const int below = __popc(peers & ((1u << lane) - 1));
        rank[k] = *count + below;
        __syncwarp();  // all peers have read the count
        if (below == 0) *count += __popc(peers);
        __syncwarp();
    }
    __syncthreads();

    int in_tile = 0;  // from here, thread d computes digit d
    for (int w = 0; w < WARPS; ++w) in_tile += counts[w][digit];
    publish(status + tile * DIGITS + digit, COUNT | in_tile);
    int start = exclusive_sum(in_tile);
    offset[digit] = first[digit] - start;
    for (int w = 0; w < WARPS; ++w) start += atomicExch(&counts[w][digit], start);  // the exchange returns the count
    __syncthreads();
    // The shared memory is ready for the sort, which takes place while other tiles publish their counts.
    for (int k = 0; k < ITEMS; ++k) sorted[counts[warp][(unsigned(key[k]) >> shift) & (DIGITS - 1)] + rank[k]] = key[k];
    const unsigned prefix = look_back(status, tile, digit);
    publish(status + tile * DIGITS + digit, PREFIX | prefix + in_tile);
    offset[digit] += prefix;
    __syncthreads();
    for (int k = 0; k < TILE; k += THREADS) {
        const int i = k + threadIdx.x, to = offset[(unsigned(sorted[i]) >> shift) & (DIGITS - 1)] + i;
        if (to < n) out[to] = sorted[i];
    }
}
