// Counters of one byte for each thread: nobody else touches them, so nothing is atomic until 255 elements are counted.
constexpr int THREADS = 128;

extern "C" __global__ void count_bytes(const unsigned char* x, int* counts, int n, int share) {
    extern __shared__ unsigned char mine[];  // 256 rows of THREADS
    unsigned int* words = reinterpret_cast<unsigned int*>(mine);
    for (int w = threadIdx.x; w < 256 * THREADS / 4; w += THREADS) words[w] = 0;
    __syncthreads();
    const int begin = blockIdx.x * share;
    for (int k = 0; k < share; k += THREADS) {
        const int i = begin + k + threadIdx.x;
        if (i < n) ++mine[x[i] * THREADS + threadIdx.x];
    }
    __syncthreads();
    for (int bin = threadIdx.x; bin < 256; bin += THREADS) {
        int sum = 0;
        for (int t = 0; t < THREADS / 4; ++t) {
            const unsigned int four = words[bin * THREADS / 4 + (t + bin) % (THREADS / 4)];
            sum = __dp4a(four, 0x01010101u, (unsigned int)sum);
        }
        atomicAdd(&counts[bin], sum);
    }
}

// Value by value of a warp: a ballot finds the lanes that hold it, and the first of them adds for all.
extern "C" __global__ void count_by_ballot(const int* x, int* counts, int n, int bins) {
    __shared__ int staged[256 * 8];
    const int begin = blockIdx.x * 2048;
    for (int i = threadIdx.x; i < 2048; i += 256) staged[i] = begin + i < n ? x[begin + i] : -1;
    __syncthreads();
    const int lane = threadIdx.x % 32;
    for (int k = 0; k < 8; ++k) {
        const int value = staged[k * 256 + threadIdx.x];
        unsigned int left = __ballot_sync(~0u, value >= 0 && value < bins);
        while (left) {
            const int leader = __ffs(left) - 1;
            const unsigned int same = __ballot_sync(~0u, value == __shfl_sync(~0u, value, leader));
            if (lane == leader) atomicAdd(&counts[value], __popc(same));
            left &= ~same;
        }
    }
}
