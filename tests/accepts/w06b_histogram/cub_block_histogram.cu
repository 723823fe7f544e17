#include <cub/cub.cuh>

constexpr int BLOCK = 256, ITEMS = 16, BINS = 256;

__global__ void block_histogram(const unsigned char* x, int* counts, int n) {
    using BlockHistogram = cub::BlockHistogram<unsigned char, BLOCK, ITEMS, BINS, cub::BLOCK_HISTO_ATOMIC>;
    __shared__ typename BlockHistogram::TempStorage storage;
    __shared__ unsigned int bins[BINS];
    BlockHistogram histogram(storage);
    histogram.InitHistogram(bins);
    __syncthreads();
    const int tiles = n / (BLOCK * ITEMS);
    for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
        unsigned char items[ITEMS];
        cub::LoadDirectStriped<BLOCK>(threadIdx.x, x + (size_t)tile * BLOCK * ITEMS, items);
        histogram.Composite(items, bins);
        __syncthreads();
    }
    if (blockIdx.x == gridDim.x - 1) {
        for (int i = tiles * BLOCK * ITEMS + threadIdx.x; i < n; i += BLOCK) atomicAdd(&bins[x[i]], 1u);
        __syncthreads();
    }
    atomicAdd(&counts[threadIdx.x], (int)bins[threadIdx.x]);
}

// No block counts more than 65,535 elements, so that no counter of 16 bits overflows.
__global__ void short_counters(const int* x, int* counts, int n, int bins, int share) {
    extern __shared__ unsigned int words[];
    for (int w = threadIdx.x; w < (bins + 1) / 2; w += blockDim.x) words[w] = 0;
    __syncthreads();
    const long long begin = (long long)blockIdx.x * share, end = min(begin + share, (long long)n);
    for (long long i = begin + threadIdx.x; i < end; i += blockDim.x) {
        const int value = x[i];
        if (value >= 0 && value < bins) atomicAdd(&words[value >> 1], value & 1 ? 0x10000u : 1u);
    }
    __syncthreads();
    for (int b = threadIdx.x; b < bins; b += blockDim.x) {
        const unsigned int found = reinterpret_cast<unsigned short*>(words)[b];
        if (found) atomicAdd(&counts[b], (int)found);
    }
}
