// A copy per lane: lane l counts in bank l for every value, so no two lanes of a warp conflict.

constexpr int BINS = 256, COPIES = 32, LOADS = 2, VALUES = 16;

__device__ int counter(int bin, int copy) { return bin * COPIES + copy; }

// CONSTANT: add the constant 1, otherwise the argument `one`, which is 1.
template <bool CONSTANT>
__global__ void __launch_bounds__(1024, 2) histogram(const uint4* x, int* counts, int vectors, int one) {
    __shared__ int counters[BINS * COPIES];
    for (int i = threadIdx.x; i < BINS * COPIES; i += blockDim.x) counters[i] = 0;
    __syncthreads();
    const int copy = threadIdx.x % 32;
    const int threads = gridDim.x * blockDim.x;
    for (int first = blockIdx.x * blockDim.x + threadIdx.x; first < vectors; first += LOADS * threads) {
        uint4 loaded[LOADS];
        for (int k = 0; k < LOADS; ++k) {
            if (first + k * threads < vectors) loaded[k] = x[first + k * threads];
        }
        for (int k = 0; k < LOADS; ++k) {
            if (first + k * threads >= vectors) break;
            for (int e = 0; e < VALUES; ++e) {
                const int bin = reinterpret_cast<const unsigned char*>(&loaded[k])[e];
                atomicAdd(&counters[counter(bin, copy)], CONSTANT ? 1 : one);
            }
        }
    }
    __syncthreads();
    for (int bin = threadIdx.x; bin < BINS; bin += blockDim.x) {
        int sum = 0;
        // The sums begin at copy `bin`, so that neighboring threads read from different banks here, too.
        for (int k = 0; k < COPIES; ++k) sum += counters[counter(bin, (bin + k) % COPIES)];
        atomicAdd(&counts[bin], sum);
    }
}
