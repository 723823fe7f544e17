// Histogram: counts[b] += how many of the n elements of x are b, for 0 <= b < bins. Other values are not counted.
//
// Every block counts in shared memory, where an atomic is cheap, and adds its counts to global memory once.
//
// Each bin has COPIES counters. With 32 of them, a lane has its own, in a bank of its own, so lanes never conflict. Many
// bins have one counter each, and if these exceed shared memory, each row of blocks counts a slice of the bins.

constexpr int THREADS = 1024;

template <typename T, int COPIES>
__global__ void __launch_bounds__(THREADS) histogram(const T* x, int* counts, int n, int bins, int slice) {
    extern __shared__ int counters[];  // slice rows of COPIES
    const int first_bin = blockIdx.y * slice;
    const int bins_here = min(slice, bins - first_bin);
    const int copy = threadIdx.x % COPIES;
    for (int i = threadIdx.x; i < bins_here * COPIES; i += THREADS) counters[i] = 0;
    __syncthreads();  // before anybody counts

    for (int i = blockIdx.x * THREADS + threadIdx.x; i < n; i += gridDim.x * THREADS) {
        const unsigned bin = unsigned(x[i]) - first_bin;  // a value below first_bin becomes a large one
        if (bin < bins_here) atomicAdd(&counters[bin * COPIES + copy], 1);
    }
    __syncthreads();  // all counts of the block are complete

    for (int bin = threadIdx.x; bin < bins_here; bin += THREADS) {
        int sum = 0;
        // A lane adds the copies of one bin. Lane l starts at copy l, so that the lanes read 32 different banks.
        for (int k = 0; k < COPIES; ++k) sum += counters[bin * COPIES + (bin + k) % COPIES];
        if (sum > 0) atomicAdd(&counts[first_bin + bin], sum);
    }
}
