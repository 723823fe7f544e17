// Histogram: counts[b] += how many of the n elements of x are b, for 0 <= b < bins. Other values are not counted.
//
// Each block counts in shared memory, where an atomic is cheap, and adds its counts to global memory once.

template <typename T>  // TODO: add what else must be known at compile time
__global__ void histogram(const T* x, int* counts, int n, int bins) {  // TODO: a second kernel for many bins
    // TODO: set the block's counters to zero, wait, count, wait, add the counters to counts with atomicAdd
}
