// Histogram: counts[b] += how many of the n elements of x are b, for 0 <= b < bins. Other values are not counted.
//
// Each block counts in shared memory, where an atomic is cheap, and adds its counts to global memory once.
//
// Each bin has COPIES counters. With 32 of them, each lane has its own counter in its own bank, without conflicts.
// With many bins, each has one counter. If these exceed shared memory, each row of blocks counts a slice of the bins.

constexpr int THREADS = 1024;

// __launch_bounds__ tells the compiler how many threads a block has (week 7).
template <typename T, int COPIES>
__global__ void __launch_bounds__(THREADS) histogram(const T* x, int* counts, int n, int bins, int slice) {
    extern __shared__ int counters[];  // slice rows of COPIES
    const int first_bin = blockIdx.y * slice;
    const int bins_here = min(slice, bins - first_bin);  // the last slice may have fewer
    const int copy = threadIdx.x % COPIES;
    for (int i = threadIdx.x; i < bins_here * COPIES; i += THREADS) counters[i] = 0;
    __syncthreads();  // before any thread counts

    for (int i = blockIdx.x * THREADS + threadIdx.x; i < n; i += gridDim.x * THREADS) {
        // As unsigned, a value below first_bin becomes a large number, so one comparison covers both ends.
        const unsigned bin = unsigned(x[i]) - first_bin;
        if (bin < bins_here) atomicAdd(&counters[bin * COPIES + copy], 1);
    }
    __syncthreads();  // all counts of the block are complete

    for (int bin = threadIdx.x; bin < bins_here; bin += THREADS) {
        int sum = 0;
        // A lane adds the copies of one bin. Lane l starts at copy l, because copy k of every bin is in bank k. If all
        // lanes started at copy 0, they would read 32 words of one bank.
        for (int k = 0; k < COPIES; ++k) sum += counters[bin * COPIES + (bin + k) % COPIES];
        if (sum > 0) atomicAdd(&counts[first_bin + bin], sum);
    }
}
